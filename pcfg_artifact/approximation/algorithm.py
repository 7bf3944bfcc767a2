"""Approximation: Inside-Outside with fewer symbols or lower rank, as something that parses and predicts words; and the
approximations that are measured, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pcfg_artifact.approximation.low_rank import LowRank
from pcfg_artifact.approximation.merging import choose_classes, merge_symbols
from pcfg_artifact.approximation.restriction import restrict, select_symbols
from pcfg_artifact.approximation.transforms import STATISTICS, Correlations, Transforms
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions, LazyLeaves, each_chart, leaf_outsides, leaf_span_scores
from pcfg_artifact.parsing.leaves import Sentence, sentence_leaves
from pcfg_artifact.parsing.masking import with_all_outside
from pcfg_artifact.system.threads import ordered_map


@dataclass(frozen=True, eq=False)
class Approximation:
    """Inside-Outside of `grammar`, computed for some symbols only.

    interminals: I~, None for all (exact inside probabilities).  preterminals: P~, whose outside probabilities predict
    masked words, None for all.  transforms: width -> W over I~, in their order; outside_transforms: another W for
    outside probabilities.  few_leaves: words are known to P~ alone, instead of to all pre-terminals.
    """

    grammar: PCFG
    interminals: np.ndarray | None = None
    preterminals: np.ndarray | None = None
    transforms: Transforms | None = None
    outside_transforms: Transforms | None = None
    sign_rule: str = "clip"
    few_leaves: bool = False
    max_length: int = 60

    def span_scores(self, sentences: Sequence[Sentence], options: EngineOptions = DEFAULT) -> Iterator[np.ndarray]:
        """(L+1, L+1) for each sentence: max over A of the marginal, up to a factor; all 0 where nothing is derived."""
        if self.transforms is None:
            found = leaf_span_scores(self._restricted, self._all_leaves(sentences), options)
            return (chart.span_scores() for chart in found)
        return ordered_map(lambda s: self._low_rank.chart(self._leaves(s), with_leaves=False).span_scores(),
                           sentences, options.n_threads or 1)

    def leaf_outside(self, sentences: Sequence[Sentence], options: EngineOptions = DEFAULT) -> Iterator[np.ndarray]:
        """(L, P) for each sentence: outside probability of each pre-terminal at each word, up to a factor for the word.

        0 for pre-terminals outside P~; negative entries, which the sign rules but `clip` leave, count as 0.
        """
        if self.transforms is None:
            found = leaf_outsides(self._restricted, self._all_leaves(sentences), with_all_outside(options))
        else:
            found = ordered_map(lambda s: self._low_rank.chart(self._leaves(s)).leaf_outside, sentences,
                                options.n_threads or 1)
        return (np.maximum(outside, 0.0) * self._is_predicted for outside in found)

    def _all_leaves(self, sentences: Sequence[Sentence]) -> LazyLeaves:
        return LazyLeaves(lambda s: self._leaves(sentences[s]), len(sentences))

    @cached_property
    def _restricted(self) -> PCFG:
        return self.grammar if self.interminals is None else restrict(self.grammar, self.interminals)

    @cached_property
    def _low_rank(self) -> LowRank:
        interminals = np.arange(self.grammar.n_interminals) if self.interminals is None else self.interminals
        return LowRank(self.grammar, interminals, self.transforms, self.max_length, self.sign_rule,
                       self.outside_transforms)

    @cached_property
    def _is_predicted(self) -> np.ndarray:
        """(P,) whether a pre-terminal is in P~."""
        if self.preterminals is None:
            return np.ones(self.grammar.n_preterminals, bool)
        return np.isin(np.arange(self.grammar.n_interminals, self.grammar.n_nonterminals), self.preterminals)

    def _leaves(self, sentence: Sentence) -> np.ndarray:
        leaves = sentence_leaves(self.grammar, sentence)
        return leaves * self._is_predicted if self.few_leaves else leaves


# ---- the approximations that are measured ----------------------------------------------------------------------------


class Row(NamedTuple):
    """An approximation by its kind, and the in-terminals that it keeps or its rank."""

    model: str
    size: int | None = None


Rows = dict[Row, Approximation]
EXACT = Row("exact")
COSTED = (Row("few", 10), Row("few", 20), Row("few", 40), Row("low_rank", 15))  # the paper gives their costs in percent


def few_symbols(grammar: PCFG, sizes: Sequence[int], n_preterminals: int) -> Rows:
    """Table 1: the most frequent in-terminals (and all of them) with the most frequent pre-terminals."""
    rows = {}
    for size in (None, *sizes):
        interminals, preterminals = select_symbols(grammar, size, n_preterminals)
        name = Row("few_preterminals") if size is None else Row("few", size)
        rows[name] = Approximation(grammar, None if size is None else interminals, preterminals)
    return rows


@dataclass(frozen=True, eq=False)
class Learned:
    """Correlations over I~ from exact charts by statistic, from charts of the restricted grammar, and over all of I."""

    exact: dict[str, Correlations]
    restricted: Correlations
    all_interminals: Correlations


def learn_correlations(grammar: PCFG, sentences: Sequence[Sentence], n_interminals: int, n_threads: int | None = None,
                       progress: Callable[..., Iterable] = lambda items, **_: items) -> Learned:
    """One pass over training sentences with the exact grammar, one with the restricted."""
    interminals, _ = select_symbols(grammar, n_interminals, None)
    longest = max(len(sentence) for sentence in sentences)
    learned = Learned({statistic: Correlations(interminals, longest) for statistic in STATISTICS},
                      Correlations(interminals, longest), Correlations(np.arange(grammar.n_interminals), longest))
    charts = each_chart(grammar, sentences, EngineOptions(outside="full", n_threads=n_threads))
    for chart in progress(charts, total=len(sentences), desc="correlations"):
        for statistic, correlations in learned.exact.items():
            correlations.add(chart, statistic)
        learned.all_interminals.add(chart)
    for chart in each_chart(restrict(grammar, interminals), sentences, EngineOptions(n_threads=n_threads)):
        learned.restricted.add(chart)
    return learned


def low_rank(grammar: PCFG, learned: Learned, ranks: Sequence[int], n_preterminals: int, max_length: int) -> Rows:
    """Table 2: W of every width from exact marginals."""
    correlations = learned.exact["marginals"]
    _, preterminals = select_symbols(grammar, None, n_preterminals)
    return {Row("low_rank", rank): Approximation(grammar, correlations.interminals, preterminals,
                                                 correlations.transforms(rank), max_length=max_length)
            for rank in ranks}


def ablations(grammar: PCFG, learned: Learned, ranks: Sequence[int], n_preterminals: int, max_length: int) -> Rows:
    """Other methods to learn W and to treat signs, after the two rows that they are compared with."""
    marginals, inside, outside = (learned.exact[statistic] for statistic in STATISTICS)
    interminals = marginals.interminals
    _, preterminals = select_symbols(grammar, None, n_preterminals)
    few = Approximation(grammar, interminals, preterminals, max_length=max_length)
    rows = {Row("few"): few, Row("few_leaves"): replace(few, few_leaves=True)}
    for rank in ranks:
        usual = replace(few, transforms=marginals.transforms(rank))
        rows |= {
            Row("low_rank", rank): usual,
            Row("shared_W", rank): replace(few, transforms=marginals.shared_transform(rank)),
            Row("all_interminals", rank): replace(few, interminals=None,
                                                  transforms=learned.all_interminals.transforms(rank)),
            Row("separate_W", rank): replace(few, transforms=inside.transforms(rank),
                                             outside_transforms=outside.transforms(rank)),
            Row("inside_W", rank): replace(few, transforms=inside.transforms(rank)),
            Row("outside_W", rank): replace(few, transforms=outside.transforms(rank)),
            Row("literal_signs", rank): replace(usual, sign_rule="literal"),
            Row("signed", rank): replace(usual, sign_rule="signed"),
            Row("low_rank_leaves", rank): replace(usual, few_leaves=True),
        }
        if learned.restricted.n_sentences:  # none if the restricted grammar derives no sentence
            rows[Row("restricted_W", rank)] = replace(few, transforms=learned.restricted.transforms(rank))
    return rows


def merged(grammar: PCFG, sizes: Sequence[int], n_preterminals: int, smoothing: float) -> Rows:
    """Grammars of the same size in which every symbol has joined a class: exact inference in each."""
    rows = {}
    for size in sizes:
        n_interminals = min(size, grammar.n_interminals)
        classes = choose_classes(grammar, n_interminals, min(n_preterminals, grammar.n_preterminals))
        rows[Row("merged", size)] = Approximation(merge_symbols(grammar, classes, smoothing))
    return rows
