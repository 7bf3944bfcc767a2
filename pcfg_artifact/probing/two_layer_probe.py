"""The 2-layer probe: nets with one hidden layer, fitted by Adam, one per seed and all at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from pcfg_artifact.probing.standardisation import CHUNK, Standardisation, standardised
from pcfg_artifact.system.random_streams import derive_seed


class NetWeights(NamedTuple):
    """Of S nets with H hidden units each on the same inputs: one per seed, independent of one another."""

    hidden: torch.Tensor  # (D, S*H)
    hidden_bias: torch.Tensor  # (S*H,)
    outer: torch.Tensor  # (S, H, C)
    bias: torch.Tensor  # (S, 1, C)


@dataclass(frozen=True)
class TwoLayerNets:
    """Fitted nets; losses (S,) on the training examples."""

    standardise: Standardisation
    weights: NetWeights
    classes: np.ndarray | None
    losses: np.ndarray

    @property
    def facts(self) -> dict[str, float | bool | None]:
        loss = float(self.losses[0])
        return {"final_loss": loss if math.isfinite(loss) else None}

    @torch.inference_mode()
    def predict(self, x: np.ndarray) -> np.ndarray:
        """(S, n) labels, or (S, n) numbers for a regression."""
        parts = [np.zeros((len(self.weights.outer), 0), np.float32 if self.classes is None else self.classes.dtype)]
        for start in range(0, len(x), CHUNK):
            chunk = torch.from_numpy(self.standardise(x[start:start + CHUNK])).to(self.weights.outer.device)
            _, scores = network_scores(chunk, self.weights)
            if self.classes is None:
                parts.append(scores[..., 0].cpu().numpy())
            else:
                parts.append(self.classes[scores.argmax(dim=-1).cpu().numpy()])
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class TwoLayerProbe:
    """Options of the nets; the defaults are the paper's."""

    n_hidden: int = 16
    epochs: int = 800
    learning_rate: float = 1e-3
    milestones: tuple[int, ...] = (200, 400, 600)  # epochs after which the rate is multiplied by 0.1
    batch_size: int = 4096

    name: ClassVar[str] = "2-layer"
    has_seeds: ClassVar[bool] = True
    uses_gpu: ClassVar[bool] = True

    def fit(self, x: np.ndarray, targets: np.ndarray, seeds: Sequence[int], *, device: str = "cpu",
            overwrite_x: bool = False) -> TwoLayerNets:
        """One net per seed on inputs x (n, D) float32 and targets (n,), labels if integers.

        Every net has its own gradient and Adam works element by element, so each net ends as it would alone; the
        product with the shared inputs is done once for all.  A seed decides the first weights of its net; the order of
        the data is the same for all.
        """
        standardise, inputs = standardised(x, device, overwrite_x)
        classes: np.ndarray | None = None
        n_outputs = 1
        if np.issubdtype(targets.dtype, np.integer):
            classes, targets = np.unique(targets, return_inverse=True)
            n_outputs = len(classes)
        else:
            targets = targets.astype(np.float32)
        answers = torch.from_numpy(targets).to(device)
        first = self._first_weights(x.shape[1], n_outputs, seeds)
        flat = torch.cat([part.reshape(-1) for part in first]).to(device)
        weights = weights_in(flat, x.shape[1], self.n_hidden, n_outputs)
        self._descend(flat, weights, inputs, answers, classes is not None)
        return TwoLayerNets(standardise, weights, classes, mean_losses(weights, inputs, answers, classes is not None))

    @torch.no_grad()
    def _descend(self, flat: torch.Tensor, weights: NetWeights, inputs: torch.Tensor, answers: torch.Tensor,
                 has_classes: bool) -> None:
        """Adam over all epochs, in place on `flat`, which holds all weights."""
        _, n_hidden, n_outputs = weights.outer.shape
        flat.grad = torch.zeros_like(flat)
        gradient = weights_in(flat.grad, inputs.shape[1], n_hidden, n_outputs)
        optimizer = torch.optim.Adam([flat], lr=self.learning_rate, fused=True)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(self.milestones), gamma=0.1)
        for epoch in range(self.epochs):
            order = torch.randperm(len(inputs), generator=generator("order", epoch)).to(inputs.device)
            for batch in order.split(self.batch_size):
                # Several times as fast as inputs[batch] on a CPU.
                x, chosen = inputs.index_select(0, batch), answers.index_select(0, batch)
                write_gradient(weights, gradient, x, chosen, has_classes)
                optimizer.step()
            schedule.step()

    def _first_weights(self, n_inputs: int, n_outputs: int, seeds: Sequence[int]) -> NetWeights:
        """Hidden weights and bias, output weights and bias, uniform on +-1/sqrt(fan in), each net from its own seed."""
        nets = []
        for seed in seeds:
            rng = generator("first weights", seed)
            shapes: list[tuple[tuple[int, ...], int]] = [  # and fan in
                ((n_inputs, self.n_hidden), n_inputs), ((self.n_hidden,), n_inputs),
                ((self.n_hidden, n_outputs), self.n_hidden), ((1, n_outputs), self.n_hidden)]
            nets.append([(2 * torch.rand(shape, generator=rng) - 1) / fan_in**0.5 for shape, fan_in in shapes])
        hidden, hidden_bias, outer, bias = zip(*nets, strict=True)
        return NetWeights(torch.cat(hidden, dim=1), torch.cat(hidden_bias), torch.stack(outer), torch.stack(bias))


