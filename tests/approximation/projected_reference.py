"""The oracle of the projected engine: the recurrences over named rules, without scaling, written to be read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pcfg_artifact.approximation.transforms import SignRule
from pcfg_artifact.grammar.pcfg import PCFG

Projection = Callable[[int, np.ndarray], np.ndarray]  # (width, vector over the in-terminals) -> W+ W vector


def projected_inside(grammar: PCFG, leaves: np.ndarray, project: Projection, rule: SignRule) -> np.ndarray:
    """alpha (L+1, L+1, N) of a compact grammar: in-terminals at widths >= 2, pre-terminals at width 1."""
    length, n = len(leaves), grammar.n_interminals
    alpha = np.zeros((length + 1, length + 1, grammar.n_nonterminals))
    for i in range(length):
        alpha[i, i + 1, n:] = leaves[i]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            j = i + width
            total = np.zeros(grammar.n_nonterminals)
            for (a, b, c), prob in zip(grammar.binary, grammar.binary_prob, strict=True):
                for k in range(i + 1, j):
                    total[a] += prob * rule.key(alpha[i, k, b]) * alpha[k, j, c]
            alpha[i, j, :n] = rule.stored(project(width, total[:n]))
    return alpha


def projected_outside(grammar: PCFG, alpha: np.ndarray, project: Projection, rule: SignRule) -> np.ndarray:
    """beta (L+1, L+1, N), typed in the same way; the root vector is not projected."""
    length, n = len(alpha) - 1, grammar.n_interminals
    beta = np.zeros_like(alpha)
    typed = slice(n, None) if length == 1 else slice(0, n)
    beta[0, length, typed] = grammar.root[typed]
    for width in range(length - 1, 0, -1):
        for i in range(length - width + 1):
            j = i + width
            total = np.zeros(grammar.n_nonterminals)
            for (a, b, c), prob in zip(grammar.binary, grammar.binary_prob, strict=True):
                for k in range(i):  # the sibling b on the left, over (k, i)
                    total[c] += prob * rule.key(beta[k, j, a]) * alpha[k, i, b]
                for k in range(j + 1, length + 1):  # the sibling c on the right, over (j, k)
                    total[b] += prob * beta[i, k, a] * rule.key(alpha[j, k, c])
            if width == 1:
                beta[i, j, n:] = total[n:]
            else:
                beta[i, j, :n] = rule.stored(project(width, total[:n]))
    return beta
