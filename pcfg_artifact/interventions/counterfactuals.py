"""Exact counterfactuals: how masked words change if a span is, or is not, a constituent; and the spans to ask about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pcfg_artifact.errors import StageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.mlm.exact_comparison import MaskedSentence, masked_sentences
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.constraints import forbidden_entries
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions, leaf_charts
from pcfg_artifact.parsing.leaves import sentence_leaves
from pcfg_artifact.parsing.masking import word_distributions
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.random_streams import stream

Span = tuple[int, int]

MARGIN = 0.05  # a span is in question if its probability is at least this far from 0 and from 1


@dataclass(frozen=True, eq=False)
class Question:
    """A span of a masked sentence, and how its being a constituent or not changes the masked words.

    weights (masked, n_words): probability of every word given the context.
    change (masked, n_words): log P(w | context, span in the tree) - log P(w | context, span not in it), NaN where one
    of the two probabilities is 0.
    """

    sentence: int  # index into the test sentences
    span: Span
    marginal: float  # probability that the span is in the tree, given the masked sentence
    weights: np.ndarray
    change: np.ndarray

    @property
    def width(self) -> int:
        return self.span[1] - self.span[0]


class NothingInQuestion(StageError):
    """No span is both uncertain and of consequence, as in a grammar with one tree for all sentences."""


@dataclass(frozen=True, eq=False)
class InterventionData:
    """Sentences that probes are fitted to, sentences that are intervened on, and the questions about the latter."""

    train: Sequence[MaskedSentence]
    train_marginals: Sequence[np.ndarray]
    test: Sequence[MaskedSentence]
    test_marginals: Sequence[np.ndarray]
    questions: Sequence[Question]


def build(grammar: PCFG, train: Ragged, test: Ragged, *, mask_rate: float, max_length: int, n_train: int, n_test: int,
          widths: Sequence[int], n_questions: int, seed: int, options: EngineOptions) -> InterventionData:
    """The first short enough sentences of both splits, masked, those without a mask left out; and questions."""
    masking = Masking(mask_rate, "mask")
    chosen = [[one for one in masked_sentences(grammar, sentences, masking, seed=seed, n=n, max_length=max_length)
               if len(one.positions)] for sentences, n in ((train, n_train), (test, n_test))]
    marginals = [[constituent_probabilities(chart) for chart in masked_charts(grammar, sentences, options)]
                 for sentences in chosen]
    spans = [found for width in widths for found in spans_in_question(marginals[1], width, n_questions, seed)]
    if not spans:
        raise NothingInQuestion(f"no span of {', '.join(map(str, widths))} words is in question in {len(chosen[1])} "
                                f"masked sentences; raise intervene.n_test or intervene.max_length")
    questions = answer_questions(grammar, chosen[1], spans, options)
    return InterventionData(chosen[0], marginals[0], chosen[1], marginals[1], questions)


def constituent_probabilities(chart: Chart) -> np.ndarray:
    """(L+1, L+1): probability that (i, j) is a span of the tree, whatever its label."""
    square = np.zeros((chart.length + 1, chart.length + 1))
    np.add.at(square, chart.entry_bounds, chart.entry_marginals)
    return square


def masked_charts(grammar: PCFG, sentences: Sequence[MaskedSentence], options: EngineOptions = DEFAULT
                  ) -> Iterator[Chart]:
    """Inside-Outside of sentences whose masked words are unknown."""
    return leaf_charts(grammar, [masked_leaves(grammar, sentence) for sentence in sentences], options)


def masked_leaves(grammar: PCFG, sentence: MaskedSentence) -> np.ndarray:
    return sentence_leaves(grammar, sentence.words, sentence.positions)


def spans_in_question(marginals: Sequence[np.ndarray], width: int, limit: int, seed: int) -> list[tuple[int, Span]]:
    """(sentence, span) of at most `limit` uncertain spans of a width, drawn from all of them."""
    found = [(s, (int(i), int(i) + width)) for s, square in enumerate(marginals)
             for i in np.flatnonzero(np.abs(np.diagonal(square, width) - 0.5) <= 0.5 - MARGIN)]
    chosen = stream(seed, "spans in question", width).permutation(len(found))[:limit]
    return [found[k] for k in sorted(chosen)]


def answer_questions(grammar: PCFG, sentences: Sequence[MaskedSentence], spans: Sequence[tuple[int, Span]],
                     options: EngineOptions = DEFAULT) -> list[Question]:
    """The exact answer for every (sentence, span)."""
    questions = []
    for (s, span), charts in zip(spans, charts_by_case(grammar, sentences, spans, options), strict=True):
        plain, required, without = (word_distributions(grammar, chart)[sentences[s].positions] for chart in charts)
        marginal = float(np.exp(charts[1].log_prob - charts[0].log_prob))
        questions.append(Question(s, span, marginal, plain, log_ratio(required, without)))
    return questions


def charts_by_case(grammar: PCFG, sentences: Sequence[MaskedSentence], spans: Sequence[tuple[int, Span]],
                   options: EngineOptions = DEFAULT) -> Iterator[list[Chart]]:
    """For every (sentence, span) the charts without constraints, with the span required, and with it forbidden."""
    leaves, forbidden = [], []
    for s, span in spans:
        for constraints in ({}, {span: True}, {span: False}):
            leaves.append(masked_leaves(grammar, sentences[s]))
            forbidden.append(forbidden_entries(grammar, len(leaves[-1]), constraints))
    charts = leaf_charts(grammar, leaves, options, forbidden)
    return ([next(charts) for _ in range(3)] for _ in spans)


def log_ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """log(numerator / denominator), NaN where one of them is 0."""
    is_known = (numerator > 0) & (denominator > 0)
    ratio = np.divide(numerator, denominator, out=np.ones_like(numerator), where=is_known)
    return np.where(is_known, np.log(ratio), np.nan)
