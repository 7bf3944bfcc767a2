"""The two probes of the paper as values: a linear map, and a net with one hidden layer; both may carry several outputs.

A probe standardises its inputs with the mean and scale of its training inputs, then maps them to one score per class
(parse trees) or to one number (marginals).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

CHUNK = 16384  # inputs scored at a time


@dataclass(frozen=True)
class Standardisation:
    """x -> (x - mean) / scale, column by column; a constant column becomes 0."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> Standardisation:
        mean = x.mean(axis=0, dtype=np.float64)
        chunks = (x[start:start + CHUNK] for start in range(0, len(x), CHUNK))
        deviation = np.sqrt(sum(np.square(chunk - mean).sum(axis=0) for chunk in chunks) / len(x))
        is_constant = deviation <= 1e-6 * np.maximum(np.abs(mean), 1e-6)  # float32 rounding of a constant column
        return cls(mean.astype(np.float32), np.where(is_constant, 1.0, deviation).astype(np.float32))

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Standardised x; with out=x in place."""
        shifted = np.subtract(x, self.mean, out=out)
        return np.divide(shifted, self.scale, out=shifted)


@dataclass(frozen=True)
class LinearProbe:
    """weights (D, C) and bias (C,) on standardised inputs, with what the fit reports about itself."""

    standardise: Standardisation
    weights: np.ndarray
    bias: np.ndarray
    classes: np.ndarray | None  # (C,) label of each output; None for a regression
    n_iterations: int
    has_converged: bool

    def scores(self, x: np.ndarray) -> np.ndarray:
        """(n, C)"""
        return self.standardise(x) @ self.weights + self.bias

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(n,) labels, or (n,) numbers for a regression."""
        scores = self.scores(x)
        return scores[:, 0] if self.classes is None else self.classes[scores.argmax(axis=1)]


@dataclass(frozen=True)
class TwoLayerProbes:
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


def network_scores(x: torch.Tensor, hidden_weights: torch.Tensor, hidden_bias: torch.Tensor, weights: torch.Tensor,
                   bias: torch.Tensor) -> torch.Tensor:
    """(S, n, C): the hidden layers of all nets in one product, since they read the same inputs; then one per net."""
    n_nets, n_hidden, _ = weights.shape
    hidden = torch.relu(torch.addmm(hidden_bias, x, hidden_weights)).view(len(x), n_nets, n_hidden)
    return torch.baddbmm(bias, hidden.transpose(0, 1), weights)
