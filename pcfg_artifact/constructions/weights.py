"""The description of a constructed transformer's weights: blocks between named coordinates, for both back-ends.

A layer computes, for every token i,   e_i + sum_h sum_j a^h_ij V_h e_j,   with the score a^h_ij of its theorem:

    Theorem 3.1 (hard attention)       ReLU( e_j . Q_h e_i )                                   `HardHeads`
    Theorem 3.2 (relative positions)   ReLU( K e_j + p_{j-i} - b_{j-i, layer} ) . Q_h e_i      `RelativeHeads`

Every matrix is a sum of blocks.  Most blocks hold the same rule probabilities, so they share one matrix.  Nothing below
knows what a chart or a grammar is.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from pcfg_artifact.constructions.space import Space


@dataclass(frozen=True, eq=False)
class HeadMatrices:
    """One (n_rows x n_columns) matrix for each of H heads, as a list of entries (head, row, column, value)."""

    n_heads: int
    n_rows: int
    n_columns: int
    head: np.ndarray
    row: np.ndarray
    column: np.ndarray
    value: np.ndarray

    @classmethod
    def from_dense(cls, array: np.ndarray) -> HeadMatrices:
        """From (H, rows, columns)."""
        n_heads, n_rows, n_columns = array.shape
        head, row, column = np.nonzero(array)
        return cls(n_heads, n_rows, n_columns, head, row, column, array[head, row, column])

    def dense(self) -> np.ndarray:
        array = np.zeros((self.n_heads, self.n_rows, self.n_columns))
        np.add.at(array, (self.head, self.row, self.column), self.value)
        return array

    def transposed(self) -> HeadMatrices:
        return HeadMatrices(self.n_heads, self.n_columns, self.n_rows, self.head, self.column, self.row, self.value)

    def negated(self) -> HeadMatrices:
        return HeadMatrices(self.n_heads, self.n_rows, self.n_columns, self.head, self.row, self.column, -self.value)

    def mixed(self, weights: np.ndarray) -> HeadMatrices:
        """Head r of the result is sum_h weights[r, h] * (head h); weights (k, H)."""
        cells, cell = np.unique(self.row * self.n_columns + self.column, return_inverse=True)
        table = np.zeros((self.n_heads, len(cells)))
        np.add.at(table, (self.head, cell), self.value)
        mixed = weights @ table
        head, cell = np.nonzero(mixed)
        row, column = np.divmod(cells[cell], self.n_columns)
        return HeadMatrices(len(weights), self.n_rows, self.n_columns, head, row, column, mixed[head, cell])


def one_head(matrix: np.ndarray) -> HeadMatrices:
    return HeadMatrices.from_dense(matrix[None])


def telescope(space: Space, union: Hashable, blocks: Sequence[Hashable], vectors: Sequence[np.ndarray],
              n_columns: int, first: int, is_added: bool = True, is_taken: bool = True) -> HeadMatrices:
    """One head: column first + l adds vectors[l] to blocks[l] (if is_added), column first + l + 1 subtracts it again
    (if is_taken).  Rows are coordinates of `union`; columns from n_columns on are left out.  If columns first ..
    first + n are read as 1, the sum telescopes to vectors[n] in blocks[n]."""
    entries = []
    for l, (block, vector) in enumerate(zip(blocks, vectors, strict=True)):
        rows = np.arange(space[block].start, space[block].stop) - space[union].start
        for column_at, sign, is_used in ((first + l, 1.0, is_added), (first + l + 1, -1.0, is_taken)):
            if is_used and column_at < n_columns:
                entries.append((rows, np.full(len(rows), column_at), sign * vector))
    row, column, value = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    kept = value != 0
    return HeadMatrices(1, space.width(union), n_columns, np.zeros(kept.sum(), np.int64), row[kept], column[kept],
                        value[kept])


def unit_columns(rows: np.ndarray, n_rows: int) -> HeadMatrices:
    """u_A for every head: head h writes to coordinate rows[h] of a block of n_rows."""
    heads = np.arange(len(rows))
    return HeadMatrices(len(rows), n_rows, 1, heads, rows, np.zeros_like(heads), np.ones(len(rows)))


@dataclass(frozen=True)
class Key:
    """A block of K: the key block `key` receives `scale` times the residual block `source`."""

    key: Hashable
    source: Hashable
    scale: float = 1.0


@dataclass(frozen=True)
class Query:
    """A block of every Q_h: rows are coordinates of the key, columns of the querying token's residual."""

    key: Hashable
    source: Hashable
    matrices: HeadMatrices


@dataclass(frozen=True)
class HeadValue:
    """A block of every V_h = matrices_h @ read: `read` (m x source width) takes m numbers from the attended token,
    `matrices` (H of target width x m) say where in the residual stream head h puts them."""

    target: Hashable
    matrices: HeadMatrices
    source: Hashable
    read: np.ndarray


@dataclass(frozen=True)
class HardHeads:
    """Heads of Theorem 3.1.  `position` is their block between position one-hots: [key position, query position]."""

    queries: tuple[Query, ...]
    position: np.ndarray
    values: tuple[HeadValue, ...]

    @property
    def n_heads(self) -> int:
        return self.values[0].matrices.n_heads


@dataclass(frozen=True)
class RelativeHeads:
    """Heads of Theorem 3.2, with one K."""

    keys: tuple[Key, ...]
    queries: tuple[Query, ...]
    values: tuple[HeadValue, ...]

    @property
    def n_heads(self) -> int:
        return self.values[0].matrices.n_heads


@dataclass(frozen=True)
class RelativePositions:
    """The vectors p_t of Theorem 3.2, one for t = -max_shift .. max_shift: constant on every block of the key space.

    table (2 max_shift + 1, n key blocks), columns in the order of `keys.names`.
    """

    keys: Space
    table: np.ndarray

    @property
    def max_shift(self) -> int:
        return len(self.table) // 2


@dataclass(frozen=True)
class LayerWeights:
    """One layer.  `positions` and `bias` (2 max_shift + 1,), the b_{t, layer}, are None under hard attention.

    `clipped` names residual blocks that the feed-forward part makes non-negative, x + ReLU(-x); none by default.
    `computes` is a label for people: ("inside", width), ("root", None) or ("outside", width).
    """

    computes: tuple[str, int | None]
    space: Space
    heads: tuple[HardHeads, ...] | tuple[RelativeHeads, ...]
    positions: RelativePositions | None = None
    bias: np.ndarray | None = None
    clipped: tuple[Hashable, ...] = ()

    @property
    def n_heads(self) -> int:
        return sum(heads.n_heads for heads in self.heads)

    @property
    def relative_positions(self) -> RelativePositions:
        """`positions` of a layer of Theorem 3.2."""
        if self.positions is None:
            raise TypeError(f"the layer that computes {self.computes} has hard attention: no relative positions")
        return self.positions

    def gates(self) -> np.ndarray:
        """p_t - b_t for every shift t and key block, exactly 0 on an open block; adding p to a tiny probability before
        subtracting b would lose the probability."""
        table = self.relative_positions.table
        return table - np.asarray(self.bias)[:, None]
