"""A probe that a test adds: the answer of the training input whose first value is nearest.  One class, and its fit."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class Memory:
    keys: np.ndarray
    answers: np.ndarray

    @property
    def facts(self):
        return {"remembered": len(self.keys)}

    def predict(self, x):
        return self.answers[np.searchsorted(self.keys, x[:, 0]).clip(0, len(self.keys) - 1)][None]


@dataclass(frozen=True)
class NeighbourProbe:
    name: ClassVar[str] = "nearest neighbour"  # with a space, as anybody may write it
    has_seeds: ClassVar[bool] = False
    uses_gpu: ClassVar[bool] = False

    def fit(self, x, targets, seeds, *, device="cpu", overwrite_x=False):
        order = np.argsort(x[:, 0])
        return Memory(x[order, 0], targets[order])
