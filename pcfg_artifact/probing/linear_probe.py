"""The linear probe: logistic regression for labels, least squares for numbers, both along the principal axes of the
inputs; on the CPU or a GPU.

In these coordinates least squares is one division, and the loss of a logistic regression is nearly round.  At first
every example has the probabilities f of the classes, and the Hessian of the loss has, for class c and along principal
axis d, the curvature f_c (1 - f_c) variance_d + penalty.  Weights are measured in units of its inverse root: hidden
states vary a thousand times more along some directions than along others, and plain L-BFGS crawls there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from pcfg_artifact.probing.standardisation import CHUNK, Standardisation, standardised

PART = 4096  # examples at a time: scores and inputs stay in the cache of a core
GPU_PART = 1 << 18  # a GPU has no such cache, and would wait for the CPU between small parts
TOLERANCE = 1e-6  # nats an example
MEMORY = 20  # steps that L-BFGS remembers


@dataclass(frozen=True)
class LinearMap:
    """weights (D, C) and bias (C,) on standardised inputs, with what the fit reports about itself."""

    standardise: Standardisation
    weights: np.ndarray
    bias: np.ndarray
    classes: np.ndarray | None  # (C,) label of each output; None for a regression
    n_iterations: int = 0
    has_converged: bool = True

    @property
    def facts(self) -> dict[str, float | bool | None]:
        return {"iterations": self.n_iterations, "has_converged": self.has_converged}

    def scores(self, x: np.ndarray) -> np.ndarray:
        """(n, C)"""
        return self.standardise(x) @ self.weights + self.bias

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(1, n) labels, or (1, n) numbers for a regression."""
        scores = self.scores(x)
        return (scores[:, 0] if self.classes is None else self.classes[scores.argmax(axis=1)])[None]


@dataclass(frozen=True)
class LinearProbe:
    """Options: steps of the logistic regression at most, and the inverse strength of its L2 penalty, as scikit-learn
    defines it: of the summed loss, and with two classes of the difference of their weights."""

    linear_iterations: int = 1000
    inverse_penalty: float = 1.0

    name: ClassVar[str] = "linear"
    has_seeds: ClassVar[bool] = False  # nothing in it is random
    uses_gpu: ClassVar[bool] = True

    def fit(self, x: np.ndarray, targets: np.ndarray, seeds: Sequence[int] = (0,), *, device: str = "cpu",
            overwrite_x: bool = False) -> LinearMap:
        """The linear probe of inputs x (n, D) float32 and targets (n,), labels if integers."""
        standardise, inputs = standardised(x, device, overwrite_x)
        if np.issubdtype(targets.dtype, np.integer):
            return self._classifier(standardise, inputs, targets)
        numbers = torch.from_numpy(targets.astype(np.float64)).to(device)
        weights, bias = PrincipalAxes.of(inputs).least_squares(inputs, numbers)
        return LinearMap(standardise, weights[:, None].float().cpu().numpy(), bias[None].float().cpu().numpy(), None)

    def _classifier(self, standardise: Standardisation, inputs: torch.Tensor, targets: np.ndarray) -> LinearMap:
        """inputs are overwritten."""
        classes, labels = np.unique(targets, return_inverse=True)
        if len(classes) == 1:  # nothing to separate
            return LinearMap(standardise, np.zeros((inputs.shape[1], 1), np.float32), np.zeros(1, np.float32), classes)
        penalty = (2.0 if len(classes) == 2 else 1.0) / (self.inverse_penalty * len(targets))
        fit = fit_logistic(inputs, torch.from_numpy(labels).to(inputs.device), len(classes), penalty=penalty,
                           max_iterations=self.linear_iterations)
        return LinearMap(standardise, fit.weights.float().cpu().numpy(), fit.bias.float().cpu().numpy(), classes,
                         fit.n_iterations, fit.has_converged)


