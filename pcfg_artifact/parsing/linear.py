"""Inside-Outside of one sentence in linear space: compiled kernels of the `cpu` engine.

Legend.  i < k < j fenceposts; A parent, B left child, C right child; p pre-terminal; q pair of children (B, C).
In-terminals that are children of a pair have *rows*: left_row[i, B] is where alpha(B, i, k) is found for every k, and
right_row[j, C] the same for alpha(C, k, j), so the sum over the splits of a cell is one dot product of two rows; beta
has the same rows, for what B receives as a left child and C as a right child.  The others share one that is never
read.  Rows are 0 where a span is impossible, and are read in whole blocks of BLOCK fenceposts.
Bit q of left_pairs[i, k] says that the left child of pair q is possible over (i, k), right_pairs[j, k] the same for the
right child over (k, j): the pairs that are live in a cell are the union over k of the common bits.
A word gives an *edge* (A, B) the sum over p of P(A -> .. p ..) leaf(p), computed once for all cells beside that word.
Cells are filled by j, then by falling i: all that a cell needs is done, and the rows of j stay in cache.

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

from pcfg_artifact.parsing.cells import cell_of, n_cells
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
    left_pairs, right_pairs (X, X, pair words), live_pairs (cells, pair words): bit sets of pairs.
    least_left, least_right (X, X): the smallest inside value of spans (i, .. k) and (k .., j), k as in left_pairs.
    symbols, inside, outside: entries in the order in which they are found; cell c holds first[c]:last[c].
    right_edges, left_edges: of words that are right and left children.
    """

    left_row: np.ndarray
    right_row: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
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
    pair_words = -(-n_pairs // WORD)
    # rows of one child are a triangle; each may begin and end inside a block
    room = n_children(grammar) * (n_posts * (n_posts + 1) // 2 + 2 * BLOCK * n_posts) + n_posts + 3 * BLOCK

    def edges(n_edges: int) -> Edges:
        return Edges(np.empty((longest, n_interminals + 1), INDEX), *(np.empty((longest, n_edges), INDEX)
                     for _ in range(3)), *(np.empty((longest, n_edges)) for _ in range(2)))

    return Workspace(
        left_row=np.empty((n_posts, n_interminals), np.uint64), right_row=np.empty((n_posts, n_interminals), np.uint64),
        alpha=np.empty(room), beta=np.empty(room),
        left_pairs=np.empty((n_posts, n_posts, pair_words), np.uint64),
        right_pairs=np.empty((n_posts, n_posts, pair_words), np.uint64),
        live_pairs=np.empty((n_cells(longest), pair_words), np.uint64),
        least_left=np.empty((n_posts, n_posts)), least_right=np.empty((n_posts, n_posts)),
        first=np.empty(n_cells(longest), np.int64), last=np.empty(n_cells(longest), np.int64),
        symbols=np.empty(n_entries, INDEX), inside=np.empty(n_entries), outside=np.empty(n_entries),
        right_edges=edges(len(grammar.right_edges.parent)), left_edges=edges(len(grammar.left_edges.parent)))


def n_children(grammar: CompiledGrammar) -> int:
    """In-terminals with rows as left children, and as right children."""
    return len(np.unique(grammar.inner.left)) + len(np.unique(grammar.inner.right))


def bytes_per_square_word(grammar: CompiledGrammar) -> int:
    """Memory that a sentence of n words may need, divided by n squared: rows, entries and bit sets, half a square."""
    pair_words = -(-len(grammar.inner.left) // WORD)
    return 8 * n_children(grammar) + 10 * grammar.n_interminals + 12 * pair_words


# ---- rows ------------------------------------------------------------------------------------------------------------


@njit(nogil=True)
def block_before(k):
    return k // BLOCK * BLOCK


@njit(nogil=True)
def block_after(k):
    return (k + BLOCK - 1) // BLOCK * BLOCK


@njit(nogil=True)
def new_row(row_of, x, a, begin, end, top, alpha, beta):
    """Give (x, a) a row of zeros over fenceposts begin .. end-1, at the top of alpha and beta; returns the new top."""
    row_of[x, a] = top - begin
    alpha[top:top + end - begin] = 0.0
    beta[top:top + end - begin] = 0.0
    return top + end - begin


@njit(nogil=True)
def reset_rows(row_of, length, child_first):
    """No rows for children of pairs, the row that is never read for the others."""
    for x in range(length + 1):
        for a in range(row_of.shape[1]):
            row_of[x, a] = NO_ROW if child_first[a + 1] > child_first[a] else NEVER_READ


@njit(inline="always")
def dot(alpha, left, right, begin, end):
    """Sum over k of alpha[left + k] alpha[right + k]."""
    total = 0.0
    for k in range(begin, end):
        total += alpha[left + k] * alpha[right + k]
    return total


@njit(inline="always")
def add_row(given, alpha, source, beta, target, begin, end):
    """beta[target + k] += given * alpha[source + k]"""
    for k in range(begin, end):
        beta[target + k] += given * alpha[source + k]


# ---- bit sets --------------------------------------------------------------------------------------------------------


@njit(nogil=True)
def lowest_bit(word):
    """Index of the lowest bit of a word that is not 0."""
    return uint64(trailing_zeros(word))


@njit(nogil=True)
def members(words, found):
    """Write the members of a bit set to `found`; returns how many."""
    n = 0
    for w in range(len(words)):
        word = words[w]
        while word != 0:
            found[n] = uint64(WORD * w) + lowest_bit(word)
            n += 1
            word &= word - uint64(1)
    return n


@njit(inline="always")
def add_members(words, members, begin, end):
    for m in range(begin, end):
        member = uint64(members[m])
        words[member >> uint64(6)] |= uint64(1) << (member & uint64(WORD - 1))


@njit(nogil=True)
def common_members(left, right, begin, end, union):
    """union = the members that left[k] and right[k] share for some k in begin .. end-1."""
    union[:] = 0
    for k in range(begin, end):
        for w in range(len(union)):
            union[w] |= left[k, w] & right[k, w]


# ---- words -----------------------------------------------------------------------------------------------------------


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


@njit(nogil=True)
def find_edges(rules, edges, leaves, tags, n_tags, t, weight, touched, work):
    """The edges of word t; weight (E,) and touched (edge words,) are scratch, 0 before and after."""
    rule_first, rule_prob, of_rule = rules.first, rules.prob, edges.of_rule
    for n in range(n_tags):
        p = tags[n]
        leaf = leaves[p]
        if leaf != 0.0:
            for rule in range(rule_first[p], rule_first[p + 1]):
                edge = uint64(of_rule[rule])
                weight[edge] += rule_prob[rule] * leaf
                touched[edge >> uint64(6)] |= uint64(1) << (edge & uint64(WORD - 1))
    first, children, parents, number = work.first[t], work.child[t], work.parent[t], work.number[t]
    weights, received, edge_first, edge_parent = work.weight[t], work.received[t], edges.first, edges.parent
    n_found = members(touched, number)
    touched[:] = 0
    child, n_children = 0, len(edge_first) - 1
    first[0] = 0
    for n in range(n_found):
        edge = number[n]
        while edge_first[child + 1] <= edge:
            child += 1
            first[child] = n
        children[n] = child
        parents[n] = edge_parent[edge]
        weights[n] = weight[edge]
        received[n] = 0.0
        weight[edge] = 0.0
    while child < n_children:
        child += 1
        first[child] = n_found


@njit(nogil=True)
def add_beside(total, edge_first, edge_parent, edge_weight, t, first, last, symbols, values):
    """total(A) += weight of the edge (A, B) of word t times value(B), B the entries first .. last-1 beside the word"""
    for entry in range(first, last):
        b = symbols[entry]
        for edge in range(edge_first[t, b], edge_first[t, b + 1]):
            total[edge_parent[t, edge]] += edge_weight[t, edge] * values[entry]


@njit(nogil=True)
def add_two_leaves(total, rules, pairs, left, tags, n_tags, right):
    """total(A) += P(A -> p p') left(p) right(p')"""
    pair_first, other, rule_first, matrix = pairs.first, pairs.other, pairs.rules, pairs.matrix
    rule_parent, rule_prob = rules.parent, rules.prob
    for n in range(n_tags):
        p = tags[n]
        for q in range(pair_first[p], pair_first[p + 1]):
            product = left[p] * right[other[q]]
            if product != 0.0:
                add_rules(total, rule_first, rule_parent, rule_prob, matrix, q, product)


# What inner loops call is inlined, and gets arrays one by one: calls and tuples of arrays cost more than the work.


@njit(inline="always")
def add_rules(total, rule_first, rule_parent, rule_prob, matrix, q, product):
    """total(A) += P(A -> q) product, for the parents A of pair q"""
    if len(matrix):
        for a in range(matrix.shape[1]):
            total[a] += matrix[q, a] * product
    else:
        for rule in range(rule_first[q], rule_first[q + 1]):
            total[rule_parent[rule]] += rule_prob[rule] * product


@njit(inline="always")
def from_parents(parent, rule_first, rule_parent, rule_prob, matrix, q):
    """Sum over A of P(A -> q) parent(A)."""
    given = 0.0
    if len(matrix):
        for a in range(matrix.shape[1]):
            given += matrix[q, a] * parent[a]
    else:
        for rule in range(rule_first[q], rule_first[q + 1]):
            given += rule_prob[rule] * parent[rule_parent[rule]]
    return given


# ---- inside ----------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True, fastmath=VECTORS)
def inside(grammar: CompiledGrammar, leaves: np.ndarray, is_full: bool, work: Workspace) -> tuple[int, float]:
    """Fill the chart from the (L, P) leaves; returns a status and, when DRIFTING, the bits per word to take off.

    With is_full every symbol of the right type is an entry, otherwise those that are possible.
    """
    length, n_interminals = len(leaves), len(grammar.root_inner)
    inner, first, last, symbols, values = grammar.inner, work.first, work.last, work.symbols, work.inside
    left_row, right_row, alpha, beta = work.left_row, work.right_row, work.alpha, work.beta
    left_pairs, right_pairs, live_pairs = work.left_pairs, work.right_pairs, work.live_pairs
    pair_left, pair_right, matrix = inner.left, inner.right, inner.matrix
    rule_first, rule_parent, rule_prob = inner.first, inner.parent, inner.prob
    by_left, left_first, by_right, right_first = inner.by_left, inner.left_first, inner.by_right, inner.right_first
    right_edges, left_edges, outside_values = work.right_edges, work.left_edges, work.outside
    n_entries, is_refused = 0, False
    total = np.zeros(max(n_interminals, inner.matrix.shape[1]))
    found, live = np.empty(n_interminals + 1, INDEX), np.empty(len(inner.left) + 1, INDEX)
    n_right, n_left = len(grammar.right_edges.parent), len(grammar.left_edges.parent)
    weight = np.zeros(max(n_right, n_left))
    touched = np.zeros((max(n_right, n_left) + WORD - 1) // WORD, np.uint64)
    tags, n_tags = find_leaves(leaves, is_full)
    reset_rows(left_row, length, left_first)
    reset_rows(right_row, length, right_first)
    top = NEVER_READ + block_after(length + 1)
    beta[:top] = 0.0
    if is_full:
        for x in range(length - 1):
            for a in range(n_interminals):
                if left_row[x, a] == NO_ROW:
                    top = new_row(left_row, x, a, block_before(x + 2), block_after(length + 1), top, alpha, beta)
                if right_row[x + 2, a] == NO_ROW:
                    top = new_row(right_row, x + 2, a, 0, block_after(x + 2), top, alpha, beta)

    for j in range(1, length + 1):
        cell = cell_of(j - 1, j, length)
        first[cell] = n_entries
        for n in range(n_tags[j - 1]):
            p = tags[j - 1, n]
            symbols[n_entries] = n_interminals + p
            values[n_entries] = leaves[j - 1, p]
            n_entries += 1
        last[cell] = n_entries
        find_edges(grammar.right_leaf, grammar.right_edges, leaves[j - 1], tags[j - 1], n_tags[j - 1], j - 1, weight,
                   touched, work.right_edges)
        find_edges(grammar.left_leaf, grammar.left_edges, leaves[j - 1], tags[j - 1], n_tags[j - 1], j - 1, weight,
                   touched, work.left_edges)
        work.least_left[j - 1, j] = np.inf
        work.least_right[j, j - 1] = np.inf
        for i in range(j - 2, -1, -1):
            cell = cell_of(i, j, length)
            if j - i == 2:
                add_two_leaves(total, grammar.two_leaves, grammar.leaf_pairs, leaves[i], tags[i], n_tags[i],
                               leaves[j - 1])
            else:
                side = cell_of(i, j - 1, length)
                add_beside(total, right_edges.first, right_edges.parent, right_edges.weight, j - 1, first[side],
                           last[side], symbols, values)
                side = cell_of(i + 1, j, length)
                add_beside(total, left_edges.first, left_edges.parent, left_edges.weight, i, first[side], last[side],
                           symbols, values)
            # total(A) += P(A -> B C) sum over k of alpha(B,i,k) alpha(C,k,j)
            common_members(left_pairs[i], right_pairs[j], i + 2, j - 1, live_pairs[cell])
            begin, end = uint64(block_before(i + 2)), uint64(block_after(j - 1))
            for n in range(members(live_pairs[cell], live)):
                q = live[n]
                product = dot(alpha, left_row[i, pair_left[q]], right_row[j, pair_right[q]], begin, end)
                is_refused |= product < SMALLEST
                add_rules(total, rule_first, rule_parent, rule_prob, matrix, q, product)

            first[cell] = n_entries
            n_found = 0
            for a in range(n_interminals):
                found[n_found] = a
                n_found += is_full or total[a] != 0.0
            largest, smallest = 0.0, np.inf
            cell_left, cell_right = left_pairs[i, j], right_pairs[j, i]
            cell_left[:] = 0
            cell_right[:] = 0
            for n in range(n_found):
                a = found[n]
                value = total[a]
                total[a] = 0.0
                symbols[n_entries] = a
                values[n_entries] = value
                outside_values[n_entries] = 0.0
                n_entries += 1
                if value == 0.0:
                    continue
                largest, smallest = max(largest, value), min(smallest, value)
                if left_row[i, a] == NO_ROW:
                    top = new_row(left_row, i, a, block_before(i + 2), block_after(length + 1), top, alpha, beta)
                if right_row[j, a] == NO_ROW:
                    top = new_row(right_row, j, a, 0, block_after(j), top, alpha, beta)
                alpha[left_row[i, a] + uint64(j)] = value
                alpha[right_row[j, a] + uint64(i)] = value
                add_members(cell_left, by_left, left_first[a], left_first[a + 1])
                add_members(cell_right, by_right, right_first[a], right_first[a + 1])
            last[cell] = n_entries
            work.least_left[i, j] = min(smallest, work.least_left[i, j - 1])
            work.least_right[j, i] = min(smallest, work.least_right[j, i + 1])
            if largest != 0.0:
                bits = math.frexp(largest)[1] if largest < np.inf else 1024
                if abs(bits) > DRIFT:
                    return DRIFTING, bits / (j - i)
    return (OUT_OF_RANGE if is_refused else DONE), 0.0


# ---- outside ---------------------------------------------------------------------------------------------------------


@njit(nogil=True)
def give_beside(parent, edges, t, first, last, symbols, values, outside):
    """Outside values of a parent for word t at its edge and for the entries first .. last-1 beside that word."""
    edge_first, edge_parent, edge_weight, edge_received = edges.first, edges.parent, edges.weight, edges.received
    for entry in range(first, last):
        b = symbols[entry]
        received = 0.0
        for edge in range(edge_first[t, b], edge_first[t, b + 1]):
            value = parent[edge_parent[t, edge]]
            received += edge_weight[t, edge] * value
            edge_received[t, edge] += value * values[entry]
        outside[entry] += received


@njit(nogil=True)
def give_beside_all(parent, edges, all_edges, t, first, last, values, outside, received):
    """The same where every symbol is an entry: received (E,) collects for all edges of the grammar."""
    child, edge_parent, weight, n_edges = edges.child, edges.parent, edges.weight, edges.first[t, last - first]
    for edge in range(n_edges):
        outside[first + child[t, edge]] += weight[t, edge] * parent[edge_parent[t, edge]]
    all_first, all_parent = all_edges.first, all_edges.parent
    for b in range(last - first):
        value = values[first + b]
        if value != 0.0:
            for edge in range(all_first[b], all_first[b + 1]):
                received[edge] += parent[all_parent[edge]] * value


@njit(nogil=True, fastmath=VECTORS)
def give_two_leaves(parent, rules, pairs, left, tags, n_tags, right, to_left, to_right, is_full):
    """Outside values of a parent for its two words."""
    pair_first, others, rule_first, matrix = pairs.first, pairs.other, pairs.rules, pairs.matrix
    rule_parent, rule_prob = rules.parent, rules.prob
    for n in range(n_tags):
        p = tags[n]
        for q in range(pair_first[p], pair_first[p + 1]):
            other = others[q]
            if is_full or right[other] != 0.0:
                given = from_parents(parent, rule_first, rule_parent, rule_prob, matrix, q)
                to_left[p] += given * right[other]
                to_right[other] += given * left[p]


@njit(nogil=True)
def give_to_tags(rules, edges, tags, n_tags, received, leaf_beta):
    """beta(p) += sum over the rules of p of P(A -> .. p ..) times what their edge has received."""
    rule_first, rule_prob, of_rule = rules.first, rules.prob, edges.of_rule
    for n in range(n_tags):
        p = tags[n]
        total = 0.0
        for rule in range(rule_first[p], rule_first[p + 1]):
            total += rule_prob[rule] * received[of_rule[rule]]
        leaf_beta[p] += total


@njit(nogil=True, cache=True, fastmath=VECTORS)
def outside(grammar: CompiledGrammar, leaves: np.ndarray, is_full: bool, work: Workspace) -> int:
    """Give every entry its outside value, from the whole sentence down to the words; returns a status."""
    length, n_preterminals = leaves.shape
    n_interminals = len(grammar.root_inner)
    inner, first, last, symbols, values = grammar.inner, work.first, work.last, work.symbols, work.inside
    left_row, right_row, alpha, beta = work.left_row, work.right_row, work.alpha, work.beta
    pair_left, pair_right, matrix = inner.left, inner.right, inner.matrix
    rule_first, rule_parent, rule_prob = inner.first, inner.parent, inner.prob
    outside_values, root = work.outside, grammar.root_inner
    n_right, n_left = len(grammar.right_edges.parent), len(grammar.left_edges.parent)
    is_refused = False
    parent = np.zeros(max(n_interminals, inner.matrix.shape[1]))  # beta(A, i, j) of the cell at hand
    pairs, given = np.empty(len(inner.left) + 1, INDEX), np.empty(len(inner.left) + 1)
    live = np.arange(len(inner.left)).astype(INDEX)
    leaf_beta = np.zeros((length, n_preterminals))
    tags, n_tags = find_leaves(leaves, is_full)
    # what every edge of the grammar receives from words that are right and left children
    n_words = length if is_full else 1
    right_received, left_received = np.zeros((n_words, n_right)), np.zeros((n_words, n_left))
    if length == 1:
        leaf_beta[0] = grammar.root_leaf

    for j in range(length, 1, -1):
        for i in range(j - 1):
            cell = cell_of(i, j, length)
            is_reached = False
            for entry in range(first[cell], last[cell]):
                a = symbols[entry]
                value = outside_values[entry] + beta[left_row[i, a] + uint64(j)] + beta[right_row[j, a] + uint64(i)]
                if j - i == length:
                    value = root[a]
                outside_values[entry] = value
                parent[a] = value
                is_reached |= value != 0.0
                is_refused |= value != 0.0 and not SMALLEST < value < LARGEST
            if not is_reached:
                continue

            right_side, left_side = cell_of(i, j - 1, length), cell_of(i + 1, j, length)
            if j - i == 2:
                give_two_leaves(parent, grammar.two_leaves, grammar.leaf_pairs, leaves[i], tags[i], n_tags[i],
                                leaves[j - 1], leaf_beta[i], leaf_beta[j - 1], is_full)
            elif is_full:
                give_beside_all(parent, work.right_edges, grammar.right_edges, j - 1, first[right_side],
                                last[right_side], values, outside_values, right_received[j - 1])
                give_beside_all(parent, work.left_edges, grammar.left_edges, i, first[left_side], last[left_side],
                                values, outside_values, left_received[i])
            else:
                give_beside(parent, work.right_edges, j - 1, first[right_side], last[right_side], symbols, values,
                            outside_values)
                give_beside(parent, work.left_edges, i, first[left_side], last[left_side], symbols, values,
                            outside_values)

            if j - i >= 4:
                n_live = len(inner.left) if is_full else members(work.live_pairs[cell], live)
                n_pairs, least = 0, np.inf
                for n in range(n_live):
                    pairs[n_pairs] = live[n]
                    value = from_parents(parent, rule_first, rule_parent, rule_prob, matrix, live[n])
                    given[n_pairs] = value
                    n_pairs += value != 0.0
                    least = min(least, value if value != 0.0 else np.inf)
                begin, end = uint64(block_before(i + 2)), uint64(block_after(j - 1))
                for n in range(n_pairs):
                    left, right = left_row[i, pair_left[pairs[n]]], right_row[j, pair_right[pairs[n]]]
                    add_row(given[n], alpha, right, beta, left, begin, end)
                    add_row(given[n], alpha, left, beta, right, begin, end)
                is_refused |= least * min(work.least_left[i, j - 2], work.least_right[j, i + 2]) < SMALLEST_TERM
            for entry in range(first[cell], last[cell]):
                parent[symbols[entry]] = 0.0

    for t in range(length):
        if not is_full:
            for edge in range(work.right_edges.first[t, n_interminals]):
                right_received[0, work.right_edges.number[t, edge]] = work.right_edges.received[t, edge]
            for edge in range(work.left_edges.first[t, n_interminals]):
                left_received[0, work.left_edges.number[t, edge]] = work.left_edges.received[t, edge]
        row = t if is_full else 0
        give_to_tags(grammar.right_leaf, grammar.right_edges, tags[t], n_tags[t], right_received[row], leaf_beta[t])
        give_to_tags(grammar.left_leaf, grammar.left_edges, tags[t], n_tags[t], left_received[row], leaf_beta[t])
        if not is_full:
            right_received[0] = 0.0
            left_received[0] = 0.0
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
