"""The dense back-end: every K, Q and V a full matrix, and the forward pass is the formula of the theorem.

b batch, h head, i attending token, j attended token, d coordinate of the residual stream, k coordinate of the key.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from pcfg_artifact.constructions.weights import HardHeads, HeadValue, LayerWeights, RelativeHeads


def _value_matrices(values: tuple[HeadValue, ...], weights: LayerWeights, n_heads: int) -> np.ndarray:
    matrices = np.zeros((n_heads, weights.space.dim, weights.space.dim))
    for value in values:
        matrices[:, weights.space[value.target], weights.space[value.source]] += value.matrices.dense() @ value.read
    return matrices


class DenseHardHeads(nn.Module):
    """Scores ReLU(e_j . Q_h e_i); query (h, d, d) with rows for the key, value (h, d, d)."""

    query: torch.Tensor
    value: torch.Tensor

    def __init__(self, weights: LayerWeights, heads: HardHeads, dtype: torch.dtype) -> None:
        super().__init__()
        space = weights.space
        query = np.zeros((heads.n_heads, space.dim, space.dim))
        for block in heads.queries:
            query[:, space[block.key], space[block.source]] += block.matrices.dense()
        query[:, space["position"], space["position"]] += heads.position
        self.register_buffer("query", torch.from_numpy(query).to(dtype))
        self.register_buffer("value", torch.from_numpy(_value_matrices(heads.values, weights, heads.n_heads)).to(dtype))

    def scores(self, e: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.einsum("bjk,bhik->bhij", e, torch.einsum("hkd,bid->bhik", self.query, e)))


class DenseRelativeHeads(nn.Module):
    """Scores ReLU(K e_j + p_{j-i} - b_{j-i}) . Q_h e_i; key (d, d), query (h, d, d), gate (2 max_shift + 1, d)."""

    key: torch.Tensor
    query: torch.Tensor
    gate: torch.Tensor
    value: torch.Tensor

    def __init__(self, weights: LayerWeights, heads: RelativeHeads, dtype: torch.dtype) -> None:
        super().__init__()
        space, keys = weights.space, weights.relative_positions.keys
        key = np.zeros((space.dim, space.dim))
        for part in heads.keys:
            key[keys[part.key], space[part.source]] += part.scale * np.eye(space.width(part.source))
        query = np.zeros((heads.n_heads, space.dim, space.dim))
        for block in heads.queries:
            query[:, keys[block.key], space[block.source]] += block.matrices.dense()
        gates = weights.gates()
        gate = np.zeros((len(gates), space.dim))  # coordinates of the key beyond its named blocks stay unused
        gate[:, :keys.dim] = np.repeat(gates, keys.widths, axis=1)
        self.max_shift = weights.relative_positions.max_shift
        for name, array in (("key", key), ("query", query), ("gate", gate),
                            ("value", _value_matrices(heads.values, weights, heads.n_heads))):
            self.register_buffer(name, torch.from_numpy(array).to(dtype))

    def scores(self, e: torch.Tensor) -> torch.Tensor:
        position = torch.arange(e.shape[1], device=e.device)
        gate_ijk = self.gate[position[None, :] - position[:, None] + self.max_shift]
        keys_bijk = torch.relu((e @ self.key.T)[:, None] + gate_ijk)
        return torch.einsum("bijk,bhik->bhij", keys_bijk, torch.einsum("hkd,bid->bhik", self.query, e))


class FeedForward(nn.Module):
    """x + ReLU(-x) on the clipped blocks: their negative entries become 0."""

    inner: torch.Tensor
    outer: torch.Tensor

    def __init__(self, weights: LayerWeights, dtype: torch.dtype) -> None:
        super().__init__()
        chosen = np.concatenate([np.eye(weights.space.dim)[weights.space[name]] for name in weights.clipped])
        self.register_buffer("inner", torch.from_numpy(-chosen).to(dtype))
        self.register_buffer("outer", torch.from_numpy(chosen.T.copy()).to(dtype))

    def forward(self, e: torch.Tensor) -> torch.Tensor:
        return e + torch.relu(e @ self.inner.T) @ self.outer.T


class DenseLayer(nn.Module):
    """e_i + sum_h sum_j a^h_ij V_h e_j, and nothing else; a feed-forward part only where the weights ask for one."""

    def __init__(self, weights: LayerWeights, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self._parts = [DenseRelativeHeads(weights, heads, dtype) if isinstance(heads, RelativeHeads)
                       else DenseHardHeads(weights, heads, dtype) for heads in weights.heads]
        self.heads = nn.ModuleList(self._parts)  # torch keeps their buffers, the list before it their type
        self.feed_forward = FeedForward(weights, dtype) if weights.clipped else nn.Identity()

    def forward(self, e: torch.Tensor) -> torch.Tensor:
        update = torch.zeros_like(e)
        for heads in self._parts:
            moved_bhjd = torch.einsum("hdk,bjk->bhjd", heads.value, e)
            update += torch.einsum("bhij,bhjd->bid", heads.scores(e), moved_bhjd)
        return self.feed_forward(e + update)


class TransientDenseLayer(nn.Module):
    """A dense layer whose matrices exist only while it runs, for models that do not fit in memory as a whole."""

    def __init__(self, weights: LayerWeights, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.weights, self.dtype = weights, dtype

    def forward(self, e: torch.Tensor) -> torch.Tensor:
        return DenseLayer(self.weights, self.dtype).to(e.device)(e)
