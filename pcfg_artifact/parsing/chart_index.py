"""Cells: the spans (i, j) of a sentence, 0 <= i < j <= length, in the order that charts and kernels use."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable


@register_jitable
def cell_of(i, j, length):
    """Index of the cell (i, j): by i, then by j.  Plain Python, on numbers or arrays, and inside compiled kernels."""
    return i * length - i * (i - 1) // 2 + (j - i - 1)


@register_jitable
def column_cell_of(i, j):
    """Index of the cell (i, j) where cells run by j, then by falling i: it does not depend on the length."""
    return j * (j - 1) // 2 + (j - 1 - i)


def n_cells(length: int) -> int:
    """Number of cells."""
    return length * (length + 1) // 2


def cell_bounds(length: int) -> tuple[np.ndarray, np.ndarray]:
    """(i, j) of every cell, in order."""
    starts, ends = np.triu_indices(length + 1, 1)
    return starts, ends
