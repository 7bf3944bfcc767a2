"""Constraints on the tree of a sentence: spans that it must have or may not have, with any label or a given one.

In a full binary tree a span is a constituent unless another one crosses it.  So every constraint is a set of chart
entries that no tree may use: a forbidden span is its own cell, a required one is all the cells that cross it, and a
label required there forbids the other labels.  Engines set those entries to 0 in both passes; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import cell_bounds, cell_of, n_cells
from pcfg_artifact.parsing.cpu_kernels.rule_index import INDEX

LabelledSpan = tuple[int, int] | tuple[int, int, str]  # (i, j), or (i, j, symbol)
# True: in the tree; False: not in it.  Three types, because the keys of a Mapping are invariant.
Constraints = Mapping[LabelledSpan, bool] | Mapping[tuple[int, int], bool] | Mapping[tuple[int, int, str], bool]


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

    def by_cell(self, n_nonterminals: int) -> np.ndarray:
        """(cells, N) booleans, of something forbidden."""
        is_forbidden = np.repeat(self.is_whole[:, None], n_nonterminals, axis=1)
        is_forbidden[np.repeat(np.arange(len(self.is_whole)), np.diff(self.first)), self.symbols] = True
        return is_forbidden

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


@register_jitable
def clear(values, impossible, forbidden, cell, begin):
    """values[a] = impossible for the forbidden symbols begin + a of a cell, of the len(values) symbols from begin."""
    if forbidden.is_whole[cell]:
        values[:] = impossible
    for m in range(forbidden.first[cell], forbidden.first[cell + 1]):
        a = np.int64(forbidden.symbols[m]) - begin
        if 0 <= a < len(values):
            values[a] = impossible


def forbidden_entries(grammar: PCFG, length: int, constraints: Constraints) -> Forbidden:
    """What the constraints on a sentence of `length` words forbid.

    Contradictory constraints forbid every tree: the sentence then has probability 0.
    """
    if not constraints:
        return NOTHING
    is_forbidden = np.repeat(forbidden_cells(length, constraints)[:, None], grammar.n_nonterminals, axis=1)
    for span, is_required in constraints.items():
        i, j, *label = span
        if label:
            is_named = np.arange(grammar.n_nonterminals) == _symbol(grammar, span)
            is_forbidden[cell_of(i, j, length)] |= is_named != is_required
    return Forbidden.from_cells(is_forbidden)


def forbidden_cells(length: int, constraints: Constraints) -> np.ndarray:
    """(cells,): spans that no tree may have, whatever their label."""
    starts, ends = cell_bounds(length)
    is_cell = np.zeros(n_cells(length), bool)
    for span, is_required in constraints.items():
        i, j, *label = _checked(length, span, is_required)
        if is_required:
            is_cell |= crosses(starts, ends, i, j)
        elif not label:
            is_cell[cell_of(i, j, length)] = True
    return is_cell


def crosses(starts: np.ndarray, ends: np.ndarray, i: int, j: int) -> np.ndarray:
    """Which spans share words with (i, j) while neither holds the other."""
    return ((starts < i) & (i < ends) & (ends < j)) | ((i < starts) & (starts < j) & (j < ends))


def all_forbidden(grammar: PCFG, lengths: Sequence[int], constraints: Sequence[Constraints] | None
                  ) -> list[Forbidden]:
    """What is forbidden in every sentence; an empty list without constraints, so that nobody pays for them."""
    if constraints is None:
        return []
    if isinstance(constraints, Mapping) or len(constraints) != len(lengths):
        found = "one mapping" if isinstance(constraints, Mapping) else f"{len(constraints)} mappings"
        raise UsageError(f"constraints are {found} for {len(lengths)} sentences; expected a list with one mapping a "
                         f"sentence, {{}} where there is no constraint")
    return [forbidden_entries(grammar, length, one) for length, one in zip(lengths, constraints, strict=True)]


def _checked(length: int, span: LabelledSpan, is_required: bool) -> LabelledSpan:
    """The span, or an error that says what is wrong with a constraint."""
    if not isinstance(span, tuple) or len(span) not in (2, 3):
        raise UsageError(f"the constraint {span!r} is no span; expected (i, j) or (i, j, symbol)")
    i, j = span[:2]
    is_number = all(isinstance(x, int | np.integer) and not isinstance(x, bool) for x in (i, j))
    if not (is_number and 0 <= i < j <= length):
        raise UsageError(f"the constraint on span {span} does not fit a sentence of {length} words; expected "
                         f"fenceposts 0 <= i < j <= {length}")
    if not isinstance(is_required, bool | np.bool_):
        raise UsageError(f"the constraint on span {span} is {is_required!r}; expected True (in the tree) or False")
    return span


def _symbol(grammar: PCFG, span: LabelledSpan) -> int:
    i, j, label = span  # type: ignore[misc]  # a span with a label
    if label not in grammar.nonterminal_index:
        raise UsageError(f"the constraint on span {(i, j)} names {label!r}, which is no symbol of this grammar; it "
                         f"has {grammar.n_nonterminals:,}, such as {', '.join(map(repr, grammar.nonterminals[:3]))}")
    return grammar.nonterminal_index[label]
