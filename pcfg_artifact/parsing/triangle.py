"""Cells: the spans (i, j) of a sentence, 0 <= i < j <= length, in the one order that every chart and kernel uses."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable


@register_jitable
def cell_of(i, j, length):
    """Index of the cell (i, j): by i, then by j.  Plain Python, on numbers or arrays, and inside compiled kernels."""
    return i * length - i * (i - 1) // 2 + (j - i - 1)


def n_cells(length: int) -> int:
    """Number of cells."""
    return length * (length + 1) // 2


def cell_bounds(length: int) -> tuple[np.ndarray, np.ndarray]:
    """(i, j) of every cell, in order."""
    starts, ends = np.triu_indices(length + 1, 1)
    return starts, ends
