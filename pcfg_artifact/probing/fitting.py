"""Fitting the probes: scikit-learn for the linear one, Adam for the nets.

Targets of an integer type are classes, others are numbers: classification in the one case (logistic regression, cross
entropy), least squares in the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression

from pcfg_artifact.probing.probes import LinearProbe, Standardisation, TwoLayerProbes, network_scores
from pcfg_artifact.seeding import derive_seed


@dataclass(frozen=True)
class LinearFit:
    """Options of the logistic regression: L-BFGS steps, and scikit-learn's inverse strength of the L2 penalty."""

    max_iterations: int = 1000
    inverse_penalty: float = 1.0


@dataclass(frozen=True)
class NetworkFit:
    """Options of the 2-layer nets; the defaults are the paper's."""

    n_hidden: int = 16
    epochs: int = 800
    learning_rate: float = 1e-3
    milestones: tuple[int, ...] = (200, 400, 600)  # epochs after which the rate is multiplied by 0.1
    batch_size: int = 4096


def is_classification(targets: np.ndarray) -> bool:
    return np.issubdtype(targets.dtype, np.integer)


def fit_linear(x: np.ndarray, targets: np.ndarray, options: LinearFit, *, overwrite_x: bool = False) -> LinearProbe:
    """The linear probe of inputs x (n, D) float32 and targets (n,); overwrite_x=True saves the memory of a copy."""
    standardise = Standardisation.of(x)
    x = standardise(x, out=x if overwrite_x else None)
    if not is_classification(targets):
        fitted = LinearRegression().fit(x, targets.astype(np.float32))
        return LinearProbe(standardise, fitted.coef_.reshape(-1, 1), np.atleast_1d(fitted.intercept_), None, 0, True)
    classes = np.unique(targets)
    if len(classes) == 1:  # nothing to separate, which scikit-learn refuses
        nothing = np.zeros((x.shape[1], 1), np.float32)
        return LinearProbe(standardise, nothing, np.zeros(1, np.float32), classes, 0, True)
    fitted = LogisticRegression(C=options.inverse_penalty, max_iter=options.max_iterations)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # told by has_converged instead
        fitted.fit(x, targets)
    weights, bias = fitted.coef_.T, fitted.intercept_
    if len(classes) == 2:  # scikit-learn keeps the score of the second class alone
        weights, bias = np.hstack([-weights, weights]), np.concatenate([-bias, bias])
    n_iterations = int(fitted.n_iter_.max())
    return LinearProbe(standardise, weights, bias, classes, n_iterations, n_iterations < options.max_iterations)


def fit_networks(x: np.ndarray, targets: np.ndarray, options: NetworkFit, seeds: Sequence[int], *,
                 device: str = "cpu", overwrite_x: bool = False) -> TwoLayerProbes:
    """One 2-layer net per seed on inputs x (n, D) float32 and targets (n,), all fitted at once.

    The summed loss gives every net exactly its own gradient and Adam works element by element, so each net ends as it
    would alone; the product with the shared inputs is done once for all.  A seed decides the first weights of its
    net; the order of the data is the same for all.
    """
    standardise = Standardisation.of(x)
    inputs = torch.from_numpy(standardise(x, out=x if overwrite_x else None)).to(device)
    if is_classification(targets):
        classes, wanted = np.unique(targets, return_inverse=True)
        n_outputs, wanted = len(classes), torch.from_numpy(wanted).to(device)
    else:
        classes, n_outputs = None, 1
        wanted = torch.from_numpy(targets.astype(np.float32)).to(device)
    parameters = [p.to(device).requires_grad_() for p in first_weights(x.shape[1], n_outputs, options, seeds)]
    optimizer = torch.optim.Adam(parameters, lr=options.learning_rate)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(options.milestones), gamma=0.1)
    losses = torch.zeros(len(seeds))
    for epoch in range(options.epochs):
        order = torch.randperm(len(inputs), generator=generator("order", epoch)).to(device)
        losses = torch.zeros(len(seeds), device=device)
        for batch in order.split(options.batch_size):
            loss = loss_by_net(network_scores(inputs[batch], *parameters), wanted[batch], classes is not None)
            optimizer.zero_grad(set_to_none=True)
            loss.sum().backward()
            optimizer.step()
            losses += loss.detach() * (len(batch) / len(inputs))
        schedule.step()
    return TwoLayerProbes(standardise, *(p.detach() for p in parameters), classes=classes, losses=losses.cpu().numpy())


def loss_by_net(scores: torch.Tensor, wanted: torch.Tensor, has_classes: bool) -> torch.Tensor:
    """(S,) mean cross entropy or mean squared error of each net; scores (S, n, C), wanted (n,)."""
    if not has_classes:
        return (scores[..., 0] - wanted).square().mean(dim=1)
    log_prob = torch.log_softmax(scores, dim=-1)
    return -log_prob.gather(2, wanted.expand(len(scores), -1).unsqueeze(-1)).mean(dim=(1, 2))


def first_weights(n_inputs: int, n_outputs: int, options: NetworkFit, seeds: Sequence[int]) -> list[torch.Tensor]:
    """Hidden weights and bias, output weights and bias, uniform on +-1/sqrt(fan in), each net from its own seed."""
    nets = []
    for seed in seeds:
        rng = generator("first weights", seed)
        n_hidden = options.n_hidden
        shapes = [((n_inputs, n_hidden), n_inputs), ((n_hidden,), n_inputs), ((n_hidden, n_outputs), n_hidden),
                  ((1, n_outputs), n_hidden)]  # and fan in
        nets.append([(2 * torch.rand(shape, generator=rng) - 1) / fan_in**0.5 for shape, fan_in in shapes])
    hidden_weights, hidden_bias, weights, bias = zip(*nets, strict=True)
    return [torch.cat(hidden_weights, dim=1), torch.cat(hidden_bias), torch.stack(weights), torch.stack(bias)]


def generator(*names: object) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(0, "probe", *names) >> 1)
