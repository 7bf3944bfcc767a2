"""Constraints on the tree of a sentence: spans that it must have or may not have, with any label or a given one.

In a full binary tree a span is a constituent unless another one crosses it.  So every constraint is a set of chart
entries that no tree may use: a forbidden span is its own cell, a required one is all the cells that cross it, and a
label required there forbids the other labels.  Engines set those entries to 0 in both passes; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.forbidden import NOTHING, Forbidden
from pcfg_artifact.parsing.triangle import cell_bounds, cell_of, n_cells

LabelledSpan = tuple[int, int] | tuple[int, int, str]  # (i, j), or (i, j, symbol)
# True: in the tree; False: not in it.  Three types, because the keys of a Mapping are invariant.
Constraints = Mapping[LabelledSpan, bool] | Mapping[tuple[int, int], bool] | Mapping[tuple[int, int, str], bool]


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
