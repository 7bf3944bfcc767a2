"""The axes along which inputs vary independently of one another: in them least squares is one division."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pcfg_artifact.probing.standardisation import CHUNK


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
        products = sum(((chunk - self.mean).T @ wanted for chunk, wanted in parts), torch.zeros_like(self.mean))
        has_variance = self.variances > self.variances.max() * len(self.variances) * torch.finfo(torch.float64).eps
        along = torch.where(has_variance, (self.axes.T @ products) / len(x) / self.variances, 0.0)
        weights = self.axes @ along
        return weights, mean - self.mean @ weights
