"""inside_outside: one call, several engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.forbidden import Forbidden
from pcfg_artifact.parsing.leaves import Sentence, sentence_leaves
from pcfg_artifact.parsing.options import DEFAULT, EngineOptions, Outside, Precision
from pcfg_artifact.parsing.registry import engine_for


def inside_outside(grammar: PCFG, sentences: Sequence[Sentence], backend: str = "auto", device: str = "cpu",
                   outside: Outside = "pruned", dtype: Precision = "float64", n_threads: int | None = None
                   ) -> list[Chart]:
    """A chart for every sentence (a list of words, or an array of word ids), in order; options as in EngineOptions."""
    return list(each_chart(grammar, sentences, EngineOptions(backend, device, outside, dtype, n_threads)))


def each_chart(grammar: PCFG, sentences: Sequence[Sentence], options: EngineOptions = DEFAULT) -> Iterator[Chart]:
    """The charts of inside_outside one by one, in memory that does not grow with the number of sentences."""
    return leaf_charts(grammar, leaves_of(grammar, sentences), options)


def leaf_charts(grammar: PCFG, leaves: Sequence[np.ndarray], options: EngineOptions = DEFAULT,
                forbidden: Sequence[Forbidden] = ()) -> Iterator[Chart]:
    """The same for sentences given by their leaves, (L, P) each: any weights, so masks and noise are leaves too."""
    return engine_for(grammar, options).charts(leaves, forbidden)


def log_probabilities(grammar: PCFG, sentences: Sequence[Sentence], options: EngineOptions = DEFAULT
                      ) -> Iterator[float]:
    """Log probability of every sentence, in their order: the inside pass alone."""
    return engine_for(grammar, options).log_probs(leaves_of(grammar, sentences))


class LazyLeaves(Sequence[np.ndarray]):
    """Leaves of many sentences, each made when it is asked for."""

    def __init__(self, leaves_of: Callable[[int], np.ndarray], n_sentences: int) -> None:
        self._leaves_of, self._n_sentences = leaves_of, n_sentences

    def __len__(self) -> int:
        return self._n_sentences

    @overload
    def __getitem__(self, s: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, s: slice) -> LazyLeaves: ...
    def __getitem__(self, s: int | slice) -> np.ndarray | LazyLeaves:
        if isinstance(s, slice):
            chosen = range(self._n_sentences)[s]
            return LazyLeaves(lambda n: self._leaves_of(chosen[n]), len(chosen))
        if not 0 <= s < self._n_sentences:
            raise IndexError(s)
        return self._leaves_of(s)


def leaves_of(grammar: PCFG, sentences: Sequence[Sentence]) -> LazyLeaves:
    return LazyLeaves(lambda s: sentence_leaves(grammar, sentences[s]), len(sentences))
