"""The linear probe: logistic regression for labels, least squares for numbers; on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from pcfg_artifact.probing.regression import PrincipalAxes, fit_logistic
from pcfg_artifact.probing.standardisation import Standardisation, standardised


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
        return LinearMap(standardise, as_float32(weights[:, None]), as_float32(bias[None]), None)

    def _classifier(self, standardise: Standardisation, inputs: torch.Tensor, targets: np.ndarray) -> LinearMap:
        """inputs are overwritten."""
        classes, labels = np.unique(targets, return_inverse=True)
        if len(classes) == 1:  # nothing to separate
            return LinearMap(standardise, np.zeros((inputs.shape[1], 1), np.float32), np.zeros(1, np.float32), classes)
        penalty = (2.0 if len(classes) == 2 else 1.0) / (self.inverse_penalty * len(targets))
        fit = fit_logistic(inputs, torch.from_numpy(labels).to(inputs.device), len(classes), penalty=penalty,
                           max_iterations=self.linear_iterations)
        return LinearMap(standardise, as_float32(fit.weights), as_float32(fit.bias), classes, fit.n_iterations,
                         fit.has_converged)


def as_float32(values: torch.Tensor) -> np.ndarray:
    return values.float().cpu().numpy()
