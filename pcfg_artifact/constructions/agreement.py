"""How far the charts of a constructed transformer are from those of the algorithm it runs."""

from __future__ import annotations

import numpy as np

from pcfg_artifact.approximation.low_rank import approximate_charts
from pcfg_artifact.approximation.restriction import restrict
from pcfg_artifact.approximation.transforms import inverse_of, rule_named, transform_of_width
from pcfg_artifact.constructions.approximate_relative import ApproximateInsideOutside
from pcfg_artifact.constructions.weights import LayerWeights
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.leaves import Sentence, sentence_leaves

Charts = tuple[np.ndarray, np.ndarray]  # inside, outside: (L+1, L+1, N), linear
CHARTS = ("inside", "outside")


def linear(chart: Chart) -> Charts:
    """A chart of Inside-Outside (with outside="full") as probabilities."""
    return np.exp(chart.log_inside), np.exp(chart.log_outside)


def algorithm_charts(model: ApproximateInsideOutside, sentence: Sentence) -> Charts:
    """The charts of the approximate algorithm with the model's symbols, transforms and sign rule.

    The model has no leaves of pre-terminals that occur in none of its rules; here they are set to 0 as well.
    """
    grammar = model.grammar
    inside, outside = approximate_charts(grammar, sentence, model.interminals, model.preterminals, model.transforms,
                                         model.sign_rule)
    inside[..., _without_leaf(model)] = 0
    return inside, outside


def recursion_charts(model: ApproximateInsideOutside, sentence: Sentence, charts: Charts) -> tuple[Charts, Charts]:
    """One step of the recursion for every span, from the smaller spans in the model's own `charts`; and the same before
    projection.

    W+ W can cancel a vector down to rounding noise, which larger spans amplify, so two correct implementations may
    differ in all digits.  One step at a time, each span has an error of its own and a size to compare it with.
    """
    grammar, rule = restrict(model.grammar, model.interminals), rule_named(model.sign_rule)
    parent, left, right = grammar.binary.T
    inside, outside = charts
    n, size = len(inside) - 1, grammar.n_nonterminals
    raw = np.zeros_like(inside), np.zeros_like(outside)
    raw[0][np.arange(n), np.arange(1, n + 1), grammar.n_interminals:] = sentence_leaves(grammar, sentence)
    raw[0][..., _without_leaf(model)] = 0
    raw[1][0, n] = grammar.root if n > 1 else 0.0
    found = raw[0].copy(), raw[1].copy()
    for i in range(n):
        for j in range(i + 1, n + 1):
            if j - i > 1:
                products = (rule.key(inside[i, i + 1:j][:, left]) * inside[i + 1:j, j][:, right]).sum(axis=0)
                raw[0][i, j] = np.bincount(parent, grammar.binary_prob * products, minlength=size)
                found[0][i, j, model.interminals] = _projected(model, raw[0][i, j, model.interminals], j - i)
            if j - i < n:
                symbols = model.interminals if j - i > 1 else model.preterminals
                after_left = (rule.key(outside[:i, j][:, parent]) * inside[:i, i][:, left]).sum(axis=0)
                before_right = (outside[i, j + 1:][:, parent] * rule.key(inside[j, j + 1:][:, right])).sum(axis=0)
                total = (np.bincount(right, grammar.binary_prob * after_left, minlength=size)
                         + np.bincount(left, grammar.binary_prob * before_right, minlength=size))
                raw[1][i, j, symbols] = total[symbols]
                found[1][i, j, symbols] = total[symbols] if j - i == 1 else _projected(model, total[symbols], j - i)
    return found, raw


def _projected(model: ApproximateInsideOutside, vector: np.ndarray, width: int) -> np.ndarray:
    if model.transforms is None:
        return vector
    transform = transform_of_width(model.transforms, width)
    return rule_named(model.sign_rule).stored(inverse_of(transform) @ (transform @ vector))


def _without_leaf(model: ApproximateInsideOutside) -> np.ndarray:
    words = np.arange(model.grammar.n_interminals, model.grammar.n_nonterminals)
    return np.setdiff1d(words, model.plan.leaf_symbols)


def entry_errors(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """(L+1, L+1): largest |found - expected| / expected of each span; infinite where an expected 0 is not exactly 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.abs(found - expected) / np.abs(expected)
    return np.where(found == expected, 0.0, errors).max(axis=-1)


def span_errors(found: np.ndarray, expected: np.ndarray, before: np.ndarray | None = None) -> np.ndarray:
    """(L+1, L+1): largest |found - expected| of each span over its largest |expected| or (projected) |before|."""
    error, size = np.abs(found - expected).max(axis=-1), np.abs(expected).max(axis=-1)
    if before is not None:
        size = np.maximum(size, np.abs(before).max(axis=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / size)


def approximate_errors(model: ApproximateInsideOutside, sentence: Sentence, charts: Charts
                       ) -> tuple[np.ndarray, np.ndarray]:
    """Errors (L+1, L+1) of the inside and outside spans of an approximate model.

    Few non-terminals: every entry against the algorithm.  Low rank: every span against the recursion.
    """
    if model.transforms is None:
        inside, outside = map(entry_errors, charts, algorithm_charts(model, sentence))
    else:
        expected, before = recursion_charts(model, sentence, charts)
        inside, outside = map(span_errors, charts, expected, before)
    return inside, outside


def end_to_end_errors(model: ApproximateInsideOutside, sentence: Sentence, charts: Charts) -> np.ndarray:
    """Errors of all inside and outside spans against the algorithm's own pass, relative to the span's largest entry."""
    return np.concatenate([span_errors(found, expected)[np.triu_indices(len(found), 1)]
                           for found, expected in zip(charts, algorithm_charts(model, sentence), strict=True)])


class Agreement:
    """Largest error over sentences: of each chart, by width of the span and by length of the sentence."""

    def __init__(self, max_length: int) -> None:
        self.by_width = {chart: np.zeros(max_length + 1) for chart in CHARTS}
        self.by_length = {chart: np.zeros(max_length + 1) for chart in CHARTS}
        self.root = 0.0
        self.n_sentences = 0

    def add(self, inside_errors: np.ndarray, outside_errors: np.ndarray) -> None:
        """Add one sentence by the errors (L+1, L+1) of its spans."""
        length = len(inside_errors) - 1
        for chart, errors in zip(CHARTS, (inside_errors, outside_errors), strict=True):
            for width in range(1, length + 1):
                worst = np.diagonal(errors, width).max()
                self.by_width[chart][width] = max(self.by_width[chart][width], worst)
                self.by_length[chart][length] = max(self.by_length[chart][length], worst)
            if chart == "outside":
                self.root = max(self.root, float(errors[0, length]))
        self.n_sentences += 1

    def worst(self, chart: str) -> float:
        return float(self.by_width[chart].max())

    def of_layer(self, layer: LayerWeights) -> float:
        """The largest error of the spans that a layer computes."""
        kind, width = layer.computes
        return self.root if kind == "root" else float(self.by_width[kind][width])
