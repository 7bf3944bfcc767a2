"""What step k of training sees: order and masks from (seed, epoch, sentence), never from the number of processes.

The sentences of a global batch are fixed by the seed and the step.  Processes share them out by length, so all have
about the same work, and cut their share into micro-batches by padded tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pcfg_artifact.errors import StageError
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.parsing.masks import Masking, hide, uniform
from pcfg_artifact.ragged import Ragged
from pcfg_artifact.seeding import derive_seed, stream

LEAST_FILLED = 0.85  # the shortest row of a micro-batch, as a share of its longest


@dataclass(frozen=True)
class Batch:
    """Rows of one micro-batch.  `where` holds flat positions in input_ids; attention_mask is None without padding."""

    input_ids: np.ndarray  # (rows, width) int64
    attention_mask: np.ndarray | None  # (rows, width) bool
    where: np.ndarray  # (masked,) int64
    targets: np.ndarray  # (masked,) int64 token ids
    n_tokens: int  # without padding, with <s> and </s>


@dataclass(frozen=True)
class Step:
    """One process's share of a global batch, and the number of masked words in the whole of it."""

    batches: list[Batch]
    n_masked: int


class MaskedCorpus:
    """Sentences (memory-mapped) as an endless sequence of masked global batches."""

    def __init__(self, sentences: Ragged, *, n_words: int, masking: Masking, seed: int, batch_size: int,
                 batch_tokens: int, max_length: int) -> None:
        lengths = np.diff(sentences.offsets)
        # Longer than the model's positions: left out, and the stage reports how many.
        self.usable = np.flatnonzero((lengths > 0) & (lengths <= max_length)).astype(np.int32)
        self.n_left_out = len(lengths) - len(self.usable)
        if not len(self.usable):
            raise StageError(f"none of the {len(lengths)} sentences has 1 to {max_length} words; sample more sentences "
                             f"or raise pretrain.max_length")
        self.sentences, self.n_words, self.masking, self.seed = sentences, n_words, masking, seed
        self.batch_size, self.batch_tokens = batch_size, batch_tokens
        self._order = lru_cache(maxsize=2)(self._shuffle)  # a global batch may straddle two epochs

    def _shuffle(self, epoch: int) -> np.ndarray:
        return stream(self.seed, "order", epoch).permutation(self.usable)

    def sentences_of(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Sentence numbers (batch_size,) of a global batch, and the epoch that each belongs to."""
        place = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs = place // len(self.usable)
        chosen = np.concatenate([self._order(int(epoch))[place[epochs == epoch] % len(self.usable)]
                                 for epoch in np.unique(epochs)])
        return chosen, epochs

    def step(self, step: int, rank: int = 0, world_size: int = 1) -> Step:
        """The share of process `rank`: every world_size-th sentence of the global batch in order of length."""
        chosen, epochs = self.sentences_of(step)
        keys = np.array([derive_seed(self.seed, "mask", int(epoch)) for epoch in np.unique(epochs)], np.uint64)
        keys = keys[epochs - epochs[0]]
        lengths = self._lengths(chosen)
        position = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        drawn = uniform(np.repeat(keys, lengths), np.repeat(chosen, lengths), position)
        mine = np.argsort(-lengths, kind="stable")[rank::world_size]
        batches = [self._batch(chosen[rows], lengths[rows], keys[rows])
                   for rows in cut_by_tokens(mine, lengths[mine] + 2, self.batch_tokens)]
        return Step(batches, int((drawn < self.masking.rate).sum()))

    def in_order(self, name: str, rank: int = 0, world_size: int = 1, limit: int | None = None) -> Iterator[Batch]:
        """Every usable sentence (or the first `limit`) once, under the masks called `name`."""
        chosen = self.usable[:limit]
        lengths = self._lengths(chosen)
        keys = np.full(len(chosen), derive_seed(self.seed, "mask", name), np.uint64)
        by_length = np.argsort(-lengths, kind="stable")
        for rows in cut_by_tokens(by_length, lengths[by_length] + 2, self.batch_tokens)[rank::world_size]:
            yield self._batch(chosen[rows], lengths[rows], keys[rows])

    def _lengths(self, chosen: np.ndarray) -> np.ndarray:
        return self.sentences.offsets[chosen + 1] - self.sentences.offsets[chosen]

    def _batch(self, chosen: np.ndarray, lengths: np.ndarray, keys: np.ndarray) -> Batch:
        position = np.arange(lengths.max())
        is_word = position < lengths[:, None]
        start = self.sentences.offsets[chosen][:, None]
        words = np.asarray(self.sentences.values[np.where(is_word, start + position, start)], np.int64)
        is_masked, seen = hide(words, keys[:, None], chosen[:, None], position, self.masking, self.n_words)
        return assemble(words, seen, is_masked & is_word, lengths)


def assemble(words: np.ndarray, seen: np.ndarray, is_masked: np.ndarray, lengths: np.ndarray) -> Batch:
    """A micro-batch from padded word ids (rows, longest): `words` is the truth, `seen` the input with -1 for <mask>."""
    rows, longest = words.shape
    is_word = np.arange(longest) < lengths[:, None]
    input_ids = np.full((rows, longest + 2), tokens.PAD, np.int64)
    input_ids[:, 0] = tokens.BEGIN
    input_ids[:, 1:-1][is_word] = np.where(seen < 0, tokens.MASK, seen + tokens.FIRST_WORD)[is_word]
    input_ids[np.arange(rows), lengths + 1] = tokens.END
    row, column = np.nonzero(is_masked)
    is_even = lengths.min() == longest
    return Batch(input_ids=input_ids,
                 attention_mask=None if is_even else np.arange(longest + 2) < lengths[:, None] + 2,
                 where=row * (longest + 2) + column + 1, targets=words[row, column] + tokens.FIRST_WORD,
                 n_tokens=int(lengths.sum() + 2 * rows))


def cut_by_tokens(rows: np.ndarray, widths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Cut rows, longest first, into runs of at most `batch_tokens` padded tokens (always at least one row).

    A run that is a quarter full also ends before a row that would be mostly padding: short launches cost, padding too.
    """
    runs, start = [], 0
    while start < len(rows):
        longest = int(widths[start])
        full = start + max(1, batch_tokens // longest)
        worth_launching = start + max(1, batch_tokens // (4 * longest))
        alike = start + int(np.searchsorted(-widths[start:], -LEAST_FILLED * longest, side="right"))
        end = min(full, max(worth_launching, alike))
        runs.append(rows[start:end])
        start = end
    return runs
