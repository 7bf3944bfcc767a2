"""The linear probe: logistic regression for labels, least squares for numbers, by scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression

from pcfg_artifact.probing.standardisation import Standardisation


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
    """Options: L-BFGS steps of the logistic regression, and scikit-learn's inverse strength of the L2 penalty."""

    linear_iterations: int = 1000
    inverse_penalty: float = 1.0

    name: ClassVar[str] = "linear"
    has_seeds: ClassVar[bool] = False  # nothing in it is random
    uses_gpu: ClassVar[bool] = False

    def fit(self, x: np.ndarray, targets: np.ndarray, seeds: Sequence[int] = (0,), *, device: str = "cpu",
            overwrite_x: bool = False) -> LinearMap:
        """The linear probe of inputs x (n, D) float32 and targets (n,), labels if integers."""
        standardise = Standardisation.of(x)
        x = standardise(x, out=x if overwrite_x else None)
        if np.issubdtype(targets.dtype, np.integer):
            return self._classifier(standardise, x, targets)
        fitted = LinearRegression().fit(x, targets.astype(np.float32))
        return LinearMap(standardise, fitted.coef_.reshape(-1, 1), np.atleast_1d(fitted.intercept_), None)

    def _classifier(self, standardise: Standardisation, x: np.ndarray, targets: np.ndarray) -> LinearMap:
        classes = np.unique(targets)
        if len(classes) == 1:  # nothing to separate, which scikit-learn refuses
            return LinearMap(standardise, np.zeros((x.shape[1], 1), np.float32), np.zeros(1, np.float32), classes)
        fitted = LogisticRegression(C=self.inverse_penalty, max_iter=self.linear_iterations)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # told by has_converged instead
            fitted.fit(x, targets)
        weights, bias = fitted.coef_.T, fitted.intercept_
        if len(classes) == 2:  # scikit-learn keeps the score of the second class alone
            weights, bias = np.hstack([-weights, weights]), np.concatenate([-bias, bias])
        n_iterations = int(fitted.n_iter_.max())
        return LinearMap(standardise, weights, bias, classes, n_iterations, n_iterations < self.linear_iterations)
