"""Rule probabilities as the matrices of heads: one role of a rule names the head, one the row, one the column."""

from __future__ import annotations

import numpy as np

from pcfg_artifact.constructions.weights import HeadMatrices
from pcfg_artifact.grammar.pcfg import PCFG

ROLES = {"parent": 0, "left": 1, "right": 2}


def rule_matrices(grammar: PCFG, *, head: tuple[str, np.ndarray], row: tuple[str, np.ndarray],
                  column: tuple[str, np.ndarray]) -> HeadMatrices:
    """Pr[parent -> left right] with `head`, `row` and `column` each a role and the symbols (ids) that it may be.

    For example head=("parent", I), row=("left", N), column=("right", N) is P_A for every in-terminal A.
    Rules with a symbol that is not listed in its role are left out.
    """
    kept = np.ones(len(grammar.binary), bool)
    index = []
    for role, symbols in (head, row, column):
        local = np.full(grammar.n_nonterminals, -1)
        local[symbols] = np.arange(len(symbols))
        index.append(local[grammar.binary[:, ROLES[role]]])
        kept &= index[-1] >= 0
    heads, rows, columns = (ids[kept] for ids in index)
    return HeadMatrices(len(head[1]), len(row[1]), len(column[1]), heads, rows, columns, grammar.binary_prob[kept])


def inside_matrices(grammar: PCFG, parents: np.ndarray, left: np.ndarray, right: np.ndarray) -> HeadMatrices:
    """P_A: row = left child B, column = right child C."""
    return rule_matrices(grammar, head=("parent", parents), row=("left", left), column=("right", right))


def left_sibling_matrices(grammar: PCFG, children: np.ndarray, parents: np.ndarray, left: np.ndarray) -> HeadMatrices:
    """For A a right child: Pr[B -> C A], row = parent B, column = its left sibling C."""
    return rule_matrices(grammar, head=("right", children), row=("parent", parents), column=("left", left))


def right_sibling_matrices(grammar: PCFG, children: np.ndarray, right: np.ndarray, parents: np.ndarray) -> HeadMatrices:
    """For A a left child: Pr[B -> A C], row = its right sibling C, column = parent B."""
    return rule_matrices(grammar, head=("left", children), row=("right", right), column=("parent", parents))


def outside_symbols(grammar: PCFG, typed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Symbols whose outside probabilities are computed: on spans of two words and more, and on single words."""
    everything = np.arange(grammar.n_nonterminals)
    if not typed:
        return everything, everything
    return everything[:grammar.n_interminals], everything[grammar.n_interminals:]
