"""The structured back-end: the same weights and the same residual stream, block by block, without the zeros.

A layer of Theorem 3.2 at N = 1600 has matrices of 51 GB each, nearly all zero.  Two facts make it small.  A key block
whose gate closes it for a shift t = j - i contributes exactly 0 there (checked on the numbers, not assumed).  And the
heads of a layer share their keys, so the products key_B * query_C are formed once for every pair (B, C) that some rule
needs, summed over all shifts, and given to the heads by one sparse product.

Tensors are (coordinate, batch, token): the symbol axis first makes gathering a pair's rows contiguous.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import torch
from torch import nn

from pcfg_artifact.constructions.weights import HardHeads, HeadMatrices, LayerWeights, RelativeHeads, Value


class Contraction(nn.Module):
    """HeadMatrices as: pairs (row, column) that occur, and entries that give each pair's product to the heads."""

    def __init__(self, matrices: HeadMatrices, dtype: torch.dtype) -> None:
        super().__init__()
        pairs, pair = np.unique(matrices.row * matrices.n_columns + matrices.column, return_inverse=True)
        row, column = np.divmod(pairs, matrices.n_columns)
        self.n_heads = matrices.n_heads
        self.largest_row_sum = float(np.bincount(matrices.head, np.abs(matrices.value), minlength=1).max())
        for name, array in (("row", row), ("column", column), ("pair", pair), ("head", matrices.head)):
            self.register_buffer(name, torch.from_numpy(np.asarray(array, np.int64)))
        self.register_buffer("value", torch.from_numpy(matrices.value).to(dtype))

    def zeros(self, like: torch.Tensor) -> torch.Tensor:
        return like.new_zeros((len(self.row), *like.shape[1:]))

    def add_products(self, products: torch.Tensor, key: torch.Tensor, query: torch.Tensor, shift: int) -> None:
        """products[pair, :, i] += key[row, :, i + shift] * query[column, :, i] wherever both tokens exist."""
        here, there = _overlap(key.shape[-1], shift)
        products[..., here].addcmul_(key[self.row][..., there], query[self.column][..., here])

    def to_heads(self, products: torch.Tensor) -> torch.Tensor:
        scores = products.new_zeros((self.n_heads, *products.shape[1:]))
        return scores.index_add_(0, self.head, products[self.pair].mul_(self.value[:, None, None]))


def _overlap(n_tokens: int, shift: int) -> tuple[slice, slice]:
    """The tokens i for which i + shift exists, and those tokens i + shift."""
    return slice(max(0, -shift), min(n_tokens, n_tokens - shift)), slice(max(0, shift), min(n_tokens, n_tokens + shift))


