"""Inside-Outside of one sentence in linear space: compiled kernels of the `cpu` engine.

Legend.  i < k < j fenceposts; A parent, B left child, C right child; p pre-terminal; q pair of children (B, C).
In-terminals that are children of a pair have *rows*: left_row[i, B] is where alpha(B, i, k) is found for every k, and
right_row[j, C] the same for alpha(C, k, j), so the sum over the splits of a cell is one dot product of two rows; beta
has the same rows, for what B receives as a left child and C as a right child.  The others share one that is never
read.  Rows are 0 where a span is impossible, and are read in whole blocks of BLOCK fenceposts.
Bit k of left_mask[i, B] says that B is possible over (i, k), right_mask[j, C] the same for (k, j); bit q of
left_pairs[i] says that the left child of pair q may start at i, right_pairs[j] that the right child may end at j.  So
the pairs with a split in a cell, its *live* pairs, are found by bits alone, and kept for the outside pass.
A word gives an *edge* (A, B) the sum over p of P(A -> .. p ..) leaf(p), computed once for all cells beside that word.
Cells are filled by falling i, then by j: all that a cell needs is done, and the rows of i, which has more left children
than any j has right ones, stay in cache.

Range.  Every sum over splits stays above SMALLEST, so that multiplied by a rule it is still a normal float64, and no
product of an outside value with an inside value can vanish (a bound for each cell); a sentence that does not keep this
is refused (status OUT_OF_RANGE) and done in log space instead.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, uint64
from numba.cpython.unsafe.numbers import trailing_zeros

from pcfg_artifact.parsing.cells import n_cells
from pcfg_artifact.parsing.compiled import INDEX, CompiledGrammar

DONE, DRIFTING, OUT_OF_RANGE = 0, 1, 2

SMALLEST = 2.0 ** -900
SMALLEST_RULE = 2.0 ** -100  # of a rule times a leaf: sentences with smaller ones are done in log space
SMALLEST_TERM = 2.0 ** -1000  # of an outside value times an inside value
LARGEST = 2.0 ** 900
DRIFT = 256  # bits: a cell whose largest value is further from 1 asks for another scale of the leaves
WORD = 64  # bits of one word of a bit set
BLOCK = 4  # fenceposts: rows begin and end at multiples
NO_ROW, NEVER_READ = 0, BLOCK  # where rows begin
VECTORS = {"reassoc", "contract"}  # sums in any order, so that loops become vector instructions
# What inner loops call is inlined and gets arrays one by one: calls, and tuples of arrays, cost more than the work.
INLINED = njit(nogil=True, forceinline=True, fastmath=VECTORS)
# Loops of few turns, or over lists of indices: vector instructions would cost more than they save.
INLINED_SCALAR = njit(nogil=True, forceinline=True, fastmath={"contract"})


class Edges(NamedTuple):
    """The edges of every word of a sentence: those of word t with child B are first[t, B]:first[t, B + 1] of its row.

    first (L, I + 1); child, parent, number, weight, received (L, E): number is that in the grammar's LeafEdges;
    received collects sum of beta(A) alpha(B), from which beta of the pre-terminals is made.
    """

    first: np.ndarray
    child: np.ndarray
    parent: np.ndarray
    number: np.ndarray
    weight: np.ndarray
    received: np.ndarray


class Workspace(NamedTuple):
    """Arrays of one thread, used again for every sentence of up to `longest` words; memory is touched only as needed.

    X fenceposts.  left_row, right_row (X, I): where rows begin in alpha and beta (less their first fencepost).
    left_mask, right_mask (X, I, words): bit sets of fenceposts.  left_pairs, right_pairs (X, pair words), live_pairs
    (cells, pair words): bit sets of pairs.
    least_left, least_right (X, X): the smallest inside value of spans (i, .. k) and (k .., j), k as in left_pairs.
    symbols, inside, outside: entries in the order in which they are found; cell c holds first[c]:last[c].
    right_edges, left_edges: of words that are right and left children.
    """

    left_row: np.ndarray
    right_row: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    left_mask: np.ndarray
    right_mask: np.ndarray
    left_pairs: np.ndarray
    right_pairs: np.ndarray
    live_pairs: np.ndarray
    least_left: np.ndarray
    least_right: np.ndarray
    first: np.ndarray
    last: np.ndarray
    symbols: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    right_edges: Edges
    left_edges: Edges


def workspace(grammar: CompiledGrammar, longest: int) -> Workspace:
    """Room for sentences of up to `longest` words."""
    n_posts, n_interminals, n_pairs = longest + 1, grammar.n_interminals, len(grammar.inner.left)
    n_entries = (n_cells(longest) - longest) * n_interminals + longest * grammar.n_preterminals
    pair_words, words = -(-n_pairs // WORD), -(-n_posts // WORD)
    # rows of one child are a triangle; each may begin and end inside a block
    room = n_children(grammar) * (n_posts * (n_posts + 1) // 2 + 2 * BLOCK * n_posts) + n_posts + 3 * BLOCK

    def edges(n_edges: int) -> Edges:
        return Edges(np.empty((longest, n_interminals + 1), INDEX), *(np.empty((longest, n_edges), INDEX)
                     for _ in range(3)), *(np.empty((longest, n_edges)) for _ in range(2)))

    return Workspace(
        left_row=np.empty((n_posts, n_interminals), np.uint64), right_row=np.empty((n_posts, n_interminals), np.uint64),
        alpha=np.empty(room), beta=np.empty(room),
        left_mask=np.empty((n_posts, n_interminals, words), np.uint64),
        right_mask=np.empty((n_posts, n_interminals, words), np.uint64),
        left_pairs=np.empty((n_posts, pair_words), np.uint64), right_pairs=np.empty((n_posts, pair_words), np.uint64),
        live_pairs=np.empty((n_cells(longest), pair_words), np.uint64),
        least_left=np.empty((n_posts, n_posts)), least_right=np.empty((n_posts, n_posts)),
        first=np.empty(n_cells(longest), np.uint64), last=np.empty(n_cells(longest), np.uint64),
        symbols=np.empty(n_entries, INDEX), inside=np.empty(n_entries), outside=np.empty(n_entries),
        right_edges=edges(len(grammar.right_edges.parent)), left_edges=edges(len(grammar.left_edges.parent)))


def n_children(grammar: CompiledGrammar) -> int:
    """In-terminals with rows as left children, and as right children."""
    return len(np.unique(grammar.inner.left)) + len(np.unique(grammar.inner.right))


def bytes_per_square_word(grammar: CompiledGrammar) -> int:
    """Memory that a sentence of n words may need, divided by n squared: rows, entries and bit sets, half a square."""
    pair_words = -(-len(grammar.inner.left) // WORD)
    return 8 * n_children(grammar) + 11 * grammar.n_interminals + 4 * pair_words


# ---- rows ------------------------------------------------------------------------------------------------------------


@INLINED
def block_before(k):
    return k // BLOCK * BLOCK


@INLINED
def block_after(k):
    return (k + BLOCK - 1) // BLOCK * BLOCK


@njit(nogil=True)
def reset_rows(row_of, masks, length, child_first):
    """No rows for children of pairs, the row that is never read for the others; no spans."""
    n_words = length // WORD + 1
    for a in range(row_of.shape[1]):
        row_of[0, a] = NO_ROW if child_first[a + 1] > child_first[a] else NEVER_READ
    for x in range(length + 1):
        if x > 0:
            row_of[x] = row_of[0]
        if n_words == 1:
            for a in range(row_of.shape[1]):
                masks[x, a, 0] = 0
        else:
            masks[x, :, :n_words] = 0


# ---- bit sets --------------------------------------------------------------------------------------------------------


@INLINED
def lowest_bit(word):
    """Index of the lowest bit of a word that is not 0."""
    return uint64(trailing_zeros(word))


@njit(nogil=True)
def members(words, found):
    """Write the members of a bit set to `found`; returns how many."""
    n = uint64(0)
    for w in range(uint64(len(words))):
        word = words[w]
        while word != 0:
            found[n] = uint64(WORD) * w + lowest_bit(word)
            n += uint64(1)
            word &= word - uint64(1)
    return n


@njit(nogil=True, cache=True)
def scale_leaves(leaves: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Leaves (L, P) divided by the largest of each word, the logs (L,) of what they were divided by, the smallest."""
    scaled, log_scale, smallest = np.empty(leaves.shape), np.zeros(len(leaves)), 1.0
    for t in range(len(leaves)):
        peak = 0.0
        for p in range(leaves.shape[1]):
            peak = max(peak, leaves[t, p])
        if peak <= 0.0:
            peak = 1.0
        log_scale[t] = math.log(peak)
        for p in range(leaves.shape[1]):
            scaled[t, p] = leaves[t, p] / peak
            if scaled[t, p] > 0.0:
                smallest = min(smallest, scaled[t, p])
    return scaled, log_scale, smallest


