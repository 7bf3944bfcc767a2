"""What an approximation is worth: F1 of its trees, perplexity of its masked words, and how often it has no answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.approximation.algorithm import Approximation
from pcfg_artifact.grammar import PCFG
from pcfg_artifact.grammar.expectation import frequencies
from pcfg_artifact.parsing import best_binary_tree, perplexity, span_f1
from pcfg_artifact.parsing.leaves import Sentence, emissions, word_ids
from pcfg_artifact.treebank.tree import Tree

CONVENTIONS = ("PB", "KIM")


class Score(NamedTuple):
    """One number of a table row, how many items it rests on, its unit."""

    value: float
    n: int
    unit: str


class Trial:
    """What every row of a table is measured on: treebank trees, and sentences drawn from the exact grammar."""

    def __init__(self, grammar: PCFG, trees: Sequence[Tree], drawn: Sequence[np.ndarray], n_threads: int | None = None
                 ) -> None:
        self.grammar, self.trees, self.n_threads = grammar, trees, n_threads
        self.sentences = [tree.words() for tree in trees]
        self.drawn = [[grammar.words[w] for w in sentence] for sentence in drawn]
        self._known: dict[Approximation, dict[str, Score]] = {}  # tables share rows

    def scores(self, model: Approximation) -> dict[str, Score]:
        """Column -> score; a column that rests on nothing (no sentence parsed, no word defined) is left out."""
        if model not in self._known:
            self._known[model] = self._measure(model)
        return self._known[model]

    def _measure(self, model: Approximation) -> dict[str, Score]:
        found = parsing_scores(self.trees, model.span_scores(self.sentences, self.n_threads))
        predicted = one_mask_probabilities(model, self.drawn, self.n_threads)
        found |= prediction_scores(predicted, self._exact, self._unigram)
        return {name: score for name, score in found.items() if score.n}

    @cached_property
    def _exact(self) -> np.ndarray:
        return one_mask_probabilities(Approximation(self.grammar), self.drawn, self.n_threads)

    @cached_property
    def _unigram(self) -> np.ndarray:
        return unigram_probabilities(self.grammar, self.drawn)


def parsing_scores(trees: Sequence[Tree], span_scores: Iterable[np.ndarray]) -> dict[str, Score]:
    """F1 of Labelled-Recall trees against treebank trees of two or more words.

    A sentence of which no span has a score is `failed`: its tree is right-branching, and columns _parsed leave it out.
    """
    predicted, is_parsed = [], []
    for scores in span_scores:
        # Ties take the first split: without any score the tree is right-branching.
        predicted.append(best_binary_tree(scores))
        width = np.arange(len(scores))
        is_parsed.append(bool((scores[width[None, :] - width[:, None] >= 2] > 0).any()))
    found: dict[str, Score] = {}
    for suffix, chosen in (("", range(len(trees))), ("_parsed", np.flatnonzero(is_parsed).tolist())):
        for convention in CONVENTIONS:
            f1 = span_f1([trees[s] for s in chosen], [predicted[s] for s in chosen], convention)
            found |= {column: Score(value, n, "percent")
                      for column, (value, n) in cells.f1_columns(f1, suffix).items()}
    found["failed"] = Score(1.0 - sum(is_parsed) / len(trees), len(trees), "fraction")
    return found


def one_mask_probabilities(model: Approximation, sentences: Sequence[Sentence], n_threads: int | None = None
                           ) -> np.ndarray:
    """Probability of every word of every sentence, one after another, given all other words of its sentence.

    Pr[w] is proportional to the sum over A in P~ of Pr[A -> w] beta(A); 0 where the model has nothing to say.
    """
    table = emissions(model.grammar)
    found = []
    for sentence, outside in zip(sentences, model.leaf_outside(sentences, n_threads), strict=True):
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


def prediction_scores(probabilities: np.ndarray, exact: np.ndarray, unigram: np.ndarray) -> dict[str, Score]:
    """1-mask perplexity: where the model gives the word no probability its unigram probability is used, and the share
    of such words is `undefined`; also over the other words alone, beside the exact algorithm on just those."""
    is_defined = probabilities > 0
    n, n_defined = len(probabilities), int(is_defined.sum())

    def score(values: np.ndarray) -> Score:
        return Score(perplexity([np.log(values)]), len(values), "perplexity")

    return {"perplexity": score(np.where(is_defined, probabilities, unigram)),
            "undefined": Score(1.0 - n_defined / n, n, "fraction"),
            "perplexity_defined": score(probabilities[is_defined]),
            "perplexity_exact_defined": score(exact[is_defined])}
