"""Inside-Outside of one sentence in linear space: compiled kernels of the `cpu` engine.

Legend.  i < k < j fenceposts; A parent, B left child, C right child; p pre-terminal; q pair of children (B, C).
In-terminals that are right children of a pair have *rows*: row_of[k, C] is where alpha(C, k, j) and beta(C, k, j) are
found for every j; the others share one that is never read.  Rows are 0 where a span is impossible.
All spans that start at i are done together.  pairs(q, j), one row a pair, is the sum over the splits so far of
alpha(B, i, k) alpha(C, k, j): an entry (B, i, k), as soon as it is known, adds a multiple of the row (k, C) to the row
of each of its pairs.  In the outside pass, where pairs(q, j) is what the rules of q give, it takes the product of these
two rows and adds a multiple of the one to the other.  So no pair is visited without a left child, and no row in vain.
The *partners* of (B, i, k) are its pairs (B, C) whose row (k, C) there is: a quarter of its pairs at ten words.
Cells are done in *blocks* of BLOCK neighbouring j, so that rules are applied to four cells at once; both children of a
pair have two words or more, so few splits lie inside a block, and these are done one by one.
A word gives an *edge* (A, B) the sum over p of P(A -> .. p ..) leaf(p), computed once for all cells beside that word.

Range.  Every sum over splits stays above SMALLEST, so that multiplied by a rule it is still a normal float64, and no
product of an outside value with an inside value can vanish (a bound for each cell); a sentence that does not keep this
is refused (status OUT_OF_RANGE) and done in log space instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, types, uint64
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.experimental import structref
from numba.extending import register_jitable

from pcfg_artifact.parsing.chart_index import n_cells
from pcfg_artifact.parsing.cpu_kernels.rule_index import INDEX, RuleIndex
from pcfg_artifact.parsing.cpu_kernels.vectors import LANES_4, nonzero_64

DONE, DRIFTING, OUT_OF_RANGE = 0, 1, 2

SMALLEST_TERM = 2.0 ** -1000  # of an outside value times an inside value
DRIFT = 256  # bits: a cell whose largest value is further from 1 asks for another scale of the leaves
WORD = 64  # bits of one word
BLOCK = LANES_4  # fenceposts that one vector holds; rows begin and end at multiples
NO_ROW, NEVER_READ = 0, BLOCK  # where rows begin
VECTORS = {"reassoc", "contract"}  # sums in any order, so that loops become vector instructions
# What inner loops call is inlined and gets arrays one by one: calls, and tuples of arrays, cost more than the work.
INLINED = njit(nogil=True, forceinline=True, fastmath=VECTORS)
# Loops of few turns, or over lists of indices: vector instructions would cost more than they save.
INLINED_SCALAR = njit(nogil=True, forceinline=True, fastmath={"contract"})


class Edges(NamedTuple):
    """The edges of every word of a sentence: word t has n[t], those with child B are first[t, B]:last[t, B] of its row.

    n (L,); first, last (L, I); parent, number, weight, received (L, E): number is that in the grammar's LeafEdges;
    received collects sum of beta(A) alpha(B), from which beta of the pre-terminals is made.
    """

    n: np.ndarray
    first: np.ndarray
    last: np.ndarray
    parent: np.ndarray
    number: np.ndarray
    weight: np.ndarray
    received: np.ndarray


class Workspace(NamedTuple):
    """Arrays of one thread, used again for every sentence of up to `longest` words; memory is touched only as needed.

    X fenceposts.  row_of (X, I): where rows begin in alpha and beta (less their first fencepost).
    partners (X, Q, 2): pairs and rows; those of (B, i, k), whatever i, are partners[k, n] with n from
    first_partner[k, B] to last_partner[k, B] - 1.
    pairs (Q, row of fenceposts), flat: the rows of pairs for one i.  pair_seen (Q,): the last i that has used one.
    live: the pairs with a split in block b of i are live[live_first[i, b]:live_last[i, b]].
    least_left, least_right (X, X): the smallest inside value of spans (i, .. j) and (i .., j), as [i, j] and [j, i].
    symbols, inside, outside: entries in the order in which they are found; cell c holds first[c]:last[c].
    right_edges, left_edges: of words that are right and left children.
    """

    row_of: np.ndarray
    partners: np.ndarray
    first_partner: np.ndarray
    last_partner: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    pairs: np.ndarray
    pair_seen: np.ndarray
    live: np.ndarray
    live_first: np.ndarray
    live_last: np.ndarray
    least_left: np.ndarray
    least_right: np.ndarray
    first: np.ndarray
    last: np.ndarray
    symbols: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    right_edges: Edges
    left_edges: Edges


def workspace(grammar: RuleIndex, longest: int) -> Workspace:
    """Room for sentences of up to `longest` words."""
    n_posts, n_interminals, n_pairs = longest + 1, grammar.n_interminals, len(grammar.inner.left)
    n_entries = (n_cells(longest) - longest) * n_interminals + longest * grammar.n_preterminals
    n_blocks = longest // BLOCK + 1
    # rows of one child are a triangle; each may begin and end inside a block
    room = grammar.left_pairs.is_right.sum() * (n_posts * (n_posts + 1) // 2 + 2 * BLOCK * n_posts) \
        + n_posts + 3 * BLOCK

    def edges(n_edges: int) -> Edges:
        return Edges(np.empty(longest, np.uint64), *(np.empty((longest, n_interminals), INDEX) for _ in range(2)),
                     *(np.empty((longest, n_edges), INDEX) for _ in range(2)),
                     *(np.empty((longest, n_edges)) for _ in range(2)))

    return Workspace(
        row_of=np.empty((n_posts, n_interminals), INDEX), partners=np.empty((n_posts, n_pairs, 2), INDEX),
        first_partner=np.empty((n_posts, n_interminals), INDEX),
        last_partner=np.empty((n_posts, n_interminals), INDEX), alpha=np.empty(room), beta=np.empty(room),
        pairs=np.empty(n_pairs * row_size(longest)), pair_seen=np.empty(n_pairs, np.int64),
        live=np.empty(n_pairs * n_blocks * (n_posts + 1) // 2 + n_pairs * n_posts, INDEX),
        live_first=np.empty((n_posts, n_blocks), np.uint64), live_last=np.empty((n_posts, n_blocks), np.uint64),
        least_left=np.empty((n_posts, n_posts)), least_right=np.empty((n_posts, n_posts)),
        first=np.empty(n_cells(longest), np.uint64), last=np.empty(n_cells(longest), np.uint64),
        symbols=np.empty(n_entries, INDEX), inside=np.empty(n_entries), outside=np.empty(n_entries),
        right_edges=edges(len(grammar.right_edges.parent)), left_edges=edges(len(grammar.left_edges.parent)))


def bytes_per_square_word(grammar: RuleIndex) -> int:
    """Memory that a sentence of n words may need, divided by n squared: rows, entries, live pairs, half a square."""
    n_pairs = len(grammar.inner.left)
    return 8 * int(grammar.left_pairs.is_right.sum()) + 11 * grammar.n_interminals + -(-n_pairs // 2)


# ---- what compiled functions take ------------------------------------------------------------------------------------


@structref.register
class KernelArgsType(types.StructRef):
    """What compiled functions see of KernelArgs."""


class KernelArgs(structref.StructRefProxy):
    """A rule index and a workspace as one object; its fields are for compiled functions only.

    Numba reads every array of a tuple again at each call from Python: a hundred of them took 30 microseconds, a tenth
    of a sentence of ten words.  This object is read once, when it is made.  Each thread has its own, so that threads do
    not count references to the same arrays.
    """

    grammar: RuleIndex
    work: Workspace


structref.define_proxy(KernelArgs, KernelArgsType, ["grammar", "work"])


@njit(cache=True)
def _made(grammar, work):
    return KernelArgs(grammar, work)


def kernel_args(grammar: RuleIndex, longest: int) -> KernelArgs:
    """What the kernels need for sentences of up to `longest` words."""
    return _made(grammar, workspace(grammar, longest))


# ---- rows ------------------------------------------------------------------------------------------------------------


@INLINED
def block_before(k):
    return k // BLOCK * BLOCK


@INLINED
def block_after(k):
    return (k + BLOCK - 1) // BLOCK * BLOCK


@register_jitable
def row_size(length):
    """Numbers in a row over all fenceposts: an odd number of blocks, so that one column of all rows fits the cache."""
    return ((length + 1 + BLOCK - 1) // BLOCK | 1) * BLOCK


@njit(nogil=True)
def start_row(row_of, k, a, length, top, alpha, beta):
    """Give (k, a) a row of zeros; returns the new top."""
    begin, end = uint64(block_before(k + 2)), uint64(block_after(length + 1))
    row_of[k, a] = top - begin
    for place in range(top, top + end - begin):
        alpha[place] = 0.0
        beta[place] = 0.0
    return top + end - begin


@njit(nogil=True)
def find_partners(k, pair_left, pair_right, work):
    """The partners of every left child that ends at k, when all rows of k have been started."""
    row_of, partners, first, last = work.row_of, work.partners, work.first_partner, work.last_partner
    n_found = uint64(0)
    for q in range(uint64(len(pair_left))):
        row = row_of[k, pair_right[q]]
        partners[k, n_found, 0] = q
        partners[k, n_found, 1] = row
        n_found += uint64(row != NO_ROW)
    first[k] = 0
    last[k] = 0
    for n in range(n_found):
        last[k, pair_left[partners[k, n, 0]]] = n + uint64(1)
    for n in range(uint64(1), n_found + uint64(1)):  # backwards, so that the first of a child stays
        first[k, pair_left[partners[k, n_found - n, 0]]] = n_found - n


# ---- few numbers among many zeros ------------------------------------------------------------------------------------


@INLINED
def lowest_bit(word):
    """Index of the lowest bit of a word that is not 0."""
    return uint64(trailing_zeros(word))  # type: ignore[call-arg]  # numba passes the context


@njit(nogil=True)
def find_nonzero(values, found):
    """Write the places where values (N,) are not 0 to found (N,); returns how many."""
    n, n_values = uint64(0), uint64(len(values))
    in_words = n_values // uint64(WORD) * uint64(WORD)
    for place in range(uint64(0), in_words, uint64(WORD)):
        word = nonzero_64(values, place)
        while word != 0:
            found[n] = place + lowest_bit(word)
            n += uint64(1)
            word &= word - uint64(1)
    for place in range(in_words, n_values):
        found[n] = place
        n += uint64(values[place] != 0.0)
    return n
