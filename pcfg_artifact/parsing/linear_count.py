"""How much work a sentence is: the useful multiply-adds of the passes that the workspace has just seen.

Useful is what no exact algorithm over these rules can leave out: a term of a sum both of whose factors are possible,
and in the outside pass, what a symbol receives from a parent that is reached.  Kernels may do more, on zeros.
Spans of two words, of which there are few, are not counted.
"""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

from pcfg_artifact.parsing.cells import cell_of
from pcfg_artifact.parsing.compiled import CompiledGrammar
from pcfg_artifact.parsing.linear import Workspace, members


@njit(nogil=True)
def n_splits(left, right):
    """Bits that two masks share."""
    n = 0
    for word in range(len(left)):
        common = left[word] & right[word]
        while common != 0:
            n += 1
            common &= common - uint64(1)
    return n


@njit(nogil=True)
def n_edges(edges, t, first, last, symbols):
    """Edges of word t to the entries beside it."""
    n = 0
    for entry in range(first, last):
        b = np.int64(symbols[entry])
        n += edges.first[t, b + 1] - edges.first[t, b]
    return n


@njit(nogil=True, cache=True)
def multiply_adds(grammar: CompiledGrammar, length: int, work: Workspace) -> tuple[int, int]:
    """Useful multiply-adds of the inside and of the (pruned) outside pass over the words of the workspace."""
    inner = grammar.inner
    n_words = length // 64 + 1
    live = np.empty(len(inner.left) + 1, np.uint32)
    is_reached = np.zeros(len(grammar.root_inner), np.bool_)
    n_inside, n_outside = 0, 0
    for i in range(length - 1):
        for j in range(i + 3, length + 1):
            cell, right_side, left_side = cell_of(i, j, length), cell_of(i, j - 1, length), cell_of(i + 1, j, length)
            beside = (n_edges(work.right_edges, j - 1, work.first[right_side], work.last[right_side], work.symbols)
                      + n_edges(work.left_edges, i, work.first[left_side], work.last[left_side], work.symbols))
            n_reached = 0
            for entry in range(work.first[cell], work.last[cell]):
                is_reached[work.symbols[entry]] = work.outside[entry] != 0.0
                n_reached += work.outside[entry] != 0.0
            n_inside += beside
            n_outside += 2 * beside if n_reached else 0
            for n in range(members(work.live_pairs[cell], live) if j - i >= 4 else uint64(0)):
                q = np.int64(live[n])
                left, right = work.left_mask[i, inner.left[q], :n_words], work.right_mask[j, inner.right[q], :n_words]
                splits = n_splits(left, right)
                n_given = 0
                for rule in range(inner.first[q], inner.first[q + 1]):
                    n_given += is_reached[inner.parent[rule]]
                n_inside += splits + np.int64(inner.first[q + 1] - inner.first[q])
                n_outside += n_given + 2 * splits if n_given else 0
            for entry in range(work.first[cell], work.last[cell]):
                is_reached[work.symbols[entry]] = False
    return n_inside, n_outside
