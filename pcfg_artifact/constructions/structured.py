"""The structured back-end: the same weights and the same residual stream, block by block, without the zeros.

A layer of Theorem 3.2 at N = 1600 has matrices of 51 GB each, nearly all zero.  Two facts make it small.  A key block
that is closed for a shift t = j - i contributes exactly 0 there, which is checked on the numbers.  And the heads of a
layer share their keys: the products key_B * query_C are formed once for every pair (B, C) in some rule, summed over all
shifts, and distributed to the heads by one sparse product.

Tensors are (coordinate, batch, token): the symbol axis first makes gathering a pair's rows contiguous.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import torch
from torch import nn

from pcfg_artifact.constructions.weights import HardHeads, HeadMatrices, HeadValue, LayerWeights, RelativeHeads


class Contraction(nn.Module):
    """HeadMatrices as the pairs (row, column) that occur, and entries that distribute each pair's product to heads."""

    row: torch.Tensor
    column: torch.Tensor
    pair: torch.Tensor
    head: torch.Tensor
    value: torch.Tensor

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
        """products[pair, :, i] += key[row, :, i + shift] * query[column, :, i] wherever both tokens exist.

        Pairs with a coordinate that is 0 in every token are left out: a block holds in-terminals or pre-terminals.
        """
        here, there = _overlap(key.shape[-1], shift)
        is_used = (key.abs().sum((1, 2)) > 0)[self.row] & (query.abs().sum((1, 2)) > 0)[self.column]
        active = torch.nonzero(is_used)[:, 0]
        product = query.index_select(0, self.column[active])
        product[..., :here.start] = 0
        product[..., here.stop:] = 0
        product[..., here] *= key.index_select(0, self.row[active])[..., there]
        products.index_add_(0, active, product)

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

    def forward(self, e: torch.Tensor) -> torch.Tensor:
        updated = e.clone()
        for heads in self.weights.heads:
            if isinstance(heads, RelativeHeads):
                self._add_relative(heads, e, updated)
            else:
                self._add_hard(heads, e, updated)
        for name in self.weights.clipped:
            block = updated[..., self.weights.space[name]]
            block += torch.relu(-block)
        return updated

    def _block(self, e: torch.Tensor, name: Hashable) -> torch.Tensor:
        return e[..., self.weights.space[name]].permute(2, 0, 1)

    def _numbers(self, value: HeadValue, e: torch.Tensor) -> torch.Tensor:
        """(m, batch, token): the numbers that V reads from an attended token."""
        return (e[..., self.weights.space[value.source]] @ torch.from_numpy(value.read).to(e).T).permute(2, 0, 1)

    def _write(self, value: HeadValue, amounts: torch.Tensor, updated: torch.Tensor) -> None:
        """amounts (H, m, batch, token): sum over attended tokens of score times number read."""
        m = value.matrices
        head, row, column = (torch.from_numpy(index).to(amounts.device) for index in (m.head, m.row, m.column))
        weight = torch.from_numpy(m.value).to(amounts)[:, None, None]
        self._block(updated, value.target).index_add_(0, row, amounts[head, column] * weight)

    def _add_relative(self, heads: RelativeHeads, e: torch.Tensor, updated: torch.Tensor) -> None:
        positions, n_tokens = self.weights.relative_positions, e.shape[1]
        content = {block.key: block.scale * self._block(e, block.source) for block in heads.keys}
        gates = dict(zip(positions.keys.names, self.weights.gates().T, strict=True))
        reach = min(n_tokens - 1, positions.max_shift)
        for value in heads.values:
            amounts = []
            for number in self._numbers(value, e):
                products: dict[int, torch.Tensor] = {}
                for block in heads.queries:
                    key, query = content[block.key], self._block(e, block.source)
                    contraction = self.contractions[id(block.matrices)]
                    total = products.setdefault(id(block.matrices), contraction.zeros(key))
                    largest = float(key.max())
                    for t in range(-reach, reach + 1):
                        gate = float(gates[block.key][t + positions.max_shift])
                        if largest + gate > 0:  # otherwise ReLU(key + gate) is exactly 0 for every token
                            # scores are linear in the gated key, so what V reads from token j is multiplied in here
                            contraction.add_products(total, torch.relu(key + gate) * number, query, t)
                # the whole score first: terms that cancel in it must not reach the stream one by one
                scores = [self.contractions[name].to_heads(total) for name, total in products.items()]
                amounts.append(sum(scores[1:], scores[0]))
            self._write(value, torch.stack(amounts, dim=1), updated)

    def _add_hard(self, heads: HardHeads, e: torch.Tensor, updated: torch.Tensor) -> None:
        n_tokens, position = e.shape[1], e[..., self.weights.space["position"]]
        # (batch, i, j): what the positions of two tokens add to their score; -inf where one is padding
        table = position @ torch.from_numpy(heads.position).to(e).T @ position.transpose(1, 2)
        is_real = position.sum(-1) > 0
        table = table.masked_fill(~(is_real[:, :, None] & is_real[:, None, :]), -torch.inf)
        blocks = [(self.contractions[id(q.matrices)], self._block(e, q.key), self._block(e, q.source))
                  for q in heads.queries]
        bound = sum(float(key.abs().max()) * float(query.abs().max()) * contraction.largest_row_sum
                    for contraction, key, query in blocks)
        numbers = [self._numbers(value, e) for value in heads.values]
        amounts = [e.new_zeros((heads.n_heads, *number.shape)) for number in numbers]
        for t in range(-(n_tokens - 1), n_tokens):
            here, there = _overlap(n_tokens, t)
            at_shift = torch.diagonal(table, t, 1, 2)
            if not float(at_shift.max()) + bound > 0:
                continue  # no pair of tokens at this distance can score above 0
            products: dict[Contraction, torch.Tensor] = {}
            for contraction, key, query in blocks:
                contraction.add_products(products.setdefault(contraction, contraction.zeros(key)), key, query, t)
            score = e.new_zeros((heads.n_heads, *e.shape[:2]))
            score += sum(contraction.to_heads(total) for contraction, total in products.items())
            score = torch.relu(score[..., here] + at_shift)
            for amount, number in zip(amounts, numbers, strict=True):
                amount[..., here] += score[:, None] * number[..., there]
        for value, amount in zip(heads.values, amounts, strict=True):
            self._write(value, amount, updated)
