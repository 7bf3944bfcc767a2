"""Named random masks: which words of a sentence are hidden, decided by (key, sentence, position) and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

MASK_SHARE, RANDOM_SHARE, KEPT_SHARE = 0.8, 0.1, 0.1  # of the selected words, under 80/10/10
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # splitmix64's increment


Unsigned = np.ndarray | np.uint64
Corruption = Literal["mask", "80/10/10"]


@dataclass(frozen=True)
class Masking:
    """How inputs are hidden: a share of the words, all replaced by <mask>, or 80% <mask>, 10% any word, 10% kept.

    any_token: training rows hide, in the place of each word by chance, that share of their tokens, ends of sentences
    included, as fairseq does: rate times their number, rounded up or down by chance.
    """

    rate: float
    corruption: Corruption = "mask"
    any_token: bool = False


# The masks under which perplexities are measured, by their names in the tables.
NAMED_MASKS = {"mask 0.15": Masking(0.15), "mask 0.40": Masking(0.40), "corrupt 0.15": Masking(0.15, "80/10/10")}


class Channel(NamedTuple):
    """The likelihood of a visible word: P(o is shown | the word is w) = same [o = w] + other, for every o."""

    same: float
    other: float

    def given(self, shown: int, n_words: int) -> np.ndarray:
        """(n_words,) likelihood of every word, if `shown` is shown."""
        likelihood = np.full(n_words, self.other)
        likelihood[shown] += self.same
        return likelihood


def selected_channel(n_words: int) -> Channel:
    """Of a position that is known to have been selected under 80/10/10: kept, or any word at random."""
    return Channel(KEPT_SHARE, RANDOM_SHARE / n_words)


def visible_channel(masking: Masking, n_words: int) -> Channel:
    """Of any visible position: it was not selected or kept, or it is one of the words at random."""
    if masking.corruption == "mask":
        return Channel(1.0, 0.0)
    return Channel(1 - masking.rate + masking.rate * KEPT_SHARE, masking.rate * RANDOM_SHARE / n_words)


def hide(words: np.ndarray, keys: Unsigned, sentence: Unsigned, position: np.ndarray, masking: Masking, n_words: int
         ) -> tuple[np.ndarray, np.ndarray]:
    """Which words are to be predicted, and what the model sees in their place: a word, or -1 for <mask>."""
    is_masked = uniform(keys, sentence, position) < masking.rate
    if masking.corruption == "mask":
        return is_masked, np.where(is_masked, -1, words)
    kind = uniform(keys ^ np.uint64(1), sentence, position)
    other = (uniform(keys ^ np.uint64(2), sentence, position) * n_words).astype(np.int64)
    replacement = np.where(kind < MASK_SHARE, -1, np.where(kind < MASK_SHARE + RANDOM_SHARE, other, words))
    return is_masked, np.where(is_masked, replacement, words)


def uniform(key: Unsigned, sentence: Unsigned, position: np.ndarray) -> np.ndarray:
    """A number in [0, 1) for each (key, sentence, position): a counter-based hash, so any process can draw any mask."""
    key, sentence, position = (np.atleast_1d(x).astype(np.uint64) for x in (key, sentence, position))
    state = _mix(_mix(key + sentence * GOLDEN) + position * GOLDEN)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
