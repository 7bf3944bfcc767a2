"""Least squares and logistic regression along the principal axes of the inputs.

In these coordinates least squares is one division, and the loss of a logistic regression is nearly round.  At first
every example has the probabilities f of the classes, and the Hessian of the loss has, for class c and along principal
axis d, the curvature f_c (1 - f_c) variance_d + penalty.  Weights are measured in units of its inverse root: hidden
states vary a thousand times more along some directions than along others, and plain L-BFGS crawls there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from pcfg_artifact.probing.standardisation import CHUNK

PART = 4096  # examples at a time: scores and inputs stay in the cache of a core
GPU_PART = 1 << 18  # a GPU has no such cache, and would wait for the CPU between small parts
TOLERANCE = 1e-6  # nats an example
MEMORY = 20  # steps that L-BFGS remembers


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


@dataclass(frozen=True)
class LogisticFit:
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
    problem = _Problem(x, labels, scale, penalty)
    point = first.requires_grad_()
    optimizer = torch.optim.LBFGS([point], max_iter=max_iterations, max_eval=2 * max_iterations, tolerance_grad=0.0,
                                  tolerance_change=tolerance, history_size=MEMORY, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        loss, point.grad = problem.loss_and_gradient(point.detach())
        return loss

    optimizer.step(closure)
    state = optimizer.state[point]
    found = point.detach() * scale
    return LogisticFit(axes.axes @ found[:, :-1].T, found[:, -1], state["n_iter"], state["n_iter"] < max_iterations)


@dataclass(frozen=True)
class _Problem:
    x: torch.Tensor  # (n, D) along the principal axes
    labels: torch.Tensor  # (n,)
    scale: torch.Tensor  # (C, D+1)
    penalty: float

    def loss_and_gradient(self, point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both at weights and bias (C, D+1) in units of scale."""
        weights = point * self.scale
        gradient = torch.zeros_like(weights)
        loss = weights.new_zeros(())
        inner, bias = weights[:, :-1].to(self.x.dtype), weights[:, -1].to(self.x.dtype)
        for x, labels in self._parts():
            log_prob = torch.log_softmax(functional.linear(x, inner, bias), dim=1)
            loss -= log_prob.gather(1, labels).sum(dtype=torch.float64)
            residuals = log_prob.exp_()
            residuals.scatter_add_(1, labels, residuals.new_full((1, 1), -1.0).expand_as(labels))
            gradient[:, :-1] += residuals.T @ x
            gradient[:, -1] += residuals.sum(dim=0)
        n = len(self.x)
        loss = loss / n + self.penalty / 2 * weights[:, :-1].square().sum()
        gradient /= n
        gradient[:, :-1] += self.penalty * weights[:, :-1]
        return loss, gradient * self.scale

    def _parts(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        part = GPU_PART if self.x.device.type == "cuda" else PART
        return zip(self.x.split(part), self.labels[:, None].split(part), strict=True)
