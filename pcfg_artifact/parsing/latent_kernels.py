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
    """Room for one cell.  Item: two entries that are children of one rule or more, with the weight of their split.

    entry_of (N,): entry of a symbol in the cell, -1 = none.  Every pair that makes something in the cell has a slot:
    met_in (Q,) is the last cell that met a pair, slot_of (Q,) its slot there, pairs (slots,) the pair of a slot,
    matrices (slots, S * S) the matrix over the states of B and C that it gathers.
    """

    entry_of: np.ndarray
    met_in: np.ndarray
    slot_of: np.ndarray
    pairs: np.ndarray
    matrices: np.ndarray
    item_slot: np.ndarray
    item_left: np.ndarray
    item_right: np.ndarray
    item_weight: np.ndarray


@njit(nogil=True, cache=True)
def new_work(rules: LatentRules, length: int, offsets: np.ndarray, n_most: int) -> Work:
    """Room for the largest cell of a sentence; memory that no cell uses is never touched."""
    n_items = 1
    for i in range(length):
        for j in range(i + 2, length + 1):
            n = 0
            for k in range(i + 1, j):
                left, right = cell_of(i, k, length), cell_of(k, j, length)
                n += (offsets[left + 1] - offsets[left]) * (offsets[right + 1] - offsets[right])
            n_items = max(n_items, n)
    n_pairs = len(rules.first) - 1
    n_slots = min(n_items, n_pairs)
    return Work(np.full(len(rules.n_states), -1), np.full(n_pairs, -1), np.empty(n_pairs, np.int64),
                np.empty(n_slots, np.int64), np.empty((n_slots, n_most * n_most)), np.empty(n_items, np.int64),
                np.empty(n_items, np.int64), np.empty(n_items, np.int64), np.empty(n_items))


@njit(nogil=True, cache=True)
def enter_cell(rules, length, offsets, symbols, scale, i, j, work):
    """Find the slots and items of the cell (i, j); returns how many there are of each."""
    cell = cell_of(i, j, length)
    for entry in range(offsets[cell], offsets[cell + 1]):
        work.entry_of[symbols[entry]] = entry
    n_slots, n_items = 0, 0
    if offsets[cell] == offsets[cell + 1]:
        return n_slots, n_items
    for k in range(i + 1, j):
        left_cell, right_cell = cell_of(i, k, length), cell_of(k, j, length)
        if offsets[left_cell] == offsets[left_cell + 1] or offsets[right_cell] == offsets[right_cell + 1]:
            continue
        weight = math.exp(scale[left_cell] + scale[right_cell] - scale[cell])
        for left in range(offsets[left_cell], offsets[left_cell + 1]):
            for right in range(offsets[right_cell], offsets[right_cell + 1]):
                pair = rules.pair_of[symbols[left], symbols[right]]
                if pair < 0:
                    continue
                if work.met_in[pair] != cell:
                    work.met_in[pair] = cell
                    work.slot_of[pair] = USELESS
                    for r in range(rules.first[pair], rules.first[pair + 1]):
                        if work.entry_of[rules.parent[r]] >= 0:
                            work.slot_of[pair] = n_slots
                            work.pairs[n_slots] = pair
                            n_slots += 1
                            break
                if work.slot_of[pair] != USELESS:
                    work.item_slot[n_items] = work.slot_of[pair]
                    work.item_left[n_items] = left
                    work.item_right[n_items] = right
                    work.item_weight[n_items] = weight
                    n_items += 1
    return n_slots, n_items


@njit(nogil=True, cache=True)
def leave_cell(offsets, symbols, cell, work):
    for entry in range(offsets[cell], offsets[cell + 1]):
        work.entry_of[symbols[entry]] = -1


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def inside(rules: LatentRules, length: int, offsets: np.ndarray, symbols: np.ndarray, scale: np.ndarray,
           alpha: np.ndarray) -> None:
    """Fill alpha (E, S), whose entries of width 1 are given and whose others are 0, from narrow to wide spans."""
    n_states = rules.n_states
    work = new_work(rules, length, offsets, alpha.shape[1])
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            n_slots, n_items = enter_cell(rules, length, offsets, symbols, scale, i, i + width, work)
            work.matrices[:n_slots] = 0.0
            for item in range(n_items):
                # M_yz += alpha(B,i,k)_y alpha(C,k,j)_z
                left, right = work.item_left[item], work.item_right[item]
                matrix = work.matrices[work.item_slot[item]]
                n_right = n_states[symbols[right]]
                for y in range(n_states[symbols[left]]):
                    value = work.item_weight[item] * alpha[left, y]
                    for z in range(n_right):
                        matrix[y * n_right + z] += value * alpha[right, z]
            for slot in range(n_slots):
                pair, matrix = work.pairs[slot], work.matrices[slot]
                for r in range(rules.first[pair], rules.first[pair + 1]):
                    parent = work.entry_of[rules.parent[r]]
                    if parent >= 0:
                        # alpha(A,i,j)_x += T_xyz M_yz
                        tensor, n_parent, size = tensor_of(rules, r)
                        for x in range(n_parent):
                            total = 0.0
                            for yz in range(size):
                                total += tensor[x * size + yz] * matrix[yz]
                            alpha[parent, x] += total
            leave_cell(offsets, symbols, cell_of(i, i + width, length), work)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def outside(rules: LatentRules, length: int, offsets: np.ndarray, symbols: np.ndarray, scale: np.ndarray,
            alpha: np.ndarray, beta: np.ndarray) -> None:
    """Fill beta (E, S), whose entries of the whole sentence are given and whose others are 0, from wide to narrow."""
    n_states = rules.n_states
    work = new_work(rules, length, offsets, alpha.shape[1])
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            n_slots, n_items = enter_cell(rules, length, offsets, symbols, scale, i, i + width, work)
            work.matrices[:n_slots] = 0.0
            for slot in range(n_slots):
                pair, matrix = work.pairs[slot], work.matrices[slot]
                for r in range(rules.first[pair], rules.first[pair + 1]):
                    parent = work.entry_of[rules.parent[r]]
                    if parent >= 0:
                        # M_yz += beta(A,i,j)_x T_xyz
                        tensor, n_parent, size = tensor_of(rules, r)
                        for x in range(n_parent):
                            value = beta[parent, x]
                            for yz in range(size):
                                matrix[yz] += value * tensor[x * size + yz]
            for item in range(n_items):
                # beta(B,i,k)_y += M_yz alpha(C,k,j)_z  and  beta(C,k,j)_z += M_yz alpha(B,i,k)_y
                left, right = work.item_left[item], work.item_right[item]
                weight, matrix = work.item_weight[item], work.matrices[work.item_slot[item]]
                n_right = n_states[symbols[right]]
                for y in range(n_states[symbols[left]]):
                    value, total = weight * alpha[left, y], 0.0
                    for z in range(n_right):
                        total += matrix[y * n_right + z] * alpha[right, z]
                        beta[right, z] += value * matrix[y * n_right + z]
                    beta[left, y] += weight * total
            leave_cell(offsets, symbols, cell_of(i, i + width, length), work)


@njit(inline="always")
def tensor_of(rules, r):
    """The flat tensor of the r-th rule in order of pairs, the states of its parent, and of its children together."""
    rule = rules.rule[r]
    tensor = rules.tensors[rules.begin[rule]:rules.begin[rule + 1]]
    n_parent = rules.n_states[rules.parent[r]]
    return tensor, n_parent, len(tensor) // n_parent
