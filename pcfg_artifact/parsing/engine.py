"""inside_outside: one call, several engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import Chart, SpanScores
from pcfg_artifact.parsing.constraints import Constraints, Forbidden, all_forbidden
from pcfg_artifact.parsing.leaves import Sentence, sentence_leaves
from pcfg_artifact.parsing.options import DEFAULT, EngineOptions, Outside, Precision
from pcfg_artifact.parsing.registry import ReducingEngine, engine_for

if TYPE_CHECKING:
    from pcfg_artifact.parsing.differentiable import RuleWeights


def inside_outside(grammar: PCFG, sentences: Sequence[Sentence], backend: str = "auto", device: str = "cpu",
                   outside: Outside = "pruned", dtype: Precision = "auto", n_threads: int | None = None,
                   constraints: Sequence[Constraints] | None = None, weights: RuleWeights | None = None) -> list[Chart]:
    """A chart for every sentence (a list of words, or an array of word ids), in order; options as in EngineOptions.

    constraints: for each sentence, spans that its tree must have or may not have, {(i, j): True, (k, l, "NP"): False};
    where no tree keeps them the sentence has probability 0, log_prob = -inf.
    With weights (differentiable.RuleWeights; backend="torch") each is a WeightedChart of those weights: its
    log_weight can be differentiated by them, and it has the expected count of every rule.
    """
    options = EngineOptions(backend, device, outside, dtype, n_threads)
    if weights is None:
        return list(each_chart(grammar, sentences, options, constraints))
    if backend != "torch":
        raise UsageError(f"weights are differentiated by torch, found backend={backend!r}; say backend='torch'")
    if constraints is not None:
        raise UsageError("weights and constraints were given, expected one of the two; a constrained sentence has no "
                         "gradient here")
    from pcfg_artifact.parsing.differentiable import weighted_charts  # torch takes seconds to load

    return list(weighted_charts(grammar, sentences, weights, options))


def each_chart(grammar: PCFG, sentences: Sequence[Sentence], options: EngineOptions = DEFAULT,
               constraints: Sequence[Constraints] | None = None) -> Iterator[Chart]:
    """The charts of inside_outside one by one, in memory that does not grow with the number of sentences."""
    forbidden = all_forbidden(grammar, [len(sentence) for sentence in sentences], constraints)
    return leaf_charts(grammar, leaves_of(grammar, sentences), options, forbidden)


def leaf_charts(grammar: PCFG, leaves: Sequence[np.ndarray], options: EngineOptions = DEFAULT,
                forbidden: Sequence[Forbidden] = ()) -> Iterator[Chart]:
    """The same for sentences given by their leaves, (L, P) each: any weights, so masks and noise are leaves too.

    forbidden: entries that no tree of each sentence has (constraints.py makes them), or none at all.
    """
    return engine_for(grammar, options).charts(leaves, forbidden)


def leaf_span_scores(grammar: PCFG, leaves: Sequence[np.ndarray], options: EngineOptions = DEFAULT
                     ) -> Iterator[SpanScores | Chart]:
    """What a Labelled-Recall tree needs of every sentence, in order; engines that can reduce it bring no more."""
    engine = engine_for(grammar, options)
    return engine.span_scores(leaves) if isinstance(engine, ReducingEngine) else engine.charts(leaves)


def leaf_outsides(grammar: PCFG, leaves: Sequence[np.ndarray], options: EngineOptions = DEFAULT,
                  forbidden: Sequence[Forbidden] = ()) -> Iterator[np.ndarray]:
    """(L, P) for each sentence: beta of every pre-terminal over every word, each row scaled to sum to 1, or 0."""
    engine = engine_for(grammar, options)
    if isinstance(engine, ReducingEngine):
        return engine.leaf_outside(leaves, forbidden)
    return (chart.leaf_outside(grammar.n_interminals) for chart in engine.charts(leaves, forbidden))


def log_probabilities(grammar: PCFG, sentences: Sequence[Sentence], options: EngineOptions = DEFAULT,
                      constraints: Sequence[Constraints] | None = None) -> Iterator[float]:
    """Log probability of every sentence, in their order: the inside pass alone.

    With constraints, the probability of the sentence together with a tree that keeps them.
    """
    forbidden = all_forbidden(grammar, [len(sentence) for sentence in sentences], constraints)
    return engine_for(grammar, options).log_probs(leaves_of(grammar, sentences), forbidden)


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
