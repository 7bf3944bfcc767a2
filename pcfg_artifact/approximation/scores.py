"""Scores of an approximation: F1 of its trees, perplexity of its masked words, and how often it has no answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from pcfg_artifact.approximation.algorithm import Approximation
from pcfg_artifact.grammar.expectation import frequencies
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.decoding import best_binary_tree
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions
from pcfg_artifact.parsing.leaves import Sentence, emissions, word_ids
from pcfg_artifact.parsing.masking import perplexity
from pcfg_artifact.parsing.scoring import span_f1
from pcfg_artifact.treebank.tree import Tree

TABLE = "approximation"
CONVENTIONS = ("PB", "KIM")
SIGNS = {"perplexity": 1, "sentence_f1": -1, "corpus_f1": -1}  # of a cost, which is positive where a score is worse


class Trial:
    """What every approximation is measured on: treebank trees, and sentences drawn from the exact grammar."""

    def __init__(self, grammar: PCFG, trees: Sequence[Tree], drawn: Sequence[np.ndarray],
                 options: EngineOptions = DEFAULT) -> None:
        self.grammar, self.trees, self.options = grammar, trees, options
        self.sentences = [tree.words() for tree in trees]
        self.drawn = [[grammar.words[w] for w in sentence] for sentence in drawn]

    def scores(self, model: Approximation) -> list[Metric]:
        """Every score that has any data (a parsed sentence, a word with probability)."""
        parsed = parsing_scores(self.trees, model.span_scores(self.sentences, self.options))
        predicted = one_mask_probabilities(model, self.drawn, self.options)
        return [score for score in (*parsed, *prediction_scores(predicted, self._exact, self._unigram)) if score.n]

    @cached_property
    def _exact(self) -> np.ndarray:
        return one_mask_probabilities(Approximation(self.grammar), self.drawn, self.options)

    @cached_property
    def _unigram(self) -> np.ndarray:
        return unigram_probabilities(self.grammar, self.drawn)


def parsing_scores(trees: Sequence[Tree], span_scores: Iterable[np.ndarray]) -> list[Metric]:
    """F1 of Labelled-Recall trees against treebank trees of two or more words.

    A sentence without any span score counts as `failed`.  Its tree is right-branching; the group `parsed` excludes it.
    """
    predicted, is_parsed = [], []
    for scores in span_scores:
        # Ties take the first split: without any score the tree is right-branching.
        predicted.append(best_binary_tree(scores))
        width = np.arange(len(scores))
        is_parsed.append(bool((scores[width[None, :] - width[:, None] >= 2] > 0).any()))
    found = [score for group, chosen in (("", range(len(trees))), ("parsed", np.flatnonzero(is_parsed).tolist()))
             for convention in CONVENTIONS
             for score in span_f1([trees[s] for s in chosen], [predicted[s] for s in chosen],
                                  convention).metrics(TABLE, group=group)]
    failed = 1.0 - sum(is_parsed) / len(trees)
    return [*found, Metric(table=TABLE, metric="failed", value=failed, n=len(trees), unit="fraction")]


def one_mask_probabilities(model: Approximation, sentences: Sequence[Sentence], options: EngineOptions = DEFAULT
                           ) -> np.ndarray:
    """Probability of every word of every sentence given all other words of its sentence, in one array.

    Pr[w] is proportional to the sum over A in P~ of Pr[A -> w] beta(A); 0 where all of these are 0.
    """
    table = emissions(model.grammar)
    found = []
    for sentence, outside in zip(sentences, model.leaf_outside(sentences, options), strict=True):
        word = (table.of(word_ids(model.grammar, sentence)) * outside).sum(axis=1)
        any_word = outside @ table.any_word
        found.append(np.divide(word, any_word, out=np.zeros(len(word)), where=any_word > 0))
    return np.concatenate(found)


def unigram_probabilities(grammar: PCFG, sentences: Sequence[Sentence]) -> np.ndarray:
    """Probability of every word of every sentence by its frequency alone."""
    share = unigram(grammar)
    return np.concatenate([share[word_ids(grammar, sentence)] for sentence in sentences])


def unigram(grammar: PCFG) -> np.ndarray:
    """(n_words,) share of each word in text drawn from the grammar."""
    head, word = grammar.lexical.T
    weight = np.bincount(word, frequencies(grammar)[head] * grammar.lexical_prob, minlength=grammar.n_words)
    return weight / weight.sum()


def prediction_scores(probabilities: np.ndarray, exact: np.ndarray, unigram: np.ndarray) -> list[Metric]:
    """1-mask perplexity, with the unigram probability of words to which the model gives none; the share of such words
    (`undefined`); and the perplexity of the other words (group `defined`), also under the exact algorithm."""
    is_defined = probabilities > 0
    undefined = 1.0 - int(is_defined.sum()) / len(probabilities)

    def score(metric: str, values: np.ndarray, group: str = "") -> Metric:
        return Metric(table=TABLE, group=group, metric=metric, value=perplexity([np.log(values)]), n=len(values),
                      unit="perplexity")

    return [score("perplexity", np.where(is_defined, probabilities, unigram)),
            Metric(table=TABLE, metric="undefined", value=undefined, n=len(probabilities), unit="fraction"),
            score("perplexity", probabilities[is_defined], "defined"),
            score("exact_perplexity", exact[is_defined], "defined")]


def costs(exact: Sequence[Metric], approximate: Sequence[Metric]) -> list[Metric]:
    """How much worse than the exact algorithm an approximation is, in percent of the exact value."""
    reference = {score.metric: score.value for score in exact if _is_main(score)}
    return [score.at(table="approximation_cost", unit="percent",
                     value=100 * SIGNS[score.metric] * (score.value / reference[score.metric] - 1))
            for score in approximate if _is_main(score) and reference.get(score.metric)]


def _is_main(score: Metric) -> bool:
    return score.metric in SIGNS and score.convention in ("", "PB") and not score.group
