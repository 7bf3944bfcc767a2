"""How much work a sentence is: the useful multiply-adds of its chart with pruned outside, by the engine `cpu`.

Useful is what no exact algorithm over these rules can leave out: a term of a sum both of whose factors are possible,
and in the outside pass, what a symbol receives from a parent that is reached.  Kernels may do more, on zeros.
Spans of two words, of which there are few, are not counted.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pcfg_artifact.parsing.chart_index import cell_of
from pcfg_artifact.parsing.constraints import NOTHING
from pcfg_artifact.parsing.cpu import CpuEngine
from pcfg_artifact.parsing.cpu_kernels.workspace import NO_ROW, KernelArgs


def multiply_adds(engine: CpuEngine, leaves: np.ndarray) -> int:
    """Of one sentence by its leaves; 0 where the chart is done in log space, or with full outside."""
    def count(args: KernelArgs) -> int:
        is_known = not engine.is_full and engine.linear_chart(leaves, args, NOTHING) is not None
        return sum(of_passes(args, len(leaves))) if is_known else 0

    return engine.with_args(len(leaves), count)


@njit(nogil=True)
def n_edges(edges, t, first, last, symbols):
    """Edges of word t to the entries beside it."""
    n = 0
    for entry in range(first, last):
        b = np.int64(symbols[entry])
        n += edges.last[t, b] - edges.first[t, b]
    return n


@njit(nogil=True, cache=True)
def of_passes(args: KernelArgs, length: int) -> tuple[int, int]:
    """Useful multiply-adds of the inside and of the (pruned) outside pass over the sentence last seen."""
    grammar, work = args.grammar, args.work
    pairs, n_pairs = grammar.left_pairs, len(grammar.left_pairs.right)
    is_reached = np.zeros((length + 1, len(grammar.root_inner)), np.bool_)  # of the spans that start at i, by end
    n_inside, n_outside = 0, 0
    for i in range(length - 1):
        splits = np.zeros((n_pairs, length + 1), np.int64)
        is_reached[:] = False
        for j in range(i + 2, length + 1):
            cell, right_side, left_side = cell_of(i, j, length), cell_of(i, j - 1, length), cell_of(i + 1, j, length)
            n_reached = 0
            for entry in range(work.first[cell], work.last[cell]):
                b = np.int64(work.symbols[entry])
                is_reached[j, b] = work.outside[entry] != 0.0
                n_reached += work.outside[entry] != 0.0
                for q in range(pairs.first[b], pairs.first[b + 1]):
                    row = np.int64(work.row_of[j, pairs.right[q]])
                    for right_end in range(j + 2, length + 1 if row != NO_ROW else 0):
                        splits[q, right_end] += work.alpha[row + right_end] != 0.0
            if j - i > 2:
                beside = (n_edges(work.right_edges, j - 1, work.first[right_side], work.last[right_side], work.symbols)
                          + n_edges(work.left_edges, i, work.first[left_side], work.last[left_side], work.symbols))
                n_inside += beside
                n_outside += 2 * beside if n_reached else 0
        for q in range(n_pairs):
            for j in range(i + 4, length + 1):
                if splits[q, j] > 0:
                    n_given = 0
                    for rule in range(pairs.rules[q], pairs.rules[q + 1]):
                        n_given += is_reached[j, pairs.parent[rule]]
                    n_inside += splits[q, j] + np.int64(pairs.rules[q + 1] - pairs.rules[q])
                    n_outside += n_given + 2 * splits[q, j] if n_given else 0
    return n_inside, n_outside
