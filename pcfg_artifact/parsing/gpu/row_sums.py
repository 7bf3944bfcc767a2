"""The rules of a grammar as kernels read them: sums over the entries of each row, rows of like degree side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from pcfg_artifact.parsing.cpu_kernels.rule_index import LeafEdges, LeafRules, RuleIndex

TILE = 128  # entries that a program takes at a step
MOST_COLUMNS = 16  # of them, those of one row
SHORT = np.iinfo(np.int16).max  # what 16 bits hold


def padded(n: int) -> int:
    """Columns of an array whose rows begin at multiples of 128 bytes, in float64."""
    return max(-(-n // 16) * 16, 16)


class Entries(NamedTuple):
    """The entries of all rows of one list: row (n,), the source that each multiplies, and with what.

    weight None: by a number of the word beside the span, weights[edge] there.  n_sources: what lies beyond is padding.
    """

    row: np.ndarray
    source: np.ndarray
    n_sources: int
    weight: np.ndarray | None = None
    edge: np.ndarray | None = None


class SlicedEntries(NamedTuple):
    """Entries in slices of rows: slice b has the steps first[b]:first[b + 1], each a tile of (rows, columns)."""

    first: torch.Tensor
    source: torch.Tensor  # beyond the last one where there is no entry; of edges, the edge
    other: torch.Tensor  # weights, or of edges the values that they multiply
    n_sources: int


class RowSum(NamedTuple):
    """Rows by falling number of entries; row n of slice b is that of symbol[b * rows + n], one that is none as padding.

    lists: entries that are weighted, and those of edges at the right and at the left of a span, as far as there are.
    """

    n_rows: int
    n_slices: int
    rows: int
    columns: int
    symbol: torch.Tensor
    lists: tuple[SlicedEntries, ...]


def row_sum(n_rows: int, lists: Sequence[Entries], dtype: torch.dtype, device: torch.device) -> RowSum:
    degree = sum(np.bincount(entries.row, minlength=n_rows) for entries in lists)
    mean = max(float(np.mean(degree)), 1.0) if n_rows else 1.0
    columns = min(1 << int(np.log2(mean)), MOST_COLUMNS)
    rows = TILE // columns
    order = np.argsort(-np.asarray(degree), kind="stable")
    n_slices = -(-n_rows // rows)
    symbol = np.full(n_slices * rows, n_rows)
    symbol[:n_rows] = order
    rank = np.empty(n_rows, np.int64)
    rank[order] = np.arange(n_rows)
    sliced = tuple(_sliced(entries, rank, n_slices, rows, columns, dtype, device) for entries in lists)
    return RowSum(n_rows, n_slices, rows, columns, indices(symbol, n_rows, device), sliced)


def _sliced(entries: Entries, rank: np.ndarray, n_slices: int, rows: int, columns: int, dtype: torch.dtype,
            device: torch.device) -> SlicedEntries:
    order = np.argsort(entries.row, kind="stable")  # entries of a row stay in their order
    row = entries.row[order].astype(np.int64)
    degree = np.bincount(row, minlength=len(rank))
    number = np.arange(len(row)) - np.repeat(np.cumsum(degree) - degree, degree)  # within its row
    longest = np.zeros(n_slices, np.int64)
    np.maximum.at(longest, rank // rows, degree)
    first = np.concatenate([[0], np.cumsum(-(-longest // columns))])
    place = ((first[rank[row] // rows] + number // columns) * rows + rank[row] % rows) * columns + number % columns
    index = np.full(int(first[-1]) * rows * columns, entries.n_sources, np.int64)
    index[place] = (entries.source if entries.edge is None else entries.edge)[order]
    other = np.zeros(len(index), np.float64 if entries.edge is None else np.int64)
    other[place] = (entries.source if entries.weight is None else entries.weight)[order]
    return SlicedEntries(
        torch.as_tensor(first.astype(np.int32), device=device), indices(index, entries.n_sources, device),
        torch.as_tensor(other, dtype=dtype, device=device) if entries.edge is None
        else indices(other, int(other.max(initial=0)), device), entries.n_sources)


def indices(values: np.ndarray, largest: int, device: torch.device) -> torch.Tensor:
    """In 16 bits where they fit."""
    return torch.as_tensor(values.astype(np.int16 if largest <= SHORT else np.int32), device=device)


class Pairs(NamedTuple):
    """Distinct pairs of children, by their left one: the symbols of both, and 0, 1, .. in their place."""

    left: torch.Tensor
    right: torch.Tensor
    number: torch.Tensor
    n: int


class EdgeEnds(NamedTuple):
    """Parent and child of every edge."""

    parent: torch.Tensor
    child: torch.Tensor
    n: int


class DeviceRules:
    """The rules of a grammar on one device; what each sum is of, for a span (i, j) and for its words.

    parents: pairs of in-terminals, and edges.  word_parents: pairs of pre-terminals.  children: what a span is given as
    a left and as a right child of pairs, and by the edges of the words beside it.  word_children: the same for
    pre-terminals, whose edges come first.  given, word_given: what parents give a pair.  right_words, left_words: what
    the pre-terminals of a word give its edges.
    """

    def __init__(self, grammar: RuleIndex, dtype: torch.dtype, device: torch.device) -> None:
        n_interminals, n_preterminals = grammar.n_interminals, grammar.n_preterminals
        self.row_size = padded(max(n_interminals, n_preterminals))
        inner, words = grammar.left_pairs, grammar.leaf_pairs
        n_pairs, n_word_pairs = len(inner.left), len(words.other)
        word_left = np.repeat(np.arange(n_preterminals), np.diff(words.first))
        self.pairs = _pairs(inner.left, inner.right, grammar.n_interminals, device)
        self.word_pairs = _pairs(word_left, words.other, n_preterminals, device)
        right, left = grammar.right_edges, grammar.left_edges
        self.right_edges, self.left_edges = (
            EdgeEnds(indices(edges.parent, n_interminals, device), indices(edges.child, n_interminals, device),
                     len(edges.parent)) for edges in (right, left))
        pair_of_rule = np.repeat(np.arange(n_pairs), np.diff(inner.rules))
        pair_of_word_rule = np.repeat(np.arange(n_word_pairs), np.diff(words.rules))
        word_parent, word_prob = grammar.two_leaves.parent, grammar.two_leaves.prob
        # columns of what a span is given: as a left child, then as a right child
        self.right_column, self.word_right_column = padded(n_pairs), padded(n_word_pairs)
        self.left_edge_column = padded(right_n := len(right.parent))
        self.word_pair_column = self.left_edge_column + padded(len(left.parent))
        self.n_columns = max(2 * self.right_column, self.word_pair_column + 2 * self.word_right_column)

        def summed(n_rows: int, *lists: Entries) -> RowSum:
            return row_sum(n_rows, lists, dtype, device)

        self.parents = summed(
            n_interminals, Entries(inner.parent, pair_of_rule, n_pairs, inner.prob),
            _by_edge(right, right.parent, right.child), _by_edge(left, left.parent, left.child))
        self.word_parents = summed(n_interminals, Entries(word_parent, pair_of_word_rule, n_word_pairs, word_prob))
        ones, numbers = np.ones(2 * n_pairs), np.arange(n_pairs)
        self.children = summed(
            n_interminals,
            Entries(np.concatenate([inner.left, inner.right]), np.concatenate([numbers, self.right_column + numbers]),
                    self.n_columns, ones),
            _by_edge(right, right.child, right.parent), _by_edge(left, left.child, left.parent))
        numbers = self.word_pair_column + np.arange(n_word_pairs)
        right_leaf, right_edge = _by_word(grammar.right_leaf, right)
        left_leaf, left_edge = _by_word(grammar.left_leaf, left)
        self.word_children = summed(n_preterminals, Entries(
            np.concatenate([right_leaf, left_leaf, word_left, words.other]),
            np.concatenate([right_edge, self.left_edge_column + left_edge, numbers, self.word_right_column + numbers]),
            self.n_columns,
            np.concatenate([grammar.right_leaf.prob, grammar.left_leaf.prob, np.ones(2 * n_word_pairs)])))
        self.given = summed(n_pairs, Entries(pair_of_rule, inner.parent, n_interminals, inner.prob))
        self.word_given = summed(n_word_pairs, Entries(pair_of_word_rule, word_parent, n_interminals, word_prob))
        self.right_words = summed(right_n, Entries(right_edge, right_leaf, n_preterminals, grammar.right_leaf.prob))
        self.left_words = summed(len(left.parent),
                                 Entries(left_edge, left_leaf, n_preterminals, grammar.left_leaf.prob))
        self.root_inner, self.root_leaf = (torch.as_tensor(root, dtype=dtype, device=device)
                                           for root in (grammar.root_inner, grammar.root_leaf))


def _pairs(left: np.ndarray, right: np.ndarray, n_symbols: int, device: torch.device) -> Pairs:
    return Pairs(indices(left, n_symbols, device), indices(right, n_symbols, device),
                 indices(np.arange(len(left)), len(left), device), len(left))


def _by_edge(edges: LeafEdges, row: np.ndarray, value: np.ndarray) -> Entries:
    return Entries(row, value, len(edges.parent), edge=np.arange(len(edges.parent)))


def _by_word(rules: LeafRules, edges: LeafEdges) -> tuple[np.ndarray, np.ndarray]:
    """The pre-terminal and the edge of every rule."""
    return np.repeat(np.arange(len(rules.first) - 1), np.diff(rules.first)), edges.of_rule.astype(np.int64)
