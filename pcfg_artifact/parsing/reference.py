"""The oracle: Inside-Outside of one sentence in log space, written like the recurrence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import cell_bounds
from pcfg_artifact.parsing.charts import BestTree, Chart, log_of
from pcfg_artifact.parsing.constraints import Forbidden, each_forbidden
from pcfg_artifact.parsing.engine import EngineOptions


def inside(grammar: PCFG, leaves: np.ndarray, is_forbidden: np.ndarray | None = None) -> np.ndarray:
    """log alpha(A, i, j) of shape (L+1, L+1, N): pre-terminals at width 1, in-terminals above, -inf elsewhere.

    leaves: (L, P) weight with which each pre-terminal yields each word.  is_forbidden (L+1, L+1, N): in no tree.
    """
    length = len(leaves)
    log_inside = np.full((length + 1, length + 1, grammar.n_nonterminals), -np.inf)
    for i in range(length):
        log_inside[i, i + 1, grammar.n_interminals:] = log_of(leaves[i])
    if is_forbidden is not None:
        log_inside[is_forbidden] = -np.inf
    if not len(grammar.binary):
        return log_inside
    parent, left, right = grammar.binary.T
    log_prob = log_of(grammar.binary_prob)
    heads, first = np.unique(parent, return_index=True)  # rules are sorted by parent
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            j = i + width
            # alpha(A,i,j) = sum over k, B, C of P(A -> B C) alpha(B,i,k) alpha(C,k,j),  i < k < j
            terms_KR = log_inside[i, i + 1:j][:, left] + log_inside[i + 1:j, j][:, right] + log_prob
            log_inside[i, j, heads] = np.logaddexp.reduceat(np.logaddexp.reduce(terms_KR, axis=0), first)
            if is_forbidden is not None:
                log_inside[i, j, is_forbidden[i, j]] = -np.inf
    return log_inside


def outside(grammar: PCFG, log_inside: np.ndarray, is_forbidden: np.ndarray | None = None) -> np.ndarray:
    """log beta(A, i, j) of shape (L+1, L+1, N), typed like the inside chart; beta(A, 0, L) = root(A).

    A forbidden entry has no outside either: what is below it would take it from there.
    """
    length = len(log_inside) - 1
    n_interminals = grammar.n_interminals
    log_outside = np.full_like(log_inside, -np.inf)
    if length == 0:
        return log_outside
    typed = slice(n_interminals, None) if length == 1 else slice(0, n_interminals)
    log_outside[0, length, typed] = log_of(grammar.root[typed])
    parent, left, right = grammar.binary.T
    log_prob = log_of(grammar.binary_prob)
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            j = i + width
            if is_forbidden is not None:
                log_outside[i, j, is_forbidden[i, j]] = -np.inf
            for k in range(i + 1, j):
                # beta(B,i,k) += P(A -> B C) beta(A,i,j) alpha(C,k,j), and the same for C with alpha(B,i,k)
                from_parent_R = log_prob + log_outside[i, j, parent]
                is_typed = (left >= n_interminals) == (k - i == 1)
                np.logaddexp.at(log_outside[i, k], left[is_typed],
                                (from_parent_R + log_inside[k, j, right])[is_typed])
                is_typed = (right >= n_interminals) == (j - k == 1)
                np.logaddexp.at(log_outside[k, j], right[is_typed],
                                (from_parent_R + log_inside[i, k, left])[is_typed])
    if is_forbidden is not None:
        log_outside[is_forbidden] = -np.inf
    return log_outside


def log_probability(grammar: PCFG, log_inside: np.ndarray) -> float:
    """log Z = log of the sum over A of root(A) alpha(A, 0, L); -inf for the empty sentence."""
    length = len(log_inside) - 1
    return float(np.logaddexp.reduce(log_of(grammar.root) + log_inside[0, length])) if length else -np.inf


def best_tree(grammar: PCFG, leaves: np.ndarray, is_forbidden: np.ndarray | None = None
              ) -> tuple[float, list[tuple[int, int, int]]] | None:
    """Log probability and nodes (symbol, i, j), parents first, of the most probable tree; None if there is none."""
    length = len(leaves)
    best: dict[tuple[int, int, int], tuple[float, list[tuple[int, int, int]]]] = {}  # node -> log weight, children
    for i in range(length):
        for p in np.flatnonzero(leaves[i]):
            if is_forbidden is not None and is_forbidden[i, i + 1, p + grammar.n_interminals]:
                continue
            best[int(p) + grammar.n_interminals, i, i + 1] = float(np.log(leaves[i, p])), []
    rules = [(int(a), int(b), int(c), float(np.log(prob)))
             for (a, b, c), prob in zip(grammar.binary, grammar.binary_prob, strict=True) if prob > 0]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            for a, b, c, log_prob in rules:
                if is_forbidden is not None and is_forbidden[i, i + width, a]:
                    continue
                for k in range(i + 1, i + width):
                    left, right = (b, i, k), (c, k, i + width)
                    if left in best and right in best:
                        value = log_prob + best[left][0] + best[right][0]
                        if value > best.get((a, i, i + width), (-np.inf, []))[0]:
                            best[a, i, i + width] = value, [left, right]
    roots = [(a, 0, length) for a in np.flatnonzero(grammar.root).tolist() if (a, 0, length) in best]
    if not roots:
        return None
    top = max(roots, key=lambda node: np.log(grammar.root[node[0]]) + best[node][0])
    todo, nodes = [top], []
    while todo:
        nodes.append(todo.pop())
        todo += reversed(best[nodes[-1]][1])
    return float(np.log(grammar.root[top[0]]) + best[top][0]), nodes


class ReferenceEngine:
    """These functions as the engine `reference`, one sentence after the other."""

    def __init__(self, grammar: PCFG, options: EngineOptions) -> None:
        self.grammar, self.is_full = grammar, options.is_full

    def charts(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[Chart]:
        return (self._chart(rows, is_forbidden) for rows, is_forbidden in self._each(leaves, forbidden))

    def log_probs(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[float]:
        return (log_probability(self.grammar, inside(self.grammar, rows, is_forbidden))
                for rows, is_forbidden in self._each(leaves, forbidden))

    def best_trees(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[BestTree]:
        for rows, is_forbidden in self._each(leaves, forbidden):
            found = best_tree(self.grammar, rows, is_forbidden)
            yield BestTree.none() if found is None else BestTree(found[0], np.array(found[1]))

    def _each(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden]
              ) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """The leaves of every sentence and, where anything is forbidden, what: (L+1, L+1, N)."""
        for rows, one in zip(leaves, each_forbidden(forbidden, len(leaves)), strict=True):
            square = np.zeros((len(rows) + 1, len(rows) + 1, self.grammar.n_nonterminals), bool)
            if not one.is_empty:
                square[cell_bounds(len(rows))] = one.by_cell(self.grammar.n_nonterminals)
            yield rows, None if one.is_empty else square

    def _chart(self, leaves: np.ndarray, is_forbidden: np.ndarray | None) -> Chart:
        log_inside = inside(self.grammar, leaves, is_forbidden)
        log_outside = outside(self.grammar, log_inside, is_forbidden)
        if not self.is_full:
            log_outside[log_inside == -np.inf] = -np.inf
        return Chart.from_logs(log_probability(self.grammar, log_inside), log_inside, log_outside)
