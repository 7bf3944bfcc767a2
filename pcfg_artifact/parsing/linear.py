"""Inside-Outside of one sentence in linear space: compiled kernels of the `cpu` engine.

Legend.  i < k < j fenceposts; A parent, B left child, C right child; p pre-terminal; q pair of children (B, C).
A *row* (x, B) holds every span of in-terminal B with an end at fencepost x: alpha[row, k] is alpha(B, x, k) for k > x
and alpha(B, k, x) for k < x, so a left child and a right child are both read along k.  Bit k of mask[x, B] says that
the span is possible.  beta[row, k] collects what B receives as a left child for k > x, as a right child for k < x.
Cells are filled by j, then by falling i: all that a cell needs is done, and the rows of j stay in cache.

Range.  Every product of two chart values stays above SMALLEST, so that multiplied by a rule it is still a normal
float64; a sentence that would need a smaller one is refused (status OUT_OF_RANGE) and done in log space instead.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, uint64
from numba.cpython.unsafe.numbers import trailing_zeros

from pcfg_artifact.parsing.compiled import INDEX, CompiledGrammar
from pcfg_artifact.parsing.triangle import cell_of, n_cells

DONE, DRIFTING, OUT_OF_RANGE = 0, 1, 2

SMALLEST = 2.0 ** -900
SMALLEST_RULE = 2.0 ** -100  # of a rule times a leaf: sentences with smaller ones are done in log space
LARGEST = 2.0 ** 900
DRIFT = 256  # bits: a cell whose largest value is further from 1 asks for another scale of the leaves
WORD = 64  # bits of one word of a mask


class Workspace(NamedTuple):
    """Arrays of one thread, used again for every sentence of up to `longest` words; memory is touched only as needed.

    row_of (X, I): row of (x, B).  starts, ends (X, I): whether some span of B starts, ends at x.  mask (X, I, words).
    left_pairs, right_pairs (X, pair words): bits of the pairs whose left child starts, whose right child ends at x.
    alpha, beta: rows one after the other.  live_pair, live_mask: scratch.
    symbols, inside, outside: entries in the order in which they are found; cell c holds first[c]:last[c].
    """

    row_of: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    mask: np.ndarray
    left_pairs: np.ndarray
    right_pairs: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    live_pair: np.ndarray
    live_mask: np.ndarray
    first: np.ndarray
    last: np.ndarray
    symbols: np.ndarray
    inside: np.ndarray
    outside: np.ndarray


def workspace(grammar: CompiledGrammar, longest: int) -> Workspace:
    """Room for sentences of up to `longest` words."""
    n_posts, n_interminals, n_pairs = longest + 1, grammar.n_interminals, len(grammar.inner.left)
    n_entries = (n_cells(longest) - longest) * n_interminals + longest * grammar.n_preterminals
    pair_words = -(-n_pairs // WORD)
    return Workspace(
        row_of=np.empty((n_posts, n_interminals), INDEX),
        starts=np.empty((n_posts, n_interminals), np.bool_), ends=np.empty((n_posts, n_interminals), np.bool_),
        mask=np.empty((n_posts, n_interminals, -(-n_posts // WORD)), np.uint64),
        left_pairs=np.empty((n_posts, pair_words), np.uint64), right_pairs=np.empty((n_posts, pair_words), np.uint64),
        alpha=np.empty(n_posts * n_interminals * n_posts), beta=np.empty(n_posts * n_interminals * n_posts),
        live_pair=np.empty(n_pairs + 1, INDEX), live_mask=np.empty(n_pairs + 1, np.uint64),
        first=np.empty(n_cells(longest), np.int64), last=np.empty(n_cells(longest), np.int64),
        symbols=np.empty(n_entries, INDEX), inside=np.empty(n_entries), outside=np.empty(n_entries))


@njit(nogil=True)
def lowest_bit(word):
    """Index of the lowest bit of a word that is not 0."""
    return uint64(trailing_zeros(word))


@njit(nogil=True)
def bits_between(low, high, word):
    """The bits of fenceposts low .. high-1 that lie in one word of a mask."""
    first, last = max(low - WORD * word, 0), min(high - WORD * word, WORD)
    if first >= last:
        return uint64(0)
    return (~uint64(0) << uint64(first)) & (~uint64(0) >> uint64(WORD - last))


@njit(nogil=True)
def spread(dense, first, last, symbols, values):
    """Write the entries of a cell into a dense vector."""
    for entry in range(first, last):
        dense[symbols[entry]] = values[entry]


@njit(nogil=True)
def unspread(dense, first, last, symbols):
    for entry in range(first, last):
        dense[symbols[entry]] = 0.0


@njit(nogil=True)
def find_live_pairs(left, right, left_pairs, right_pairs, mask, i, j, word, splits, live_pair, live_mask):
    """Pairs with a common split in this word of the masks; no branch depends on the chart, which keeps this fast."""
    n_live = 0
    for pair_word in range(left_pairs.shape[1]):
        pairs = left_pairs[i, pair_word] & right_pairs[j, pair_word]
        while pairs != 0:
            q = uint64(WORD * pair_word) + lowest_bit(pairs)
            common = mask[i, left[q], word] & mask[j, right[q], word] & splits
            live_pair[n_live] = q
            live_mask[n_live] = common
            n_live += common != 0
            pairs &= pairs - uint64(1)
    return n_live


@njit(nogil=True)
def find_leaves(leaves, is_full):
    """The pre-terminals of every position, (L, P), and their number, (L,)."""
    length, n_preterminals = leaves.shape
    found, n_found = np.empty((length, n_preterminals), INDEX), np.zeros(length, np.int64)
    for t in range(length):
        for p in range(n_preterminals):
            if is_full or leaves[t, p] != 0.0:
                found[t, n_found[t]] = p
                n_found[t] += 1
    return found, n_found


@njit(nogil=True)
def add_from_leaf(total, rules, leaves, tags, n_tags, t, neighbour):
    """total(A) += P(A -> .. p ..) leaf(p) neighbour(other child), p over word t"""
    for n in range(n_tags[t]):
        p = tags[t, n]
        weight = leaves[t, p]
        for rule in range(rules.first[p], rules.first[p + 1]):
            total[rules.parent[rule]] += rules.prob[rule] * weight * neighbour[rules.other[rule]]


@njit(nogil=True, cache=True)
def inside(grammar: CompiledGrammar, leaves: np.ndarray, is_full: bool, work: Workspace) -> tuple[int, float]:
    """Fill the chart from the (L, P) leaves; returns a status and, when DRIFTING, the bits per word to take off.

    With is_full every symbol of the right type is an entry, otherwise those that are possible.
    """
    length = len(leaves)
    n_interminals = len(grammar.root_inner)
    inner, first, last, symbols, values = grammar.inner, work.first, work.last, work.symbols, work.inside
    row_of, mask, left_pairs, right_pairs = work.row_of, work.mask, work.left_pairs, work.right_pairs
    live_pair, live_mask, starts, ends = work.live_pair, work.live_mask, work.starts, work.ends
    alpha = work.alpha[:(length + 1) ** 2 * n_interminals].reshape((length + 1) * n_interminals, length + 1)
    beta = work.beta[:(length + 1) ** 2 * n_interminals].reshape((length + 1) * n_interminals, length + 1)
    n_entries, n_rows, is_refused = 0, 0, False
    total, neighbour, found = np.zeros(n_interminals), np.zeros(n_interminals), np.empty(n_interminals + 1, INDEX)
    tags, n_tags = find_leaves(leaves, is_full)
    mask[:length + 1] = 0
    left_pairs[:length + 1] = 0
    right_pairs[:length + 1] = 0
    starts[:length + 1] = False
    ends[:length + 1] = False
    if is_full:
        beta[:] = 0.0
        for x in range(length + 1):
            for a in range(n_interminals):
                row_of[x, a] = x * n_interminals + a

    for j in range(1, length + 1):
        first[cell_of(j - 1, j, length)] = n_entries
        for n in range(n_tags[j - 1]):
            p = tags[j - 1, n]
            symbols[n_entries] = n_interminals + p
            values[n_entries] = leaves[j - 1, p]
            n_entries += 1
        last[cell_of(j - 1, j, length)] = n_entries
        for i in range(j - 2, -1, -1):
            if j - i == 2:
                add_from_leaf(total, grammar.two_leaves, leaves, tags, n_tags, i, leaves[j - 1])
            else:
                side = cell_of(i, j - 1, length)
                spread(neighbour, first[side], last[side], symbols, values)
                add_from_leaf(total, grammar.right_leaf, leaves, tags, n_tags, j - 1, neighbour)
                unspread(neighbour, first[side], last[side], symbols)
                side = cell_of(i + 1, j, length)
                spread(neighbour, first[side], last[side], symbols, values)
                add_from_leaf(total, grammar.left_leaf, leaves, tags, n_tags, i, neighbour)
                unspread(neighbour, first[side], last[side], symbols)
            # total(A) += P(A -> B C) sum over k of alpha(B,i,k) alpha(C,k,j)
            for word in range((i + 2) // WORD, (j - 2) // WORD + 1):
                n_live = find_live_pairs(inner.left, inner.right, left_pairs, right_pairs, mask, i, j, word,
                                         bits_between(i + 2, j - 1, word), live_pair, live_mask)
                for n in range(n_live):
                    q = live_pair[n]
                    splits = live_mask[n]
                    left_row, right_row = row_of[i, inner.left[q]], row_of[j, inner.right[q]]
                    product = 0.0
                    while splits != 0:
                        k = uint64(WORD * word) + lowest_bit(splits)
                        product += alpha[left_row, k] * alpha[right_row, k]
                        splits &= splits - uint64(1)
                    is_refused |= product < SMALLEST
                    for rule in range(inner.first[q], inner.first[q + 1]):
                        total[inner.parent[rule]] += inner.prob[rule] * product

            first[cell_of(i, j, length)] = n_entries
            n_found = 0
            for a in range(n_interminals):
                found[n_found] = a
                n_found += is_full or total[a] != 0.0
            largest = 0.0
            word_i, bit_i = i // WORD, uint64(1) << uint64(i % WORD)
            word_j, bit_j = j // WORD, uint64(1) << uint64(j % WORD)
            for n in range(n_found):
                a = found[n]
                value = total[a]
                total[a] = 0.0
                symbols[n_entries] = a
                values[n_entries] = value
                n_entries += 1
                if value == 0.0:
                    continue
                largest = max(largest, value)
                if not is_full:
                    if not (starts[i, a] or ends[i, a]):
                        row_of[i, a] = n_rows
                        n_rows += 1
                    if not (starts[j, a] or ends[j, a]):
                        row_of[j, a] = n_rows
                        n_rows += 1
                if not starts[i, a]:
                    starts[i, a] = True
                    for m in range(inner.left_first[a], inner.left_first[a + 1]):
                        left_pairs[i, inner.by_left[m] // WORD] |= uint64(1) << uint64(inner.by_left[m] % WORD)
                if not ends[j, a]:
                    ends[j, a] = True
                    for m in range(inner.right_first[a], inner.right_first[a + 1]):
                        right_pairs[j, inner.by_right[m] // WORD] |= uint64(1) << uint64(inner.by_right[m] % WORD)
                row_i, row_j = row_of[i, a], row_of[j, a]
                alpha[row_i, j] = value
                alpha[row_j, i] = value
                beta[row_i, j] = 0.0
                beta[row_j, i] = 0.0
                mask[i, a, word_j] |= bit_j
                mask[j, a, word_i] |= bit_i
            last[cell_of(i, j, length)] = n_entries
            if largest != 0.0:
                bits = math.frexp(largest)[1] if largest < np.inf else 1024
                if abs(bits) > DRIFT:
                    return DRIFTING, bits / (j - i)
    return (OUT_OF_RANGE if is_refused else DONE), 0.0


@njit(nogil=True)
def give_to_leaf(parent, rules, leaves, tags, n_tags, t, neighbour, received, leaf_beta):
    """Outside values of a parent for word t at its edge and for the child beside that word."""
    for n in range(n_tags[t]):
        p = tags[t, n]
        weight, to_leaf = leaves[t, p], 0.0
        for rule in range(rules.first[p], rules.first[p + 1]):
            given = rules.prob[rule] * parent[rules.parent[rule]]
            received[rules.other[rule]] += given * weight
            to_leaf += given * neighbour[rules.other[rule]]
        leaf_beta[t, p] += to_leaf


@njit(nogil=True)
def give_along(given, splits, word, alpha, from_row, beta, to_row):
    """beta[to_row, k] += given * alpha[from_row, k] over a word of splits; returns the smallest term."""
    smallest = LARGEST
    while splits != 0:
        k = uint64(WORD * word) + lowest_bit(splits)
        term = given * alpha[from_row, k]
        smallest = min(smallest, term)
        beta[to_row, k] += term
        splits &= splits - uint64(1)
    return smallest


@njit(nogil=True, cache=True)
def outside(grammar: CompiledGrammar, leaves: np.ndarray, is_full: bool, work: Workspace) -> int:
    """Give every entry its outside value, from the whole sentence down to the words; returns a status."""
    length, n_preterminals = leaves.shape
    n_interminals = len(grammar.root_inner)
    inner, first, last, symbols, values = grammar.inner, work.first, work.last, work.symbols, work.inside
    row_of, mask, left_pairs, right_pairs = work.row_of, work.mask, work.left_pairs, work.right_pairs
    live_pair, live_mask = work.live_pair, work.live_mask
    alpha = work.alpha[:(length + 1) ** 2 * n_interminals].reshape((length + 1) * n_interminals, length + 1)
    beta = work.beta[:(length + 1) ** 2 * n_interminals].reshape((length + 1) * n_interminals, length + 1)
    is_refused = False
    parent = np.zeros(n_interminals)  # beta(A, i, j) of the cell at hand
    neighbour = np.zeros(n_interminals)  # alpha of the in-terminal beside a word
    received = np.zeros(max(n_interminals, n_preterminals))  # and what it receives
    leaf_beta = np.zeros((length, n_preterminals))
    tags, n_tags = find_leaves(leaves, is_full)
    if length == 1:
        leaf_beta[0] = grammar.root_leaf

    for j in range(length, 1, -1):
        for i in range(j - 1):
            cell = cell_of(i, j, length)
            is_reached = False
            for entry in range(first[cell], last[cell]):
                a = symbols[entry]
                is_whole = j - i == length
                value = grammar.root_inner[a] if is_whole else beta[row_of[i, a], j] + beta[row_of[j, a], i]
                work.outside[entry] = value
                parent[a] = value
                is_reached |= value != 0.0
                is_refused |= value != 0.0 and not SMALLEST < value < LARGEST
            if not is_reached:
                continue

            if j - i == 2:
                give_to_leaf(parent, grammar.two_leaves, leaves, tags, n_tags, i, leaves[j - 1], received,
                             leaf_beta)
                for p in range(n_preterminals):
                    leaf_beta[j - 1, p] += received[p]
            else:
                side = cell_of(i, j - 1, length)
                spread(neighbour, first[side], last[side], symbols, values)
                give_to_leaf(parent, grammar.right_leaf, leaves, tags, n_tags, j - 1, neighbour, received, leaf_beta)
                for entry in range(first[side], last[side]):
                    beta[row_of[i, symbols[entry]], j - 1] += received[symbols[entry]]
                unspread(neighbour, first[side], last[side], symbols)
                received[:] = 0.0
                side = cell_of(i + 1, j, length)
                spread(neighbour, first[side], last[side], symbols, values)
                give_to_leaf(parent, grammar.left_leaf, leaves, tags, n_tags, i, neighbour, received, leaf_beta)
                for entry in range(first[side], last[side]):
                    beta[row_of[j, symbols[entry]], i + 1] += received[symbols[entry]]
                unspread(neighbour, first[side], last[side], symbols)
            received[:] = 0.0

            for word in range((i + 2) // WORD, (j - 2) // WORD + 1):
                splits = bits_between(i + 2, j - 1, word)
                n_live = len(inner.left) if is_full else find_live_pairs(
                    inner.left, inner.right, left_pairs, right_pairs, mask, i, j, word, splits, live_pair, live_mask)
                for n in range(n_live):
                    q = INDEX(n) if is_full else live_pair[n]
                    given = 0.0
                    for rule in range(inner.first[q], inner.first[q + 1]):
                        given += inner.prob[rule] * parent[inner.parent[rule]]
                    if given == 0.0:
                        continue
                    b, c = inner.left[q], inner.right[q]
                    left_row, right_row = row_of[i, b], row_of[j, c]
                    # A child that is impossible itself still receives, if its sibling is possible; pruned needs both.
                    to_right = mask[i, b, word] & splits if is_full else live_mask[n]
                    to_left = mask[j, c, word] & splits if is_full else live_mask[n]
                    is_refused |= give_along(given, to_left, word, alpha, right_row, beta, left_row) < SMALLEST
                    is_refused |= give_along(given, to_right, word, alpha, left_row, beta, right_row) < SMALLEST
            for entry in range(first[cell], last[cell]):
                parent[symbols[entry]] = 0.0

    for t in range(length):
        cell = cell_of(t, t + 1, length)
        for entry in range(first[cell], last[cell]):
            work.outside[entry] = leaf_beta[t, symbols[entry] - n_interminals]
    return OUT_OF_RANGE if is_refused else DONE


@njit(nogil=True, cache=True)
def collect(length: int, work: Workspace) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Offsets of the cells, and copies of symbols, inside and outside in their order."""
    n = length * (length + 1) // 2
    offsets = np.zeros(n + 1, np.int64)
    for cell in range(n):
        offsets[cell + 1] = offsets[cell] + work.last[cell] - work.first[cell]
    symbols, inside, outside = np.empty(offsets[n], np.int32), np.empty(offsets[n]), np.empty(offsets[n])
    for cell in range(n):
        shift = work.first[cell] - offsets[cell]
        for entry in range(offsets[cell], offsets[cell + 1]):
            symbols[entry] = work.symbols[entry + shift]
            inside[entry] = work.inside[entry + shift]
            outside[entry] = work.outside[entry + shift]
    return offsets, symbols, inside, outside
