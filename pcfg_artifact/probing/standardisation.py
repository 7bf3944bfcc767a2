"""What every probe does first: inputs brought to mean 0 and scale 1, as its training inputs have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

CHUNK = 16384  # inputs at a time
IN_CACHE = 1024  # inputs at a time whose sums are wanted in float64: a core's cache holds them


@dataclass(frozen=True)
class Standardisation:
    """x -> (x - mean) / scale, column by column; a constant column becomes 0."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray | torch.Tensor) -> Standardisation:
        """From x (n, D), computed where it is."""
        x = torch.as_tensor(x)
        mean = torch.stack([part.double().sum(dim=0) for part in x.split(IN_CACHE)]).sum(dim=0) / len(x)
        squares = torch.stack([part.double().sub_(mean).square_().sum(dim=0) for part in x.split(IN_CACHE)])
        deviation = (squares.sum(dim=0) / len(x)).sqrt()
        is_constant = deviation <= 1e-6 * mean.abs().clamp(min=1e-6)  # float32 rounding of a constant column
        scale = torch.where(is_constant, 1.0, deviation)
        return cls(mean.float().cpu().numpy(), scale.float().cpu().numpy())

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Standardised x."""
        shifted = np.subtract(x, self.mean)
        return np.divide(shifted, self.scale, out=shifted)


def standardised(x: np.ndarray, device: str, overwrite_x: bool) -> tuple[Standardisation, torch.Tensor]:
    """How training inputs x (n, D) float32 are standardised, and the result on a device; the numbers are a CPU's."""
    inputs = torch.from_numpy(x).to(device, copy=not overwrite_x)
    standardise = Standardisation.of(inputs)
    mean, scale = (torch.from_numpy(values).to(device) for values in (standardise.mean, standardise.scale))
    return standardise, inputs.sub_(mean).div_(scale)
