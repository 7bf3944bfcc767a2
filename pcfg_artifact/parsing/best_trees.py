"""The k most probable trees of a sentence, exactly and lazily (Huang and Chiang, 2005, algorithm 3).

Viterbi gives the best value below every entry.  An entry is opened when its second best tree is asked for: its choices,
with the best trees of their children, then wait in a heap.  A choice that comes out puts in the same choice with the
next best tree of one child.  So few entries are ever opened, and those only as far as the answer needs.

Trees come in the order of their log probabilities in float64.  Trees of equal probability come in a fixed order that
has no meaning; where equals stand on both sides of the k-th place, any of them may be the ones inside.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import log_of
from pcfg_artifact.parsing.constraints import Constraints, Forbidden, all_forbidden, each_forbidden
from pcfg_artifact.parsing.cpu import typed_cells
from pcfg_artifact.parsing.cpu_kernels import logspace
from pcfg_artifact.parsing.cpu_kernels.rule_index import compiled
from pcfg_artifact.parsing.cpu_kernels.semiring import BEST
from pcfg_artifact.parsing.decoding import check_memory
from pcfg_artifact.parsing.forest import Forest, cell_rows, forest, log_choice, splits
from pcfg_artifact.parsing.leaves import Sentence, emissions, word_ids
from pcfg_artifact.treebank.tree import Tree

NO_NODE, NOT_OPEN = -1, -1


def kbest(grammar: PCFG, sentences: Sequence[Sentence], k: int, constraints: Sequence[Constraints] | None = None
          ) -> list[list[tuple[float, Tree]]]:
    """For every sentence its k most probable trees with their log probabilities, best first; all, where it has fewer.

    Labels, words and constraints are those of `viterbi`, of which these are the first k.
    """
    return list(each_kbest(grammar, sentences, k, constraints))


def each_kbest(grammar: PCFG, sentences: Sequence[Sentence], k: int,
               constraints: Sequence[Constraints] | None = None) -> Iterator[list[tuple[float, Tree]]]:
    """The same one by one."""
    if not k >= 1:
        raise UsageError(f"k is {k}, expected 1 or more trees")
    ids = [word_ids(grammar, sentence) for sentence in sentences]
    check_memory(max(map(len, ids), default=0), 2 * grammar.n_nonterminals)  # values, and the nodes of entries
    forbidden = all_forbidden(grammar, [len(words) for words in ids], constraints)
    roots, names = np.flatnonzero(grammar.root), grammar.nonterminals
    for words, closed in zip(ids, each_forbidden(forbidden, len(ids)), strict=True):
        if not len(words):
            yield []
            continue
        log_probs, tops, rows = best_derivations(_best_below(grammar, words, closed), roots,
                                                 log_of(grammar.root[roots]), k)
        subtrees: list[Tree] = []
        for symbol, i, _, left, right in rows.tolist():
            subtrees.append(Tree(names[symbol], word=grammar.words[words[i]]) if left == NO_NODE
                            else Tree(names[symbol], (subtrees[left], subtrees[right])))
        order = np.argsort(-log_probs, kind="stable")  # rounding may have put the last digits out of order
        yield [(float(log_probs[n]), subtrees[tops[n]]) for n in order]


def _best_below(grammar: PCFG, words: np.ndarray, forbidden: Forbidden) -> Forest:
    """Under every entry, the log probability of its best subtree."""
    log_leaves = log_of(forbidden.allowed_leaves(emissions(grammar).of(words), grammar.n_interminals))
    best = logspace.inside(compiled(grammar), log_leaves, forbidden, BEST)
    return forest(grammar, cell_rows(len(words)), typed_cells(len(words), best, log_leaves))


class OpenNodes(NamedTuple):
    """What is known of the entries met so far, node by node: lists of a compiled function.

    place: (symbol, i, j).  best: the choices of its best trees, best first.  waiting: a heap of choices that may come
    next.  n_followed: of its best choices, those whose followers wait, too; NOT_OPEN: nothing is known of it yet.
    is_exhausted: it has no more trees.  A choice is (minus log probability, split, rule, rank of the left child's tree,
    of the right one's).
    """

    place: Any
    best: Any
    waiting: Any
    n_followed: Any
    is_exhausted: Any


@njit(nogil=True)
def no_choices():
    """An empty list, whose type the compiler can see."""
    return [(0.0, 0, 0, 0, 0) for _ in range(0)]


@njit(nogil=True)
def node_at(trees, node_of, work, a, i, j):
    """The number of an entry's node, which is made when it is first met."""
    row = trees.rows[i, j]
    if node_of[row, a] == NO_NODE:
        is_leaf = a >= trees.n_interminals
        node_of[row, a] = len(work.place)
        work.place.append((a, i, j))
        work.best.append(no_choices())
        work.waiting.append(no_choices())
        work.n_followed.append(NOT_OPEN)
        work.is_exhausted.append(is_leaf)
        if is_leaf:
            work.best[-1].append((-trees.log_weight[row, a], i, 0, 0, 0))
    return node_of[row, a]


@njit(nogil=True)
def log_value(trees, work, node, rank):
    """Log probability of the tree of this rank under a node, which has it."""
    if rank < len(work.best[node]):
        return -work.best[node][rank][0]
    a, i, j = work.place[node]
    return trees.log_weight[trees.rows[i, j], a]


@njit(nogil=True)
def open_node(trees, work, node, k):
    """Put the k best choices, each with the best trees of its children, into the heap: nothing else can be needed."""
    a, i, j = work.place[node]
    found = no_choices()  # a heap whose top is the worst
    for rule in range(trees.first[a], trees.first[a + 1]):
        low, high = splits(trees, rule, i, j)
        for split in range(low, high):
            value = log_choice(trees, rule, i, split, j)
            if value == -np.inf or (len(found) == k and value <= found[0][0]):
                continue
            if len(found) == k:
                heapq.heapreplace(found, (value, split, rule, 0, 0))
            else:
                heapq.heappush(found, (value, split, rule, 0, 0))
    for value, split, rule, left, right in found:
        heapq.heappush(work.waiting[node], (-value, split, rule, left, right))
    work.n_followed[node] = 0


@njit(nogil=True)
def ask(trees, node_of, work, node, rank, k):
    """Find the trees of a node up to this rank; returns whether it has so many."""
    asked = [(node, rank)]
    while len(asked) > 0:
        n, wanted = asked[-1]
        if wanted < len(work.best[n]) or work.is_exhausted[n]:
            asked.pop()
            continue
        if work.n_followed[n] == NOT_OPEN:
            open_node(trees, work, n, k)
        if work.n_followed[n] < len(work.best[n]):
            _, split, rule, left_rank, right_rank = work.best[n][-1]
            _, i, j = work.place[n]
            left = node_at(trees, node_of, work, trees.left[rule], i, split)
            right = node_at(trees, node_of, work, trees.right[rule], split, j)
            # The left rank rises only where the right one is 0, so that no pair of ranks comes twice.
            if right_rank + 1 >= len(work.best[right]) and not work.is_exhausted[right]:
                asked.append((right, right_rank + 1))
                continue
            if right_rank == 0 and left_rank + 1 >= len(work.best[left]) and not work.is_exhausted[left]:
                asked.append((left, left_rank + 1))
                continue
            if right_rank + 1 < len(work.best[right]):
                value = trees.log_prob[rule] + log_value(trees, work, left, left_rank) \
                    + log_value(trees, work, right, right_rank + 1)
                heapq.heappush(work.waiting[n], (-value, split, rule, left_rank, right_rank + 1))
            if right_rank == 0 and left_rank + 1 < len(work.best[left]):
                value = trees.log_prob[rule] + log_value(trees, work, left, left_rank + 1) \
                    + log_value(trees, work, right, 0)
                heapq.heappush(work.waiting[n], (-value, split, rule, left_rank + 1, 0))
            work.n_followed[n] += 1
        if len(work.waiting[n]) == 0:
            work.is_exhausted[n] = True
        else:
            work.best[n].append(heapq.heappop(work.waiting[n]))
    return rank < len(work.best[node])


@njit(nogil=True)
def write_subtree(trees, node_of, work, node, rank, k, number, rows):
    """Append the subtrees of a node's tree to rows, children first, unless they are there; returns its own number.

    number: by (node, rank).  A row is symbol, i, j, and the numbers of both children, NO_NODE over one word.
    """
    todo = [(node, rank)]
    while len(todo) > 0:
        n, wanted = todo[-1]
        if (n, wanted) in number:
            todo.pop()
            continue
        a, i, j = work.place[n]
        if a >= trees.n_interminals:
            number[n, wanted] = len(rows)
            rows.append((a, i, j, NO_NODE, NO_NODE))
            continue
        ask(trees, node_of, work, n, wanted, k)
        _, split, rule, left_rank, right_rank = work.best[n][wanted]
        left = node_at(trees, node_of, work, trees.left[rule], i, split), left_rank
        right = node_at(trees, node_of, work, trees.right[rule], split, j), right_rank
        if left in number and right in number:
            number[n, wanted] = len(rows)
            rows.append((a, i, j, number[left], number[right]))
        else:
            todo.append(left)
            todo.append(right)
    return number[node, rank]


@njit(nogil=True, cache=True)
def best_derivations(trees: Forest, roots: np.ndarray, log_root: np.ndarray, k: int
                     ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n,) log probabilities of the n <= k best trees and the row of each; rows (E, 5) of `write_subtree`."""
    length = len(trees.rows) - 1
    node_of = np.full(trees.log_weight.shape, NO_NODE)
    work = OpenNodes([(0, 0, 0) for _ in range(0)], [no_choices() for _ in range(0)], [no_choices() for _ in range(0)],
                [0 for _ in range(0)], [False for _ in range(0)])
    rows, number = [(0, 0, 0, 0, 0) for _ in range(0)], {(0, 0): 0}
    number.clear()
    log_best = np.full(len(roots), -np.inf)  # of the next tree of every root
    ranks = np.zeros(len(roots), np.int64)
    for r in range(len(roots)):
        log_best[r] = log_root[r] + trees.log_weight[trees.rows[0, length], roots[r]]
    log_probs, tops, n_found = np.empty(k), np.empty(k, np.int64), 0
    while n_found < k and len(roots) > 0 and log_best.max() > -np.inf:
        r = int(log_best.argmax())
        top = node_at(trees, node_of, work, roots[r], 0, length)
        log_probs[n_found] = log_best[r]
        tops[n_found] = write_subtree(trees, node_of, work, top, ranks[r], k, number, rows)
        n_found += 1
        ranks[r] += 1
        log_best[r] = -np.inf
        if n_found < k and ask(trees, node_of, work, top, ranks[r], k):
            log_best[r] = log_root[r] + log_value(trees, work, top, ranks[r])
    table = np.empty((len(rows), 5), np.int64)
    for n in range(len(rows)):
        table[n, 0], table[n, 1], table[n, 2], table[n, 3], table[n, 4] = rows[n]
    return log_probs[:n_found], tops[:n_found], table
