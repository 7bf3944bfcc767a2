"""What step k of training sees: order and masks from (seed, epoch, sentence), never from the number of processes.

The rows of a global batch are fixed by the seed and the step.  A row is `<s>` and a stretch of the sentences laid end
to end, each followed by `</s>`: one whole sentence, or with `packing` a block of that many tokens, which may cut the
sentences at its edges.  Processes share the rows out by length, so all have about the same work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pcfg_artifact.errors import ConfigError, StageError
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.packing import Batch, cut_by_tokens, pack
from pcfg_artifact.parsing.masks import Masking, hide, uniform
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.random_streams import derive_seed, stream


@dataclass(frozen=True)
class Step:
    """One process's share of a global batch."""

    batches: list[Batch]

    @property
    def n_predicted(self) -> int:
        """Predictions in the share."""
        return sum(len(batch.targets) for batch in self.batches)


class Pieces(NamedTuple):
    """All tokens of some rows but their <s>, row by row: one entry per token."""

    row: np.ndarray  # index into the rows asked for
    column: np.ndarray  # from 1, for <s> has 0
    sentence: np.ndarray
    position: np.ndarray  # in the sentence, from 0
    is_end: np.ndarray  # </s>, and no word


class TrainingCorpus(ABC):
    """Sentences (memory-mapped) as an endless sequence of global batches; what is predicted in them is a subclass's."""

    def __init__(self, sentences: Ragged, *, seed: int, batch_size: int, batch_tokens: int, max_length: int,
                 packing: int | None = None) -> None:
        lengths = np.diff(sentences.offsets)
        # Longer than the model's positions: left out, and the stage reports how many.  Packed ones are cut instead.
        fits = lengths <= max_length if packing is None else True
        self.usable = np.flatnonzero((lengths > 0) & fits).astype(np.int32)
        self.n_left_out = len(lengths) - len(self.usable)
        if not len(self.usable):
            raise StageError(f"none of the {len(lengths)} sentences has 1 to {max_length} words; sample more sentences "
                             f"or raise pretrain.max_length")
        self.sentences, self.seed = sentences, seed
        self.batch_size, self.batch_tokens, self.packing = batch_size, batch_tokens, packing
        # Of the usable sentences laid end to end with their </s>: where each begins, and where all end.
        self._begins = np.concatenate([[0], np.cumsum(lengths[self.usable] + 1)])
        self.n_rows = len(self.usable) if packing is None else -(-int(self._begins[-1]) // (packing - 1))
        self._order = lru_cache(maxsize=2)(self._shuffle)  # a global batch may straddle two epochs

    @property
    def tokens_of_row(self) -> float:
        """Mean number of tokens of a row, with <s>."""
        return float(self._begins[-1] / self.n_rows) + 1

    def _shuffle(self, epoch: int) -> np.ndarray:
        return stream(self.seed, "order", epoch).permutation(np.arange(self.n_rows, dtype=np.int32))

    def rows_of(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows (batch_size,) of a global batch, and the epoch that each belongs to."""
        place = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs = place // self.n_rows
        chosen = np.concatenate([self._order(int(epoch))[place[epochs == epoch] % self.n_rows]
                                 for epoch in np.unique(epochs)])
        return chosen, epochs

    def step(self, step: int, rank: int = 0, world_size: int = 1) -> Step:
        """The share of process `rank`: every world_size-th row of the global batch in order of length."""
        rows, epochs = self.rows_of(step)
        keys = np.array([derive_seed(self.seed, "mask", int(epoch)) for epoch in np.unique(epochs)], np.uint64)
        keys = keys[epochs - epochs[0]]
        widths = self._widths(rows)
        mine = np.argsort(-widths, kind="stable")[rank::world_size]
        return Step([self._batch(rows[chosen], keys[chosen], sizes)
                     for chosen, sizes in cut_by_tokens(mine, widths[mine], self.batch_tokens)])

    def in_order(self, name: str, rank: int = 0, world_size: int = 1, limit: int | None = None) -> Iterator[Batch]:
        """Every row (or the first `limit`) once, under the masks called `name`."""
        rows = np.arange(self.n_rows)[:limit]
        widths = self._widths(rows)
        by_length = np.argsort(-widths, kind="stable")
        key = derive_seed(self.seed, "mask", name)
        for chosen, sizes in cut_by_tokens(by_length, widths[by_length], self.batch_tokens)[rank::world_size]:
            yield self._batch(rows[chosen], np.full(len(chosen), key, np.uint64), sizes)

    def _bounds(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First token of each row in the sentences laid end to end, and one past its last."""
        if self.packing is None:
            return self._begins[rows], self._begins[rows + 1]
        begin = rows.astype(np.int64) * (self.packing - 1)
        return begin, np.minimum(begin + self.packing - 1, self._begins[-1])

    def _widths(self, rows: np.ndarray) -> np.ndarray:
        begin, end = self._bounds(rows)
        return end - begin + 1  # with <s>

    def _pieces(self, rows: np.ndarray) -> Pieces:
        begin, end = self._bounds(rows)
        first, last = (np.searchsorted(self._begins, at, side="right") - 1 for at in (begin, end - 1))
        row, nth = _repeated(last - first + 1)
        which = first[row] + nth  # of the usable sentences: each pair (row, sentence in it)
        low, high = np.maximum(self._begins[which], begin[row]), np.minimum(self._begins[which + 1], end[row])
        pair, nth = _repeated(high - low)
        at, row, which = low[pair] + nth, row[pair], which[pair]
        return Pieces(row, at - begin[row] + 1, self.usable[which], at - self._begins[which],
                      at == self._begins[which + 1] - 1)

    def _words(self, pieces: Pieces) -> np.ndarray:
        """(n,) the word of every piece.  A </s> lies one past the words of its sentence: the last stands in for it."""
        at = self.sentences.offsets[pieces.sentence] + pieces.position - pieces.is_end
        return np.asarray(self.sentences.values[at], np.int64)

    @abstractmethod
    def _batch(self, rows: np.ndarray, keys: np.ndarray, sizes: list[int]) -> Batch:
        """The rows as a micro-batch, in rectangles of `sizes` rows."""


class MaskedCorpus(TrainingCorpus):
    """Some words are hidden, and predicted where they stand."""

    def __init__(self, sentences: Ragged, *, n_words: int, masking: Masking, **options: Any) -> None:
        super().__init__(sentences, **options)
        self.n_words, self.masking = n_words, masking
        if masking.any_token and masking.corruption != "mask":
            raise ConfigError(f"any token of a row is hidden by <mask> alone, found the corruption "
                              f"{masking.corruption!r}; set pretrain.corruption=mask or pretrain.mask_any_token=false")

    def _is_masked(self, pieces: Pieces, keys: np.ndarray) -> np.ndarray:
        drawn = uniform(keys[pieces.row], pieces.sentence, pieces.position)
        if not self.masking.any_token:
            return (drawn < self.masking.rate) & ~pieces.is_end
        n_tokens = np.bincount(pieces.row)
        chance = uniform(keys ^ np.uint64(3), np.uint64(0), np.zeros(len(n_tokens), np.int64))
        chosen = (self.masking.rate * n_tokens + chance).astype(np.int64)  # of each row, those that were drawn lowest
        row, nth = _repeated(n_tokens)
        is_masked = np.empty(len(drawn), bool)
        is_masked[np.lexsort((drawn, pieces.row))] = nth < chosen[row]
        return is_masked

    def _batch(self, rows: np.ndarray, keys: np.ndarray, sizes: list[int]) -> Batch:
        pieces = self._pieces(rows)
        words = self._words(pieces)
        is_masked = self._is_masked(pieces, keys)
        truth = np.where(pieces.is_end, tokens.END, tokens.of_words(words))
        if self.masking.any_token:
            ids = np.where(is_masked, tokens.MASK, truth)
        else:
            _, seen = hide(words, keys[pieces.row], pieces.sentence, pieces.position, self.masking, self.n_words)
            ids = np.where(pieces.is_end, tokens.END, tokens.of_words(seen))
        return pack(pieces.row, pieces.column, ids, is_masked, truth, sizes)


class NextWordCorpus(TrainingCorpus):
    """Nothing is hidden: every word and every end of a sentence is predicted from what stands before it."""

    def _batch(self, rows: np.ndarray, keys: np.ndarray, sizes: list[int]) -> Batch:
        pieces = self._pieces(rows)
        ids = np.where(pieces.is_end, tokens.END, tokens.of_words(self._words(pieces)))
        return pack(pieces.row, pieces.column, ids, np.ones(len(ids), bool), ids, sizes, ahead=1)


def _repeated(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each of counts[k] copies of every k: k, and which copy it is, from 0."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