def weights_in(flat: torch.Tensor, n_inputs: int, n_hidden: int, n_outputs: int) -> NetWeights:
    """The weights of nets as parts of one vector."""
    n_nets = len(flat) // ((n_inputs + 1) * n_hidden + (n_hidden + 1) * n_outputs)
    shapes = [(n_inputs, n_nets * n_hidden), (n_nets * n_hidden,), (n_nets, n_hidden, n_outputs),
              (n_nets, 1, n_outputs)]
    parts = flat.split([math.prod(shape) for shape in shapes])
    return NetWeights(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))


def network_scores(x: torch.Tensor, weights: NetWeights) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, S*H) and (S, n, C): the hidden layers of all nets in one product, since they read the same inputs; then the
    scores, one product per net."""
    n_nets, n_hidden, _ = weights.outer.shape
    hidden = torch.addmm(weights.hidden_bias, x, weights.hidden).relu_()
    return hidden, torch.baddbmm(weights.bias, hidden.view(len(x), n_nets, n_hidden).transpose(0, 1), weights.outer)


def write_gradient(weights: NetWeights, gradient: NetWeights, x: torch.Tensor, targets: torch.Tensor,
                   has_classes: bool) -> None:
    """The gradient of each net's mean cross entropy or mean squared error, into `gradient`.

    By hand, because most of the time of so small a net would go to the bookkeeping of automatic derivatives.
    """
    n, (n_nets, n_hidden, _) = len(x), weights.outer.shape
    hidden, scores = network_scores(x, weights)
    if has_classes:
        error = torch.softmax(scores, dim=-1)
        labels = targets.expand(n_nets, -1).unsqueeze(-1)
        error.scatter_add_(2, labels, error.new_full((1, 1, 1), -1.0).expand_as(labels))
        error /= n
    else:
        error = scores.sub_(targets[:, None]).mul_(2 / n)
    torch.bmm(hidden.view(n, n_nets, n_hidden).permute(1, 2, 0), error, out=gradient.outer)
    torch.sum(error, dim=1, keepdim=True, out=gradient.bias)
    back = torch.bmm(error, weights.outer.transpose(1, 2)).transpose(0, 1).reshape(n, n_nets * n_hidden)
    back = torch.ops.aten.threshold_backward(back, hidden, 0)  # the derivative of relu
    torch.mm(x.T, back, out=gradient.hidden)
    torch.sum(back, dim=0, out=gradient.hidden_bias)


@torch.inference_mode()
def mean_losses(weights: NetWeights, inputs: torch.Tensor, targets: torch.Tensor, has_classes: bool) -> np.ndarray:
    """(S,) mean cross entropy or mean squared error of each net."""
    total = torch.zeros(len(weights.outer), dtype=torch.float64, device=inputs.device)
    for x, answers in zip(inputs.split(CHUNK), targets.split(CHUNK), strict=True):
        _, scores = network_scores(x, weights)
        if has_classes:
            log_prob = torch.log_softmax(scores, dim=-1)
            total -= log_prob.gather(2, answers.expand(len(scores), -1).unsqueeze(-1)).sum(dim=(1, 2))
        else:
            total += (scores[..., 0] - answers).square().sum(dim=1)
    return (total / len(inputs)).cpu().numpy()


def generator(*names: object) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(0, "probe", *names) >> 1)