class StructuredLayer(nn.Module):
    """The same function of the residual stream as DenseLayer."""

    def __init__(self, weights: LayerWeights, dtype: torch.dtype = torch.float64,
                 shared: dict[int, Contraction] | None = None) -> None:
        """`shared` collects contractions by the identity of their matrices, so that layers keep one copy."""
        super().__init__()
        self.weights = weights
        self.contractions = {} if shared is None else shared
        used = {}
        for block in (block for heads in weights.heads for block in heads.queries):
            used[id(block.matrices)] = self.contractions.setdefault(id(block.matrices),
                                                                    Contraction(block.matrices, dtype))
        self.contractions = used
        self.owned = nn.ModuleList(used.values())

    @property
    def n_heads(self) -> int:
        return self.weights.n_heads

    def forward(self, e: torch.Tensor) -> torch.Tensor:
        updated = e.clone()
        for heads in self.weights.heads:
            add = self._add_relative if isinstance(heads, RelativeHeads) else self._add_hard
            add(heads, e, updated)
        for name in self.weights.clipped:
            block = updated[..., self.weights.space[name]]
            block += torch.relu(-block)
        return updated

    def _block(self, e: torch.Tensor, name: Hashable) -> torch.Tensor:
        return e[..., self.weights.space[name]].permute(2, 0, 1)

    def _reads(self, values: tuple[Value, ...], e: torch.Tensor) -> dict:
        """For every number that some head reads from the attended token: that number (batch, token), and the places
        (value block, column) where it is used."""
        reads: dict[tuple, tuple[torch.Tensor, list]] = {}
        for value in values:
            for column, functional in enumerate(value.read):
                key = (value.source, functional.tobytes())
                if key not in reads:
                    number = e[..., self.weights.space[value.source]] @ torch.from_numpy(functional).to(e)
                    reads[key] = (number, [])
                reads[key][1].append((value, column))
        return reads

    def _write(self, scores: torch.Tensor, places: list, updated: torch.Tensor) -> None:
        for value, column in places:
            m = value.matrices
            chosen = m.column == column
            head, row = (torch.from_numpy(index[chosen]).to(scores.device) for index in (m.head, m.row))
            weight = torch.from_numpy(m.value[chosen]).to(scores)[:, None, None]
            self._block(updated, value.target).index_add_(0, row, scores[head] * weight)

    def _add_relative(self, heads: RelativeHeads, e: torch.Tensor, updated: torch.Tensor) -> None:
        positions, n_tokens = self.weights.positions, e.shape[1]
        content = {block.key: block.scale * self._block(e, block.source) for block in heads.keys}
        gates = dict(zip(positions.keys.names, self.weights.gates().T, strict=True))
        shifts = range(-min(n_tokens - 1, positions.max_shift), min(n_tokens - 1, positions.max_shift) + 1)
        for number, places in self._reads(heads.values, e).values():
            products: dict[int, torch.Tensor] = {}
            for block in heads.queries:
                key = content[block.key]
                largest = float(key.max())
                # ReLU(key + gate) is exactly 0 for every token unless the largest entry passes the gate
                is_open = [t for t in shifts if largest + gates[block.key][t + positions.max_shift] > 0]
                if not is_open:
                    continue
                contraction = self.contractions[id(block.matrices)]
                total = products.setdefault(id(block.matrices), contraction.zeros(key))
                query = self._block(e, block.source)
                for t in is_open:
                    gate = float(gates[block.key][t + positions.max_shift])
                    # scores are linear in the gated key, so what V reads from token j may be multiplied in here
                    contraction.add_products(total, torch.relu(key + gate) * number, query, t)
            if products:  # the whole score first: terms that cancel in it must not reach the stream one by one
                scores = sum(self.contractions[name].to_heads(total) for name, total in products.items())
                self._write(scores, places, updated)

    def _add_hard(self, heads: HardHeads, e: torch.Tensor, updated: torch.Tensor) -> None:
        n_tokens = e.shape[1]
        position = e[..., self.weights.space["position"]]
        # [i, j] -> score of the position block, for every pair of tokens of every sentence
        table = position @ torch.from_numpy(heads.position).to(e).T @ position.transpose(1, 2)
        blocks = [(self.contractions[id(q.matrices)], self._block(e, q.key), self._block(e, q.source))
                  for q in heads.queries]
        is_real = position.sum(-1) > 0
        open_table = table.masked_fill(~(is_real[:, :, None] & is_real[:, None, :]), -torch.inf)
        bound = sum(float(key.abs().max()) * float(query.abs().max()) * contraction.largest_row_sum
                    for contraction, key, query in blocks)
        reads = self._reads(heads.values, e)
        for t in range(-(n_tokens - 1), n_tokens):
            here, there = _overlap(n_tokens, t)
            at_shift = torch.diagonal(table, t, 1, 2)
            if not float(torch.diagonal(open_table, t, 1, 2).max()) + bound > 0:
                continue  # no pair of tokens at this distance can score above 0
            score = e.new_zeros((heads.n_heads, *e.shape[:2]))
            products: dict[int, torch.Tensor] = {}
            for (contraction, key, query), block in zip(blocks, heads.queries, strict=True):
                total = products.setdefault(id(block.matrices), contraction.zeros(key))
                contraction.add_products(total, key, query, t)
            for name, total in products.items():
                score += self.contractions[name].to_heads(total)
            score[..., here] += at_shift
            score = torch.relu(score)
            for number, places in reads.values():
                read = score.new_zeros(score.shape)
                read[..., here] = score[..., here] * number[:, there]
                self._write(read, places, updated)
