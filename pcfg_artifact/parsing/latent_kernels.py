"""Inside-Outside of a latent-variable PCFG over the entries that pruning left: compiled kernels.

Legend.  Cells and entries as in a Chart: cell (i, j) holds entries offsets[cell]:offsets[cell + 1], each a symbol with
a vector over its states.  A parent, B left child, C right child; x, y, z states of A, B, C.
Vectors of cell (i, j) are divided by exp(scale[cell]), the size of its largest inside value under the PCFG, so that no
length of sentence leaves the range of float64.

Work is cubic in the states once for every rule in a cell, not for every split: a pair (B, C) first gathers
sum over k of alpha(B,i,k) (x) alpha(C,k,j), and every rule A -> B C then multiplies that matrix once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from pcfg_artifact.parsing.chart_index import cell_of

VECTORS = njit(nogil=True, fastmath={"reassoc", "contract"})  # sums in any order, so that loops become vectors
USELESS = -1  # slot of a pair that makes nothing that survives in the cell


class LatentRules(NamedTuple):
    """Binary rules by child pair q: those of q are first[q]:first[q + 1] of `rule` and `parent`.

    pair_of (N, N): q, or -1 where no rule has these children.  tensors: flat, rule r begins at begin[r].
    """

    pair_of: np.ndarray
    first: np.ndarray
    rule: np.ndarray
    parent: np.ndarray
    n_states: np.ndarray
    begin: np.ndarray
    tensors: np.ndarray


class Work(NamedTuple):
    """Room for one cell; memory that no cell uses is never touched.

    entry_of (N,): entry of a symbol in the cell, -1 = none.  Every pair that makes something in the cell has a slot:
    met_in (Q,) is the last cell that met a pair, slot_of (Q,) its slot there, pairs (Q,) the pair of a slot,
    matrices (Q, S * S) the matrix over the states of B and C that passes between parents and children.
    """

    entry_of: np.ndarray
    met_in: np.ndarray
    slot_of: np.ndarray
    pairs: np.ndarray
    matrices: np.ndarray


@njit(nogil=True)
def new_work(rules, n_most):
    n_pairs = len(rules.first) - 1
    return Work(np.full(len(rules.n_states), -1), np.full(n_pairs, -1), np.empty(n_pairs, np.int64),
                np.empty(n_pairs, np.int64), np.empty((n_pairs, n_most * n_most)))


@njit(nogil=True, cache=True)
def inside(rules: LatentRules, length: int, offsets: np.ndarray, symbols: np.ndarray, scale: np.ndarray,
           alpha: np.ndarray) -> None:
    """Fill alpha (E, S), whose entries of width 1 are given and whose others are 0, from narrow to wide spans."""
    work = new_work(rules, alpha.shape[1])
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            visit(rules, i, i + width, length, offsets, symbols, scale, alpha, alpha, work, False)


@njit(nogil=True, cache=True)
def outside(rules: LatentRules, length: int, offsets: np.ndarray, symbols: np.ndarray, scale: np.ndarray,
            alpha: np.ndarray, beta: np.ndarray) -> None:
    """Fill beta (E, S), whose entries of the whole sentence are given and whose others are 0, from wide to narrow."""
    work = new_work(rules, alpha.shape[1])
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            visit(rules, i, i + width, length, offsets, symbols, scale, alpha, beta, work, True)


@njit(nogil=True)
def visit(rules, i, j, length, offsets, symbols, scale, alpha, beta, work, is_outside):
    """All splits of a cell: its alpha from those of the children, or with is_outside their beta from its own."""
    cell, n_slots = cell_of(i, j, length), 0
    if offsets[cell] == offsets[cell + 1]:
        return
    for entry in range(offsets[cell], offsets[cell + 1]):
        work.entry_of[symbols[entry]] = entry
    for k in range(i + 1, j):
        left_cell, right_cell = cell_of(i, k, length), cell_of(k, j, length)
        weight = math.exp(scale[left_cell] + scale[right_cell] - scale[cell])
        for left in range(offsets[left_cell], offsets[left_cell + 1]):
            for right in range(offsets[right_cell], offsets[right_cell + 1]):
                pair = rules.pair_of[symbols[left], symbols[right]]
                if pair < 0:
                    continue
                if work.met_in[pair] != cell:
                    work.met_in[pair], work.slot_of[pair] = cell, USELESS
                    if n_useful(rules, pair, work):
                        work.slot_of[pair], work.pairs[n_slots], work.matrices[n_slots] = n_slots, pair, 0.0
                        if is_outside:
                            from_parents(rules, pair, work.matrices[n_slots], beta, work)
                        n_slots += 1
                slot = work.slot_of[pair]
                if slot == USELESS:
                    continue
                n_left, n_right = rules.n_states[symbols[left]], rules.n_states[symbols[right]]
                if is_outside:
                    to_children(left, right, n_left, n_right, weight, work.matrices[slot], alpha, beta)
                else:
                    from_children(left, right, n_left, n_right, weight, work.matrices[slot], alpha)
    if not is_outside:
        for slot in range(n_slots):
            to_parents(rules, work.pairs[slot], work.matrices[slot], alpha, work)
    for entry in range(offsets[cell], offsets[cell + 1]):
        work.entry_of[symbols[entry]] = -1


@njit(nogil=True)
def n_useful(rules, pair, work):
    """How many rules of a pair make something that survives in the cell."""
    n = 0
    for r in range(rules.first[pair], rules.first[pair + 1]):
        n += work.entry_of[rules.parent[r]] >= 0
    return n


@VECTORS
def from_children(left, right, n_left, n_right, weight, matrix, alpha):
    """M_yz += alpha(B,i,k)_y alpha(C,k,j)_z"""
    for y in range(n_left):
        value = weight * alpha[left, y]
        for z in range(n_right):
            matrix[y * n_right + z] += value * alpha[right, z]


@VECTORS
def to_children(left, right, n_left, n_right, weight, matrix, alpha, beta):
    """beta(B,i,k)_y += M_yz alpha(C,k,j)_z  and  beta(C,k,j)_z += M_yz alpha(B,i,k)_y"""
    for y in range(n_left):
        value, total = weight * alpha[left, y], 0.0
        for z in range(n_right):
            total += matrix[y * n_right + z] * alpha[right, z]
            beta[right, z] += value * matrix[y * n_right + z]
        beta[left, y] += weight * total


@VECTORS
def to_parents(rules, pair, matrix, alpha, work):
    """alpha(A,i,j)_x += T_xyz M_yz, for every rule of a pair"""
    for r in range(rules.first[pair], rules.first[pair + 1]):
        parent = work.entry_of[rules.parent[r]]
        if parent >= 0:
            tensor, n_parent, size = tensor_of(rules, r)
            for x in range(n_parent):
                total = 0.0
                for yz in range(size):
                    total += tensor[x * size + yz] * matrix[yz]
                alpha[parent, x] += total


@VECTORS
def from_parents(rules, pair, matrix, beta, work):
    """M_yz += beta(A,i,j)_x T_xyz, for every rule of a pair"""
    for r in range(rules.first[pair], rules.first[pair + 1]):
        parent = work.entry_of[rules.parent[r]]
        if parent >= 0:
            tensor, n_parent, size = tensor_of(rules, r)
            for x in range(n_parent):
                value = beta[parent, x]
                for yz in range(size):
                    matrix[yz] += value * tensor[x * size + yz]


@njit(inline="always")
def tensor_of(rules, r):
    """The flat tensor of the r-th rule in order of pairs, the states of its parent, and of its children together."""
    rule = rules.rule[r]
    tensor = rules.tensors[rules.begin[rule]:rules.begin[rule + 1]]
    n_parent = rules.n_states[rules.parent[r]]
    return tensor, n_parent, len(tensor) // n_parent
