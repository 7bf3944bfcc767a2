"""What the constructed transformers share: embeddings of tokens, layers of attention, linear read-outs at the end."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Self, cast

import numpy as np
import torch
from torch import nn

from pcfg_artifact.constructions.dense import DenseLayer, TransientDenseLayer
from pcfg_artifact.constructions.space import Space
from pcfg_artifact.constructions.structured import Contraction, StructuredLayer
from pcfg_artifact.constructions.weights import LayerWeights
from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.decoding import best_binary_tree
from pcfg_artifact.parsing.leaves import emissions, word_ids

BOUND = 2.0**100  # M, above every entry of the stream: for probabilities 1 is enough, and more costs nothing
RESIDENT_BYTES = 2**29  # dense weights up to this size stay in memory; larger ones are built layer by layer
BACKENDS = ("auto", "dense", "structured")

Sentence = Sequence[str]


def checked_length(max_length: int) -> int:
    if max_length < 1:
        raise UsageError(f"max_length is {max_length}, expected 1 or more: the L of the theorems, in words")
    return max_length


@dataclass(frozen=True)
class Readout:
    """Where a chart lies in the stream: spans of offset l in block `blocks[l]`, whose coordinates are the non-terminals
    `symbols[l]`; the span of words i .. j-1 at the token `row(i, j)`."""

    blocks: tuple[Hashable, ...]
    symbols: tuple[np.ndarray, ...]
    row: Callable[[int, int], int]


@dataclass(frozen=True)
class Plan:
    """A whole construction before it becomes tensors.

    leaf_blocks: the blocks that receive a word's leaf probabilities, whose coordinates are `leaf_symbols` (those of
    in-terminals stay 0).  position_rows[q]: coordinates that are 1 in the token at position q.  n_before, n_after: the
    number of tokens around the words (BOS, EOS).
    """

    space: Space
    layers: tuple[LayerWeights, ...]
    leaf_blocks: tuple[Hashable, ...]
    leaf_symbols: np.ndarray
    position_rows: tuple[tuple[int, ...], ...]
    inside: Readout
    outside: Readout
    n_before: int
    n_after: int


class ConstructedTransformer(nn.Module):
    """A transformer whose weights are read off a grammar.  All lengths 1 .. max_length run through all layers."""

    emission: torch.Tensor
    word_scale: torch.Tensor
    hidden_word: torch.Tensor
    arguments: dict[str, Any]  # of the constructor, for checkpoints

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        built = super().__new__(cls)
        object.__setattr__(built, "arguments", signature(cls.__init__).bind(built, *args, **kwargs).arguments)
        del built.arguments["self"]
        return built

    def __init__(self, grammar: PCFG, max_length: int, plan: Plan, *, backend: str = "auto",
                 dtype: torch.dtype = torch.float64, rescale: bool = False) -> None:
        super().__init__()
        if backend not in BACKENDS:
            raise UsageError(f"backend {backend!r} is unknown; expected one of {', '.join(BACKENDS)}")
        self.grammar, self.max_length, self.plan = grammar, max_length, plan
        size = torch.finfo(dtype).bits // 8
        # K, Q and V of every head; the K that heads share is counted once for them all
        n_bytes = sum((2 * layer.n_heads + len(layer.heads)) * plan.space.dim**2 * size for layer in plan.layers)
        self.backend = backend if backend != "auto" else "dense" if n_bytes <= RESIDENT_BYTES else "structured"
        shared: dict[int, Contraction] = {}
        layers: list[nn.Module]
        if self.backend == "structured":
            layers = [StructuredLayer(weights, dtype, shared) for weights in plan.layers]
        else:
            kind = DenseLayer if n_bytes <= RESIDENT_BYTES else TransientDenseLayer
            layers = [kind(weights, dtype) for weights in plan.layers]
        self.layers = nn.ModuleList(layers)
        emission = emission_matrix(grammar)
        scale = leaf_scale(grammar, emission) if rescale else np.ones(grammar.n_words)
        hidden = np.ones(grammar.n_preterminals) if grammar.is_proper else emission.sum(axis=0)
        for name, array in (("emission", emission), ("word_scale", scale), ("hidden_word", hidden)):
            self.register_buffer(name, torch.from_numpy(array).to(dtype))

    # ---- sizes, counted from the weights -------------------------------------------------------------------------

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @property
    def n_heads(self) -> int:
        return max(layer.n_heads for layer in self.plan.layers)

    @property
    def embedding_dim(self) -> int:
        return self.plan.space.dim

    # ---- forward -------------------------------------------------------------------------------------------------

    def forward(self, sentences: Sentence | Sequence[Sentence], masked: Sequence | None = None) -> torch.Tensor:
        """Last embeddings: (tokens, d) for one sentence, (batch, tokens, d) for a list; rows of padding are zero.

        masked: 0-based positions to hide behind [MASK] (for a list of sentences, one such list each).
        """
        *_, last = self.steps(sentences, masked)
        return last

    def steps(self, sentences: Sentence | Sequence[Sentence], masked: Sequence | None = None) -> Iterator[torch.Tensor]:
        """The embeddings before the first layer and after every layer."""
        is_one = len(sentences) == 0 or isinstance(sentences[0], (str, int, np.integer))
        batch = cast("list[Sentence]", [sentences] if is_one else list(sentences))
        hidden = [[]] * len(batch) if masked is None else [masked] if is_one else masked
        leaves = [self.leaf_weights(sentence, positions) for sentence, positions in zip(batch, hidden, strict=True)]
        for e in self.steps_from_leaves(leaves):
            yield e[0] if is_one else e

    def leaf_weights(self, sentence: Sentence, masked: Sequence[int] = ()) -> torch.Tensor:
        """(n, P): Pr[A -> w_i] of every word times its scale, 0 for a word that the grammar does not know.  At a masked
        position every pre-terminal has its whole mass, 1: the embedding of [MASK]."""
        n = len(sentence)
        if not 1 <= n <= self.max_length:
            raise UsageError(f"a sentence of {n} words was given to a construction for 1 to {self.max_length} words; "
                             f"build it with max_length={max(n, 1)}")
        if any(not 0 <= position < n for position in masked):
            raise UsageError(f"masked positions {list(masked)} lie outside the sentence; expected 0 to {n - 1}")
        ids = torch.from_numpy(word_ids(self.grammar, sentence)).to(self.emission.device)
        is_known = (ids >= 0).to(self.emission)
        leaves = self.emission[ids] * (self.word_scale[ids] * is_known)[:, None]
        leaves[list(masked)] = self.hidden_word
        return leaves

    def steps_from_leaves(self, leaves: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        """As `steps`, from the leaf weights (n, P) of each sentence: (batch, tokens, d)."""
        plan = self.plan
        leaf_coordinates = np.flatnonzero(plan.leaf_symbols >= self.grammar.n_interminals)
        leaf_columns = plan.leaf_symbols[leaf_coordinates] - self.grammar.n_interminals
        n_tokens = max(map(len, leaves)) + plan.n_before + plan.n_after
        # laid out (d, batch, token), see structured.py; seen as (batch, token, d)
        e = self.emission.new_zeros((plan.space.dim, len(leaves), n_tokens)).permute(1, 2, 0)
        for s, leaf in enumerate(leaves):
            for q in range(len(leaf) + plan.n_before + plan.n_after):
                e[s, q, list(plan.position_rows[q])] = 1
            for block in plan.leaf_blocks:
                words = slice(plan.n_before, plan.n_before + len(leaf))
                e[s, words, plan.space[block].start + leaf_coordinates] = leaf[:, leaf_columns].to(e)
        yield e
        for layer in self.layers:
            e = layer(e)
            yield e

    # ---- read-outs -------------------------------------------------------------------------------------------------

    def read_charts(self, embeddings: torch.Tensor) -> Any:
        """Inside and outside probabilities (L+1, L+1, N) of a sentence of L words; a list of pairs for a batch.

        With `rescale`, those of leaves multiplied by `word_scale`, which changes neither marginals nor predictions.
        """
        if embeddings.ndim == 3:
            return [self.read_charts(one) for one in embeddings]
        n = self._length(embeddings)
        stream = embeddings.double().cpu().numpy()
        inside, outside = (np.zeros((n + 1, n + 1, self.grammar.n_nonterminals)) for _ in range(2))
        for chart, readout in ((inside, self.plan.inside), (outside, self.plan.outside)):
            for offset in range(n):
                block, symbols = self.plan.space[readout.blocks[offset]], readout.symbols[offset]
                for i in range(n - offset):
                    chart[i, i + offset + 1, symbols] = stream[readout.row(i, i + offset + 1), block]
        return inside, outside

    def read_marginals(self, embeddings: torch.Tensor) -> Any:
        """Posterior probability (L+1, L+1, N) of every label of every span; 0 for an impossible sentence."""
        if embeddings.ndim == 3:
            return [self.read_marginals(one) for one in embeddings]
        inside, outside = self.read_charts(embeddings)
        total = float(inside[0, -1] @ outside[0, -1])
        return inside * outside / total if total > 0 else np.zeros_like(inside)

    def word_distributions(self, embeddings: torch.Tensor) -> np.ndarray:
        """(L, V): Pr[word at i | the rest of the sentence, L] for every position of one sentence (Theorem 3.3).

        sum_A Pr[A -> w] outside(A, i) / sum_B outside(B, i), both sums over pre-terminals.  The outside probability of
        a word does not depend on that word, so one pass without masks answers all positions; masked words elsewhere
        need a pass with those masks.  An impossible context gives a row of zeros.
        """
        n, readout = self._length(embeddings), self.plan.outside
        block, symbols = self.plan.space[readout.blocks[0]], readout.symbols[0]
        is_preterminal = symbols >= self.grammar.n_interminals
        rows = embeddings.double().cpu()[[readout.row(i, i + 1) for i in range(n)], block][:, is_preterminal]
        mass = rows.sum(-1, keepdim=True)
        weights = torch.where(mass > 0, rows / mass, torch.zeros_like(rows))
        preterminals = symbols[is_preterminal] - self.grammar.n_interminals
        return (weights @ self.emission[:, preterminals].T.double().cpu()).numpy()

    def _length(self, embeddings: torch.Tensor) -> int:
        """Words of the sentence.  Rows of padding are zero; every token carries the constant or its position."""
        return int((embeddings != 0).any(-1).sum()) - self.plan.n_before - self.plan.n_after


def sizes(model: ConstructedTransformer) -> dict[str, int]:
    """Layers, heads and dimensions as built; `claimed_sizes` in the module of each theorem has those of the paper."""
    return {"layers": model.n_layers, "heads": model.n_heads, "dimensions": model.embedding_dim}


def filled_cells(model: ConstructedTransformer, words: Sentence) -> list[dict[str, Any]]:
    """For every layer: its index from 1, its phase, the width of its spans, and their cells [i, j, largest entry].

    The root layer fills the cell of the whole sentence, a layer for wider spans none.
    """
    n, layers = len(words), []
    _, *steps = model.steps(words)
    for index, (weights, embeddings) in enumerate(zip(model.plan.layers, steps, strict=True), start=1):
        phase, width = weights.computes
        width = n if width is None else width
        inside, outside = model.read_charts(embeddings)
        chart = inside if phase == "inside" else outside
        cells = [[i, i + width, float(chart[i, i + width].max())] for i in range(n - width + 1)]
        layers.append({"layer": index, "phase": phase, "width": width, "cells": cells})
    return layers


def example(model: ConstructedTransformer, words: Sentence) -> dict[str, Any]:
    """A sentence parsed by the transformer: its spans, the marginal of every span's best label, and its layers."""
    scores = model.read_marginals(model(words)).max(axis=-1)
    return {"words": list(words), "spans": [list(span) for span in best_binary_tree(scores)],
            "span_score": scores.tolist(), "layers": filled_cells(model, words)}


def emission_matrix(grammar: PCFG) -> np.ndarray:
    """(V, P): Pr[A -> w]."""
    return emissions(grammar).of(np.arange(grammar.n_words))


def leaf_scale(grammar: PCFG, emission: np.ndarray) -> np.ndarray:
    """(V,) factors that keep charts near 1: one over the word's probability under the average pre-terminal."""
    counts = grammar.symbol_counts
    weights = np.ones(grammar.n_preterminals) if counts is None else counts[grammar.n_interminals:]
    unigram = emission @ (weights / weights.sum())
    return np.divide(1.0, unigram, out=np.ones(grammar.n_words), where=unigram > 0)
