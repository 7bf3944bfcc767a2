"""What every probe does first: inputs brought to mean 0 and scale 1, as its training inputs have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CHUNK = 16384  # inputs at a time


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
