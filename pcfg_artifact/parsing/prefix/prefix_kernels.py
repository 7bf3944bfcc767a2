"""Reading a sentence from left to right, and looking back from any word: compiled kernels.

Legend.  i < k < j fenceposts, t the number of words read; A parent, B left child, C right child; p pre-terminal; q pair
of children (B, C).  Every value is divided by the probability of the words that it accounts for, given those before:

  forward[i, A]   expected number of A that begin at i, given words 1 .. i
  alpha(A, i, j)  probability that A yields words i+1 .. j, over P(those words | words 1 .. i)

so forward[i, A] * alpha(A, i, j) is the probability of a node A over (i, j), given words 1 .. j: nothing fades with the
length of the sentence.  Right children that begin at i after a left child (B, h, i) have the weight
  D(C, i) = sum over h, B of alpha(B, h, i) pair_weight[h, q]
where pair_weight[h, q] = sum over A of forward[h, A] P(A -> q),
and forward[i] = D(., i) R.  pair_open is pair_weight times the number of nodes from the root down to A.

Each kernel is compiled for both spaces of the semiring, LINEAR and LOG.  Linear space refuses (OUT_OF_RANGE) what would
leave the range of float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, uint64

from pcfg_artifact.parsing.chart_index import column_cell_of
from pcfg_artifact.parsing.cpu_kernels.rule_index import INDEX
from pcfg_artifact.parsing.cpu_kernels.semiring import Space, leaves_range, one, over, plus, times, zero
from pcfg_artifact.parsing.cpu_kernels.workspace import WORD, lowest_bit
from pcfg_artifact.parsing.prefix.prefix_grammar import Tables, add_left_children, begun_by, begun_with

NO_ROW = np.uint32(0xFFFFFFFF)
# What loops over cells call is inlined: calls with tuples of arrays cost more than the work.  Inner loops use arrays
# that were taken out of the tuples before: each use of a tuple there counts references and doubled the time of a word.
INLINED_EXACT = njit(nogil=True, forceinline=True)
DONE, OUT_OF_RANGE, IMPOSSIBLE = -1, -2, -3  # a status of 0 or more: out of room at the cell that begins there


class State(NamedTuple):
    """What is kept of the words read; X fenceposts of room, N symbols, Q pairs.

    row_of (X, N): row of (i, B), whose alpha(B, i, k) is alpha[row, k], possible where bit k of mask[i, B] is set.
    left_pairs (X, pair words): bits of the pairs whose left child begins at i and which some forward parent has.
    Cell (i, j) has the entries offsets[c]:offsets[c + 1], c = column_cell_of(i, j): symbols and values (alpha).
    The column at hand: right[C, k] = alpha(C, k, j), its bits right_mask, right_pairs, and is_right.
    """

    row_of: np.ndarray
    mask: np.ndarray
    left_pairs: np.ndarray
    forward: np.ndarray
    pair_weight: np.ndarray
    pair_open: np.ndarray
    alpha: np.ndarray
    offsets: np.ndarray
    symbols: np.ndarray
    values: np.ndarray
    right: np.ndarray
    right_mask: np.ndarray
    right_pairs: np.ndarray
    is_right: np.ndarray
    n_rows: np.ndarray
    live_pair: np.ndarray
    live_mask: np.ndarray


def new_state(grammar: Tables, longest: int) -> State:
    """Room for `longest` words; rows and entries grow when they are needed."""
    posts, n, n_pairs = longest + 1, len(grammar.root), len(grammar.left)
    pair_words, mask_words = -(-n_pairs // WORD), -(-posts // WORD)
    return State(
        row_of=np.full((posts, n), NO_ROW), mask=np.zeros((posts, n, mask_words), np.uint64),
        left_pairs=np.zeros((posts, pair_words), np.uint64), forward=np.empty((posts, n)),
        pair_weight=np.empty((posts, n_pairs)), pair_open=np.empty((posts, n_pairs)),
        alpha=np.empty((16 * posts + n, posts)), offsets=np.zeros(posts * longest // 2 + 1, np.int64),
        symbols=np.empty(8 * posts * posts + n, INDEX), values=np.empty(8 * posts * posts + n),
        right=np.empty((n, posts)), right_mask=np.zeros((n, mask_words), np.uint64),
        right_pairs=np.zeros(pair_words, np.uint64), is_right=np.zeros(n, np.bool_), n_rows=np.zeros(1, np.int64),
        live_pair=np.empty(n_pairs + 1, INDEX), live_mask=np.empty(n_pairs + 1, np.uint64))


# ---- what may follow ------------------------------------------------------------------------------------------------


@njit(nogil=True)
def predict(grammar, state, i, begun, above, next_word, space):
    """Fill forward[i], the weights of pairs and of next words; returns whether a value left the range.

    begun (N,): D(., i).  above (N,): the same times the number of nodes above.
    """
    n_interminals = len(grammar.corner_first) - 1
    forward = state.forward[i]
    forward[:] = begun
    forward[:n_interminals] = begun_by(grammar.closure, grammar.log_closure, begun[:n_interminals], space)
    left_children = np.full(len(begun), zero(space))
    add_left_children(grammar.corner_first, grammar.corner, grammar.corner_prob, forward[:n_interminals], left_children,
                      space)
    for p in range(n_interminals, len(begun)):
        forward[p] = plus(forward[p], left_children[p], space)
    is_refused = False
    for a in range(len(begun)):
        is_refused |= forward[a] != zero(space) and leaves_range(forward[a], space)

    # Nodes above a left child: those above its parent, and the parent.
    for a in range(n_interminals):
        left_children[a] = plus(left_children[a], above[a], space)
    path = begun_by(grammar.closure, grammar.log_closure, left_children[:n_interminals], space)
    for a in range(n_interminals):
        path[a] = plus(path[a], forward[a], space)
    for q in range(len(grammar.left)):
        weight, opened = zero(space), zero(space)
        for rule in range(grammar.first[q], grammar.first[q + 1]):
            a = grammar.parent[rule]
            weight = plus(weight, times(grammar.prob[rule], forward[a], space), space)
            opened = plus(opened, times(grammar.prob[rule], path[a], space), space)
        state.pair_weight[i, q] = weight
        state.pair_open[i, q] = opened

    next_word[:-1] = zero(space)
    for p in range(n_interminals, len(begun)):
        if forward[p] != zero(space):
            for e in range(grammar.word_first[p - n_interminals], grammar.word_first[p - n_interminals + 1]):
                w = grammar.word[e]
                next_word[w] = plus(next_word[w], times(forward[p], grammar.word_prob[e], space), space)
    return is_refused


@njit(nogil=True, cache=True)
def begin(grammar: Tables, state: State, next_word: np.ndarray, space: Space) -> bool:
    """Before the first word: the root symbols begin at 0, with nothing above them."""
    next_word[-1] = zero(space)
    return not predict(grammar, state, 0, grammar.root, np.full(len(grammar.root), zero(space)), next_word, space)


# ---- one more word ---------------------------------------------------------------------------------------------------


@njit(nogil=True)
def bits_between(low, high, word):
    """The bits of fenceposts low .. high-1 that lie in one word of a mask."""
    first, last = max(low - WORD * word, 0), min(high - WORD * word, WORD)
    if first >= last:
        return uint64(0)
    return (~uint64(0) << uint64(first)) & (~uint64(0) >> uint64(WORD - last))


@njit(nogil=True)
def lowest(word, bits):
    """Number of the lowest bit that is set in a word of a mask."""
    return uint64(WORD * word) + lowest_bit(bits)


@njit(nogil=True)
def without_lowest(bits):
    return bits & (bits - uint64(1))


@njit(nogil=True)
def list_live_pairs(left, right, left_pairs, right_pairs, mask, right_mask, live_pair, live_mask, word, between):
    """List the pairs with a possible split between two fenceposts; no branch depends on what is possible."""
    n_live = 0
    for pair_word in range(len(right_pairs)):
        pairs = left_pairs[pair_word] & right_pairs[pair_word]
        while pairs != 0:
            q = lowest(pair_word, pairs)
            splits = mask[left[q], word] & right_mask[right[q], word] & between
            live_pair[n_live] = q
            live_mask[n_live] = splits
            n_live += splits != 0
            pairs = without_lowest(pairs)
    return n_live


@INLINED_EXACT
def find_live_pairs(grammar, state, i, j, word):
    """List the pairs with a possible split of (i, j) in this word of the masks; returns how many."""
    return list_live_pairs(grammar.left, grammar.right, state.left_pairs[i], state.right_pairs, state.mask[i],
                           state.right_mask, state.live_pair, state.live_mask, word, bits_between(i + 1, j, word))


@njit(nogil=True)
def enter_right(right_first, by_right, is_right, right_pairs, right, right_mask, a, i, value):
    """Make (a, i, j) a possible right child in the column j at hand."""
    if not is_right[a]:
        is_right[a] = True
        for m in range(right_first[a], right_first[a + 1]):
            q = by_right[m]
            right_pairs[q // WORD] |= uint64(1) << uint64(q % WORD)
    right[a, i] = value
    right_mask[a, i // WORD] |= uint64(1) << uint64(i % WORD)


@INLINED_EXACT
def clear_column(state):
    for a in range(len(state.is_right)):
        if state.is_right[a]:
            state.is_right[a] = False
            state.right_mask[a] = 0
    state.right_pairs[:] = 0


@njit(nogil=True)
def enter_left(left_first, pair_weight, left_pairs, row_of, n_rows, a, space):
    """A row for a that begins here, and the bits of its pairs that some forward parent has."""
    row_of[a] = n_rows[0]
    n_rows[0] += 1
    for q in range(left_first[a], left_first[a + 1]):
        if pair_weight[q] != zero(space):
            left_pairs[q // WORD] |= uint64(1) << uint64(q % WORD)


@njit(nogil=True)
def list_possible(total, forward, found, space):
    """Write the symbols that are possible and may begin there to found; returns how many."""
    n_found = 0
    for a in range(len(total)):
        found[n_found] = a
        n_found += (total[a] != zero(space)) & (forward[a] != zero(space))
    return n_found


@INLINED_EXACT
def add_splits(grammar, state, i, j, total, space):
    """total(A) += sum over k, B, C of P(A -> B C) alpha(B,i,k) alpha(C,k,j); returns whether a sum leaves the range."""
    alpha, right, row_of, first, is_refused = state.alpha, state.right, state.row_of[i], grammar.first, False
    left_child, right_child, parent, prob = grammar.left, grammar.right, grammar.parent, grammar.prob
    for mask_word in range((i + 1) // WORD, (j - 1) // WORD + 1):
        for m in range(find_live_pairs(grammar, state, i, j, mask_word)):
            q, splits = state.live_pair[m], state.live_mask[m]
            row, c = row_of[left_child[q]], right_child[q]
            product = zero(space)
            while splits != 0:
                k = lowest(mask_word, splits)
                product = plus(product, times(alpha[row, k], right[c, k], space), space)
                splits = without_lowest(splits)
            is_refused |= leaves_range(product, space)
            for rule in range(first[q], first[q + 1]):
                a = parent[rule]
                total[a] = plus(total[a], times(prob[rule], product, space), space)
    return is_refused


@INLINED_EXACT
def enter_cell(grammar, state, i, j, total, found, space):
    """The possible symbols of (i, j) become entries, and total is 0 again; returns whether a value leaves the range.

    A symbol that cannot begin at i, after the words before, is in no tree.
    """
    cell, is_refused = column_cell_of(i, j), False
    entry, symbols, values, row_of = state.offsets[cell], state.symbols, state.values, state.row_of[i]
    left_first, pair_weight, left_pairs = grammar.left_first, state.pair_weight[i], state.left_pairs[i]
    alpha, mask, n_rows, right, right_mask = state.alpha, state.mask[i], state.n_rows, state.right, state.right_mask
    right_first, by_right = grammar.right_first, grammar.by_right
    is_right, right_pairs = state.is_right, state.right_pairs
    for m in range(list_possible(total, state.forward[i], found, space)):
        a = found[m]
        is_refused |= leaves_range(total[a], space)
        symbols[entry] = a
        values[entry] = total[a]
        if row_of[a] == NO_ROW:
            enter_left(left_first, pair_weight, left_pairs, row_of, n_rows, a, space)
        alpha[row_of[a], j] = total[a]
        mask[a, j // WORD] |= uint64(1) << uint64(j % WORD)
        enter_right(right_first, by_right, is_right, right_pairs, right, right_mask, a, i, total[a])
        entry += 1
    total[:] = zero(space)
    state.offsets[cell + 1] = entry
    return is_refused


@INLINED_EXACT
def begin_after(grammar, state, j, next_word, space):
    """What begins after the column j, and what may follow; returns whether a value leaves the range, and the expected
    number of open constituents."""
    n, is_refused, left_first, right_child = len(grammar.root), False, grammar.left_first, grammar.right
    symbols, values, offsets = state.symbols, state.values, state.offsets
    begun, above, end = np.full(n, zero(space)), np.full(n, zero(space)), zero(space)
    for i in range(j):
        cell, pair_weight, pair_open = column_cell_of(i, j), state.pair_weight[i], state.pair_open[i]
        for entry in range(offsets[cell], offsets[cell + 1]):
            b, value = symbols[entry], values[entry]
            if i == 0:
                end = plus(end, times(grammar.root[b], value, space), space)
            for q in range(left_first[b], left_first[b + 1]):
                weight = pair_weight[q]
                if weight != zero(space):
                    term, c = times(weight, value, space), right_child[q]
                    is_refused |= leaves_range(term, space)
                    begun[c] = plus(begun[c], term, space)
                    above[c] = plus(above[c], times(pair_open[q], value, space), space)
    next_word[-1] = end
    is_refused |= predict(grammar, state, j, begun, above, next_word, space)
    n_open = zero(space)
    for c in range(n):
        n_open = plus(n_open, above[c], space)
    return is_refused, n_open


@njit(nogil=True)
def read_word(grammar, state, j, word, prob, next_word, start, space):
    """Column j, from the cell that begins at `start` (j - 1 for a new word) leftwards; word j had probability `prob`.

    next_word (V + 1) gets the weights of what follows, the end last.  Returns a status and the expected number of
    open constituents.
    """
    n, is_refused = len(grammar.root), False
    total, found = np.full(n, zero(space)), np.empty(n + 1, INDEX)
    left_child, right_child, left_pairs, right_pairs = grammar.left, grammar.right, state.left_pairs, state.right_pairs
    mask, right_mask, live_pair, live_mask = state.mask, state.right_mask, state.live_pair, state.live_mask
    offsets, n_rows = state.offsets, state.n_rows
    last_entry, last_row = len(state.symbols) - n, len(state.alpha) - n
    for i in range(start, -1, -1):
        cell = column_cell_of(i, j)
        if offsets[cell] > last_entry or n_rows[0] > last_row:
            return i, 0.0
        if i == j - 1:
            for e in range(grammar.head_first[word], grammar.head_first[word + 1]):
                total[grammar.head[e]] = over(grammar.head_prob[e], prob, space)
        else:
            n_live = 0  # in long sentences hardly a cell has a pair, and asking costs a fifth of what follows
            for mask_word in range((i + 1) // WORD, (j - 1) // WORD + 1):
                n_live += list_live_pairs(left_child, right_child, left_pairs[i], right_pairs, mask[i], right_mask,
                                          live_pair, live_mask, mask_word, bits_between(i + 1, j, mask_word))
            if n_live == 0:
                offsets[cell + 1] = offsets[cell]
                continue
            is_refused |= add_splits(grammar, state, i, j, total, space)
        is_refused |= enter_cell(grammar, state, i, j, total, found, space)
        if is_refused:
            break
    clear_column(state)
    if is_refused:
        return OUT_OF_RANGE, 0.0
    is_refused, n_open = begin_after(grammar, state, j, next_word, space)
    return (OUT_OF_RANGE if is_refused else DONE), n_open


@njit(nogil=True, cache=True)
def read_words(grammar: Tables, state: State, t: int, words: np.ndarray, done: int, start: int, rows: np.ndarray,
               n_open: np.ndarray, space: Space) -> tuple[int, int]:
    """Read words[done:] after t + done words; returns a status and how many of `words` are done.

    rows (n + 1, V + 1): rows[m] are the weights of what may be words[m]; n_open (n + 1,) after each.  `start` is the
    status of a call that had no room for words[done], else DONE.
    """
    for m in range(done, len(words)):
        j, word = t + m + 1, words[m]
        if word < 0 or rows[m, word] == zero(space):
            return IMPOSSIBLE, m
        status, n_open[m + 1] = read_word(grammar, state, j, word, rows[m, word], rows[m + 1],
                                          start if start >= 0 else j - 1, space)
        start = DONE
        if status != DONE:
            return status, m
    return DONE, len(words)


# ---- looking back ----------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def n_begun(grammar: Tables, state: State, i: int, word: int, space: Space) -> float:
    """Expected number of constituents of two words or more that begin with word i + 1, given words 1 .. i + 1.

    They are the symbols between what begins at i, after a left sibling or at the root, and the word's pre-terminal:
    forward[i] R counts each chain of left corners once for every symbol on it.
    """
    n_interminals = len(grammar.corner_first) - 1
    chains = begun_by(grammar.closure, grammar.log_closure, state.forward[i, :n_interminals], space)
    above = np.full(len(grammar.root), zero(space))
    add_left_children(grammar.corner_first, grammar.corner, grammar.corner_prob, chains, above, space)
    counted, total = zero(space), zero(space)
    for e in range(grammar.head_first[word], grammar.head_first[word + 1]):
        p, prob = grammar.head[e], grammar.head_prob[e]
        counted = plus(counted, times(above[p], prob, space), space)
        total = plus(total, times(state.forward[i, p], prob, space), space)
    found = over(counted, total, space)
    return found if space is None else math.exp(found)


@njit(nogil=True)
def give_from_unfinished(grammar, state, t, beta, space):
    """beta of left children, from parents that have more to come.

    unfinished[k, C] is the probability, over that of the words, that a C beginning at k yields words k+1 .. t and has
    more to come; anything may begin at t.
    """
    n_pairs, n_interminals = len(grammar.left), len(grammar.corner_first) - 1
    unfinished = np.full((t + 1, len(grammar.root)), zero(space))
    unfinished[t] = one(space)
    for h in range(t - 1, -1, -1):
        from_pairs, from_rules = np.full(n_pairs, zero(space)), np.full(n_interminals, zero(space))
        for k in range(h + 1, t + 1):
            cell = column_cell_of(h, k)
            for entry in range(state.offsets[cell], state.offsets[cell + 1]):
                b, received = state.symbols[entry], zero(space)
                for q in range(grammar.left_first[b], grammar.left_first[b + 1]):
                    weight, to_come = state.pair_weight[h, q], unfinished[k, grammar.right[q]]
                    if weight != zero(space) and to_come != zero(space):
                        received = plus(received, times(weight, to_come, space), space)
                        from_pairs[q] = plus(from_pairs[q], times(state.values[entry], to_come, space), space)
                beta[state.row_of[h, b], k] = received
        for q in range(n_pairs):
            if from_pairs[q] != zero(space):
                for rule in range(grammar.first[q], grammar.first[q + 1]):
                    a = grammar.parent[rule]
                    from_rules[a] = plus(from_rules[a], times(grammar.prob[rule], from_pairs[q], space), space)
        values = begun_with(grammar.closure, grammar.log_closure, from_rules, space)
        for a in range(n_interminals):
            if state.forward[h, a] != zero(space):
                unfinished[h, a] = values[a]


@INLINED_EXACT
def give_to_children(grammar, state, i, j, parent, beta, right_beta, space):
    """beta of both children of every split of (i, j), from the values of its parents."""
    for mask_word in range((i + 1) // WORD, (j - 1) // WORD + 1):
        for m in range(find_live_pairs(grammar, state, i, j, mask_word)):
            q, splits = state.live_pair[m], state.live_mask[m]
            given = zero(space)
            for rule in range(grammar.first[q], grammar.first[q + 1]):
                given = plus(given, times(grammar.prob[rule], parent[grammar.parent[rule]], space), space)
            if given == zero(space):
                continue
            row, c = state.row_of[i, grammar.left[q]], grammar.right[q]
            while splits != 0:
                k = lowest(mask_word, splits)
                beta[row, k] = plus(beta[row, k], times(given, state.right[c, k], space), space)
                right_beta[c, k] = plus(right_beta[c, k], times(given, state.alpha[row, k], space), space)
                splits = without_lowest(splits)


@njit(nogil=True, cache=True)
def posteriors(grammar: Tables, state: State, t: int, has_ended: bool, space: Space) -> np.ndarray:
    """(entries of columns 1 .. t,) probability of every node, given words 1 .. t, and the end if it was read.

    A node receives from parents that are complete, and from those that are not.
    """
    n, offsets, symbols, values = len(grammar.root), state.offsets, state.symbols, state.values
    found, end = np.zeros(offsets[column_cell_of(0, t) + 1]), one(space)
    beta = np.full((state.n_rows[0], t + 1), zero(space))
    parent, right_beta = np.full(n, zero(space)), np.full((n, t + 1), zero(space))
    if has_ended:
        end = zero(space)
        for entry in range(offsets[column_cell_of(0, t)], len(found)):
            end = plus(end, times(grammar.root[symbols[entry]], values[entry], space), space)
        if end == zero(space):
            return found
    else:
        give_from_unfinished(grammar, state, t, beta, space)
    for j in range(t, 0, -1):
        for i in range(j):
            for entry in range(offsets[column_cell_of(i, j)], offsets[column_cell_of(i, j) + 1]):
                enter_right(grammar.right_first, grammar.by_right, state.is_right, state.right_pairs, state.right,
                            state.right_mask, symbols[entry], i, values[entry])
                right_beta[symbols[entry], i] = zero(space)
        for i in range(j):
            first, last = offsets[column_cell_of(i, j)], offsets[column_cell_of(i, j) + 1]
            for entry in range(first, last):
                a = symbols[entry]
                parent[a] = plus(beta[state.row_of[i, a], j], right_beta[a, i], space)
                if i == 0 and j == t:
                    parent[a] = plus(parent[a], over(grammar.root[a], end, space), space)
                posterior = times(parent[a], values[entry], space)
                found[entry] = posterior if space is None else math.exp(posterior)
            if j - i > 1:
                give_to_children(grammar, state, i, j, parent, beta, right_beta, space)
            for entry in range(first, last):
                parent[symbols[entry]] = zero(space)
        clear_column(state)
    return found