@njit(nogil=True)
def find_leaves(leaves, is_full):
    """The pre-terminals of every position, (L, P), and their number, (L,)."""
    length, n_preterminals = leaves.shape
    found, n_found = np.empty((length, n_preterminals), INDEX), np.zeros(length, np.int64)
    for t in range(length):
        for p in range(n_preterminals):
            found[t, n_found[t]] = p
            n_found[t] += is_full or leaves[t, p] != 0.0
    return found, n_found


@njit(nogil=True, cache=True)
def collect(length: int, work: Workspace) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Offsets of the cells, and copies of symbols, inside and outside in their order."""
    n = length * (length + 1) // 2
    offsets = np.zeros(n + 1, np.int64)
    for cell in range(n):
        offsets[cell + 1] = offsets[cell] + np.int64(work.last[cell] - work.first[cell])
    symbols, inside, outside = np.empty(offsets[n], np.int32), np.empty(offsets[n]), np.empty(offsets[n])
    for cell in range(n):
        begin, end = offsets[cell], offsets[cell + 1]
        first, last = np.int64(work.first[cell]), np.int64(work.last[cell])
        for entry in range(end - begin):
            symbols[begin + entry] = work.symbols[first + entry]
        inside[begin:end] = work.inside[first:last]
        outside[begin:end] = work.outside[first:last]
    return offsets, symbols, inside, outside
