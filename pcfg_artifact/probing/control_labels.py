"""Control tasks: random labels that depend on the words alone, hashed from the seed so that no table is needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from pcfg_artifact.system.random_streams import derive_seed


@lru_cache(maxsize=1 << 20)
def word_label(word: str, seed: int) -> int:
    """phi(w), uniform on {-1, 0, 1}."""
    return derive_seed(seed, "control word", word) % 3 - 1


@lru_cache(maxsize=1 << 20)
def pair_label(first: str, last: str, seed: int) -> float:
    """phi(w1, w2), uniform on [0, 1)."""
    return derive_seed(seed, "control pair", first, last) / 2**64


def word_labels(sentences: Sequence[Sequence[str]], seed: int) -> np.ndarray:
    """Labels of every word but the last of each sentence: the positions that have a relative depth."""
    return np.array([word_label(word, seed) for words in sentences for word in words[:-1]], dtype=np.int64)


def pair_labels(sentences: Sequence[Sequence[str]], width: int, seed: int) -> np.ndarray:
    """Labels of every span of this width from its first and last word, by sentence and start."""
    return np.array([pair_label(words[i], words[i + width - 1], seed)
                     for words in sentences for i in range(len(words) - width + 1)], dtype=np.float32)
