"""Ragged arrays: flat values and offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np


class Ragged(NamedTuple):
    """n sequences in one array: sequence s is values[offsets[s]:offsets[s + 1]]."""

    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_rows(cls, rows: Sequence[np.ndarray], dtype: Any = None) -> Ragged:
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        values = np.concatenate([np.asarray(row) for row in rows]) if rows else np.zeros(0)
        return cls(values.astype(dtype) if dtype is not None else values, offsets)

    @property
    def n_rows(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def row(self, s: int) -> np.ndarray:
        return self.values[self.offsets[s]:self.offsets[s + 1]]

    def block(self, first: int, n: int) -> Ragged:
        """The rows first .. first + n - 1, or those of them that there are."""
        offsets = self.offsets[first:first + n + 1]
        return Ragged(self.values[offsets[0]:offsets[-1]], offsets - offsets[0])

    def rows(self) -> Iterator[np.ndarray]:
        return (self.row(s) for s in range(self.n_rows))
