"""What is uncertain about the tree of a sentence: its entropy, where it lies, and which spans go together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.expectation import derivation_entropy, entropy_terms
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import Chart, entries_of
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions, each_chart
from pcfg_artifact.parsing.forest import choice_entropies, forest_of_chart
from pcfg_artifact.parsing.leaves import Sentence, word_ids


def tree_entropy(grammar: PCFG, given: Sentence | None = None, options: EngineOptions = DEFAULT) -> float:
    """Entropy in nats of the grammar's trees, words included, or of the trees of one sentence given its words.

    NaN for a sentence without probability.
    """
    if given is None:
        return derivation_entropy(grammar)
    return SpanEntropies.of(grammar, next(each_chart(grammar, [given], options))).total


@dataclass(frozen=True, eq=False)
class SpanEntropies:
    """Entropy in nats of the tree of a sentence, as a sum of the uncertainty that each span adds.

    root: of the symbol on top.  spans (L+1, L+1): of the rule and the split of the node over (i, j), given its symbol,
    times the probability of that node.  By the chain rule they add up to the entropy of the labelled tree.
    """

    root: float
    spans: np.ndarray

    @property
    def total(self) -> float:
        return self.root + float(self.spans.sum())

    @classmethod
    def of(cls, grammar: PCFG, chart: Chart) -> SpanEntropies:
        """From the chart of a sentence; NaN where it has no probability."""
        if chart.log_prob == -np.inf:
            return cls(np.nan, np.full((chart.length + 1,) * 2, np.nan))
        starts, stops = chart.entry_bounds
        used = np.flatnonzero(chart.entry_marginals)
        at = starts[used], stops[used]
        choices = choice_entropies(forest_of_chart(grammar, chart), *at, chart.symbols[used])
        spans = np.zeros((chart.length + 1,) * 2)
        np.add.at(spans, at, chart.entry_marginals[used] * choices)
        top = np.minimum(chart.entry_marginals[entries_of(chart, 0, chart.length)], 1.0)
        return cls(float(entropy_terms(top).sum()), spans)


@dataclass(frozen=True, eq=False)
class SpanPairs:
    """joint (L+1, L+1, L+1, L+1): probability that (i, j) and (k, l) are both spans of the tree, given the sentence."""

    joint: np.ndarray

    @property
    def spans(self) -> np.ndarray:
        """(L+1, L+1) probability of each span."""
        posts = np.arange(len(self.joint))
        return self.joint[posts[:, None], posts, posts[:, None], posts]

    @cached_property
    def conditional(self) -> np.ndarray:
        """[i, j, k, l]: probability of (k, l) given that (i, j) is a span; NaN where it never is."""
        spans = self.spans[:, :, None, None]
        return np.divide(self.joint, spans, out=np.full_like(self.joint, np.nan), where=spans > 0)


def span_pairs(grammar: PCFG, sentence: Sentence, options: EngineOptions = DEFAULT) -> SpanPairs:
    """Exact probabilities of all pairs of spans, whatever their labels.

    One chart for every span that may be in the tree: of the trees that have it.  So L^2 / 2 charts at most, of which
    each costs less than that of the sentence, because a span leaves no entry that crosses it; in all O(L^5) a rule.
    For labels, `log_probabilities` with constraints gives the probability of any set of labelled spans.
    """
    ids = word_ids(grammar, sentence)
    whole = next(each_chart(grammar, [ids], options))
    if whole.log_prob == -np.inf:
        raise UsageError("the grammar gives the sentence no probability, so that no span has one; give another "
                         "sentence")
    probability = _span_probability(whole)
    joint = np.zeros((len(ids) + 1,) * 4)
    possible = [(int(i), int(j)) for i, j in np.argwhere(probability) if 1 < j - i < len(ids)]
    for i, j in [(0, len(ids)), *((t, t + 1) for t in range(len(ids)))]:
        joint[i, j] = probability  # every tree has them
    charts = each_chart(grammar, [ids] * len(possible), options, [{span: True} for span in possible])
    for (i, j), chart in zip(possible, charts, strict=True):
        joint[i, j] = probability[i, j] * _span_probability(chart)
    return SpanPairs(joint)


def _span_probability(chart: Chart) -> np.ndarray:
    """(L+1, L+1) probability of every span, whatever its label."""
    spans = np.zeros((chart.length + 1,) * 2)
    np.add.at(spans, chart.entry_bounds, chart.entry_marginals)
    return spans
