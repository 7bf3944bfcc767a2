"""The 2-layer probe: nets with one hidden layer, fitted by Adam, one per seed and all at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from pcfg_artifact.probing.standardisation import CHUNK, Standardisation
from pcfg_artifact.seeding import derive_seed


@dataclass(frozen=True)
class TwoLayerNets:
    """S nets with H hidden units each on the same inputs: one per seed, independent of one another.

    hidden_weights (D, S*H), hidden_bias (S*H,), weights (S, H, C), bias (S, 1, C); losses (S,) at the last epoch.
    """

    standardise: Standardisation
    hidden_weights: torch.Tensor
    hidden_bias: torch.Tensor
    weights: torch.Tensor
    bias: torch.Tensor
    classes: np.ndarray | None
    losses: np.ndarray

    @property
    def facts(self) -> dict[str, float | bool | None]:
        loss = float(self.losses[0])
        return {"final_loss": loss if math.isfinite(loss) else None}

    @torch.inference_mode()
    def predict(self, x: np.ndarray) -> np.ndarray:
        """(S, n) labels, or (S, n) numbers for a regression."""
        parts = [np.zeros((len(self.weights), 0), np.float32 if self.classes is None else self.classes.dtype)]
        for start in range(0, len(x), CHUNK):
            chunk = torch.from_numpy(self.standardise(x[start:start + CHUNK])).to(self.weights.device)
            scores = network_scores(chunk, self.hidden_weights, self.hidden_bias, self.weights, self.bias)
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

        The summed loss gives every net exactly its own gradient and Adam works element by element, so each net ends as
        it would alone; the product with the shared inputs is done once for all.  A seed decides the first weights of
        its net; the order of the data is the same for all.
        """
        standardise = Standardisation.of(x)
        inputs = torch.from_numpy(standardise(x, out=x if overwrite_x else None)).to(device)
        classes: np.ndarray | None = None
        n_outputs = 1
        if np.issubdtype(targets.dtype, np.integer):
            classes, targets = np.unique(targets, return_inverse=True)
            n_outputs = len(classes)
        else:
            targets = targets.astype(np.float32)
        wanted = torch.from_numpy(targets).to(device)
        parameters = [p.to(device).requires_grad_() for p in self._first_weights(x.shape[1], n_outputs, seeds)]
        losses = self._descend(parameters, inputs, wanted, classes is not None)
        hidden_weights, hidden_bias, weights, bias = (p.detach() for p in parameters)
        return TwoLayerNets(standardise, hidden_weights, hidden_bias, weights, bias, classes, losses)

    def _descend(self, parameters: list[torch.Tensor], inputs: torch.Tensor, wanted: torch.Tensor,
                 has_classes: bool) -> np.ndarray:
        """Adam over all epochs, in place; (S,) the losses of the last."""
        n_nets, device = len(parameters[2]), inputs.device
        optimizer = torch.optim.Adam(parameters, lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(self.milestones), gamma=0.1)
        losses = torch.zeros(n_nets)
        for epoch in range(self.epochs):
            order = torch.randperm(len(inputs), generator=generator("order", epoch)).to(device)
            losses = torch.zeros(n_nets, device=device)
            for batch in order.split(self.batch_size):
                loss = loss_by_net(network_scores(inputs[batch], *parameters), wanted[batch], has_classes)
                optimizer.zero_grad(set_to_none=True)
                loss.sum().backward()
                optimizer.step()
                losses += loss.detach() * (len(batch) / len(inputs))
            schedule.step()
        return losses.cpu().numpy()

    def _first_weights(self, n_inputs: int, n_outputs: int, seeds: Sequence[int]) -> list[torch.Tensor]:
        """Hidden weights and bias, output weights and bias, uniform on +-1/sqrt(fan in), each net from its own seed."""
        nets = []
        for seed in seeds:
            rng = generator("first weights", seed)
            shapes: list[tuple[tuple[int, ...], int]] = [  # and fan in
                ((n_inputs, self.n_hidden), n_inputs), ((self.n_hidden,), n_inputs),
                ((self.n_hidden, n_outputs), self.n_hidden), ((1, n_outputs), self.n_hidden)]
            nets.append([(2 * torch.rand(shape, generator=rng) - 1) / fan_in**0.5 for shape, fan_in in shapes])
        hidden_weights, hidden_bias, weights, bias = zip(*nets, strict=True)
        return [torch.cat(hidden_weights, dim=1), torch.cat(hidden_bias), torch.stack(weights), torch.stack(bias)]


def network_scores(x: torch.Tensor, hidden_weights: torch.Tensor, hidden_bias: torch.Tensor, weights: torch.Tensor,
                   bias: torch.Tensor) -> torch.Tensor:
    """(S, n, C): the hidden layers of all nets in one product, since they read the same inputs; then one per net."""
    n_nets, n_hidden, _ = weights.shape
    hidden = torch.relu(torch.addmm(hidden_bias, x, hidden_weights)).view(len(x), n_nets, n_hidden)
    return torch.baddbmm(bias, hidden.transpose(0, 1), weights)


def loss_by_net(scores: torch.Tensor, wanted: torch.Tensor, has_classes: bool) -> torch.Tensor:
    """(S,) mean cross entropy or mean squared error of each net; scores (S, n, C), wanted (n,)."""
    if not has_classes:
        return (scores[..., 0] - wanted).square().mean(dim=1)
    log_prob = torch.log_softmax(scores, dim=-1)
    return -log_prob.gather(2, wanted.expand(len(scores), -1).unsqueeze(-1)).mean(dim=(1, 2))


def generator(*names: object) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(0, "probe", *names) >> 1)
