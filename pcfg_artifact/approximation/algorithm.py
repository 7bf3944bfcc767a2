"""Approximation: Inside-Outside with fewer symbols or lower rank, as something that parses and predicts words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pcfg_artifact.approximation.low_rank import LowRank
from pcfg_artifact.approximation.restriction import restrict
from pcfg_artifact.approximation.transforms import Transforms
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions, LazyLeaves, leaf_outsides, leaf_span_scores
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
