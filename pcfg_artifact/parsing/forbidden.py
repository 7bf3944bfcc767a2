"""Forbidden entries: which (A, i, j) of one sentence's chart may be in no tree, as flat arrays that kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from pcfg_artifact.errors import UsageError
from pcfg_artifact.parsing.compiled import INDEX
from pcfg_artifact.parsing.triangle import cell_of


class Forbidden(NamedTuple):
    """Entries whose inside and outside value is 0, so that no tree has them.

    Cells in the order of `cell_bounds`: in cell c the symbols[first[c]:first[c + 1]], sorted and numbered as in the
    grammar, are forbidden; where is_whole[c], all of them are, and none is listed.  first (cells + 1,); of length 0
    where nothing is forbidden (NOTHING).
    """

    first: np.ndarray
    symbols: np.ndarray
    is_whole: np.ndarray

    @classmethod
    def from_cells(cls, is_forbidden: np.ndarray) -> Forbidden:
        """From (cells, N) booleans."""
        is_whole = np.logical_and.reduce(is_forbidden, axis=1)
        if not is_forbidden.any():
            return NOTHING
        cells, symbols = np.nonzero(is_forbidden & ~is_whole[:, None])
        first = np.searchsorted(cells, np.arange(len(is_forbidden) + 1))
        return cls(first.astype(np.int64), symbols.astype(INDEX), is_whole)

    @property
    def is_empty(self) -> bool:
        return len(self.first) == 0

    def allowed_leaves(self, leaves: np.ndarray, n_interminals: int) -> np.ndarray:
        """Leaves (L, P), with 0 where a pre-terminal is forbidden over its word."""
        if self.is_empty:
            return leaves
        allowed = np.array(leaves, np.float64)
        for t, of_word in enumerate(allowed):
            clear(of_word, 0.0, self, cell_of(t, t + 1, len(leaves)), n_interminals)
        return allowed


NOTHING = Forbidden(np.zeros(0, np.int64), np.zeros(0, INDEX), np.zeros(0, np.bool_))


def each_forbidden(forbidden: Sequence[Forbidden], n_sentences: int) -> Sequence[Forbidden]:
    """One for each sentence; none given: nothing is forbidden in any."""
    return forbidden if len(forbidden) else [NOTHING] * n_sentences


def refuse_forbidden(forbidden: Sequence[Forbidden], backend: str) -> None:
    """For engines that cannot leave entries out."""
    if any(not one.is_empty for one in forbidden):
        raise UsageError(f"the engine {backend!r} takes no forbidden entries; use backend='cpu'")


@register_jitable
def clear(values, impossible, forbidden, cell, begin):
    """values[a] = impossible for the forbidden symbols begin + a of a cell, of the len(values) symbols from begin."""
    if forbidden.is_whole[cell]:
        values[:] = impossible
    for m in range(forbidden.first[cell], forbidden.first[cell + 1]):
        a = np.int64(forbidden.symbols[m]) - begin
        if 0 <= a < len(values):
            values[a] = impossible