@dataclass(frozen=True)
class PrincipalAxes:
    """Of inputs x (n, D): mean (D,), variances (D,) along the axes, and axes (D, D), one a column; all float64."""

    mean: torch.Tensor
    variances: torch.Tensor
    axes: torch.Tensor

    @classmethod
    def of(cls, x: torch.Tensor) -> PrincipalAxes:
        """In float64, since forming x^T x squares the condition of x."""
        mean = x.mean(dim=0, dtype=torch.float64)
        moments = torch.zeros((x.shape[1], x.shape[1]), dtype=torch.float64, device=x.device)
        for chunk in x.split(CHUNK):
            centred = chunk - mean
            moments.addmm_(centred.T, centred)
        variances, axes = torch.linalg.eigh(moments / len(x))
        return cls(mean, variances.clamp(min=0), axes)

    def rotate(self, x: torch.Tensor) -> None:
        """Bring x (n, D) into these coordinates, in place."""
        axes = self.axes.to(x.dtype)
        for chunk in x.split(CHUNK):
            chunk.copy_(chunk @ axes)

    def least_squares(self, x: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights (D,) and bias () of the regression of targets (n,) on x.

        Among equally good weights the smallest: directions without variance, up to rounding, get none.
        """
        mean = targets.mean()
        parts = zip(x.split(CHUNK), (targets - mean).split(CHUNK), strict=True)
        products = sum(((chunk - self.mean).T @ centred for chunk, centred in parts), torch.zeros_like(self.mean))
        has_variance = self.variances > self.variances.max() * len(self.variances) * torch.finfo(torch.float64).eps
        along = torch.where(has_variance, (self.axes.T @ products) / len(x) / self.variances, 0.0)
        weights = self.axes @ along
        return weights, mean - self.mean @ weights


class LogisticFit(NamedTuple):
    """weights (D, C) and bias (C,) in the coordinates of the inputs, float64."""

    weights: torch.Tensor
    bias: torch.Tensor
    n_iterations: int
    has_converged: bool


def fit_logistic(x: torch.Tensor, labels: torch.Tensor, n_classes: int, *, penalty: float, max_iterations: int,
                 tolerance: float = TOLERANCE) -> LogisticFit:
    """The minimum of mean cross entropy + penalty / 2 |weights|^2; x (n, D) float32 is overwritten, labels (n,).

    It has converged when a step lowers the loss, in nats an example, by less than the tolerance.
    """
    axes = PrincipalAxes.of(x)
    axes.rotate(x)
    shares = torch.bincount(labels, minlength=n_classes).double() / len(labels)
    spread = shares * (1 - shares)
    curvature = torch.cat([spread[:, None] * axes.variances + penalty, spread[:, None]], dim=1)  # the bias is last
    scale = curvature.rsqrt()
    first = torch.zeros_like(scale)
    first[:, -1] = shares.log() / scale[:, -1]
    point = first.requires_grad_()
    optimizer = torch.optim.LBFGS([point], max_iter=max_iterations, max_eval=2 * max_iterations, tolerance_grad=0.0,
                                  tolerance_change=tolerance, history_size=MEMORY, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        loss, gradient = loss_and_gradient(x, labels, point.detach() * scale, penalty)
        point.grad = gradient * scale
        return loss

    optimizer.step(closure)
    state = optimizer.state[point]
    found = point.detach() * scale
    return LogisticFit(axes.axes @ found[:, :-1].T, found[:, -1], state["n_iter"], state["n_iter"] < max_iterations)


def loss_and_gradient(x: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor, penalty: float
                      ) -> tuple[torch.Tensor, torch.Tensor]:
    """Of a logistic regression at weights and bias (C, D+1)."""
    gradient = torch.zeros_like(weights)
    loss = weights.new_zeros(())
    inner, bias = weights[:, :-1].to(x.dtype), weights[:, -1].to(x.dtype)
    part = GPU_PART if x.device.type == "cuda" else PART
    for some, classes in zip(x.split(part), labels[:, None].split(part), strict=True):
        log_prob = torch.log_softmax(functional.linear(some, inner, bias), dim=1)
        loss -= log_prob.gather(1, classes).sum(dtype=torch.float64)
        residuals = log_prob.exp_()
        residuals.scatter_add_(1, classes, residuals.new_full((1, 1), -1.0).expand_as(classes))
        gradient[:, :-1] += residuals.T @ some
        gradient[:, -1] += residuals.sum(dim=0)
    loss = loss / len(x) + penalty / 2 * weights[:, :-1].square().sum()
    gradient /= len(x)
    gradient[:, :-1] += penalty * weights[:, :-1]
    return loss, gradient
