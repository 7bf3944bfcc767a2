"""Scores of what probes answer: labels, trees and correlations; those of parsers beside them; and what figures show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import linregress, rankdata

from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.decoding import BASELINES
from pcfg_artifact.parsing.scoring import span_f1
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.settings import SAMPLED, SETTINGS, TREEBANK, WIDEST
from pcfg_artifact.probing.targets import Span, Ties, decode
from pcfg_artifact.system.random_streams import stream

EXACT_PARSER = "IO"
NEAR_ZERO = 0.1  # a normalised marginal below it is called near zero


# ---- how well predictions fit ----------------------------------------------------------------------------------------


def accuracy(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Share of equal labels; NaN of none."""
    return float(np.mean(targets == predicted)) if len(targets) else float("nan")


def pearson(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Pearson's correlation; NaN where one side does not vary.

    scipy's pearsonr divides each side by its norm first: equal but for the last digits, and recorded numbers have them.
    """
    x, y = (np.asarray(v, np.float64) - np.mean(v, dtype=np.float64) for v in (targets, predicted))
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale > 0 else float("nan")


def spearman(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Spearman's correlation: Pearson's of the ranks, ties at their mean rank."""
    return pearson(rankdata(targets), rankdata(predicted))


# ---- the paper's tasks -----------------------------------------------------------------------------------------------


def decode_all(corpus: Corpus, labels: np.ndarray, ties: Ties = "first") -> list[set[Span]]:
    """The tree of every sentence from the labels of all."""
    ends = np.cumsum(corpus.lengths - 1)
    return [decode(part, ties) for part in np.split(labels, ends[:-1])]


def score_labels(corpus: Corpus, targets: np.ndarray, predicted: np.ndarray) -> list[Metric]:
    return [Metric(table="parsing", metric="accuracy", value=accuracy(targets, predicted), n=len(targets),
                   unit="fraction")]


def score_binary_trees(corpus: Corpus, targets: np.ndarray, predicted: np.ndarray) -> list[Metric]:
    """Accuracy; F1 in PB (the headline) and KIM; and PB by span width."""
    spans = decode_all(corpus, predicted)
    return [*score_labels(corpus, targets, predicted), *score_spans(corpus, spans), *_kim(corpus, spans)]


def score_spans(corpus: Corpus, spans: Sequence[Iterable[Span]]) -> list[Metric]:
    """F1 of any parser's trees in PB, of all spans and by their width."""
    main = span_f1(corpus.trees, spans, "PB")
    by_width = [Metric(table="parsing", convention="PB", width=width, metric="f1", value=f1, n=main.n_sentences,
                       unit="percent") for width, f1 in sorted(main.by_length.items()) if width <= WIDEST]
    return [*main.metrics("parsing", counts_skipped=False), *by_width]


def score_nary_trees(corpus: Corpus, targets: np.ndarray, predicted: np.ndarray) -> list[Metric]:
    """Accuracy, and KIM of the labels decoded both ways: n-ary (all ties) and binary (first minimum)."""
    return [*score_labels(corpus, targets, predicted), *_kim(corpus, decode_all(corpus, predicted, "all")),
            *_kim(corpus, decode_all(corpus, predicted, "first"), bin="decoded as binary")]


def _kim(corpus: Corpus, spans: Sequence[Iterable[Span]], **dimensions: Any) -> list[Metric]:
    return span_f1(corpus.trees, spans, "KIM").metrics("parsing", counts_skipped=False, **dimensions)


def score_correlation(corpus: Corpus, targets: np.ndarray, predicted: np.ndarray) -> list[Metric]:
    return [Metric(table="marginals", metric=name, value=measure(targets, predicted), n=len(targets), unit="fraction")
            for name, measure in (("pearson", pearson), ("spearman", spearman))]


# ---- parsers beside the probes ---------------------------------------------------------------------------------------


def parser_metrics(corpora: Mapping[str, Corpus], widest: int, rng: np.random.Generator) -> Iterator[Metric]:
    """F1 of the exact parser, by span width too, and of trees that know nothing; corpora: by the name of the text.

    Settings that are tested on the same text have the same F1, by width it is given once.
    """
    for parser in (EXACT_PARSER, *BASELINES):
        for text, corpus in corpora.items():
            spans: Sequence[Sequence[Span]] = corpus.parses if parser == EXACT_PARSER else \
                [list(BASELINES[parser](int(length), rng)) for length in corpus.lengths]
            for score in score_spans(corpus, spans):
                if score.width is not None and (parser != EXACT_PARSER or score.width > widest):
                    continue
                for setting in SETTINGS if score.width is None else (SAMPLED, TREEBANK):
                    if setting.test.name == text:
                        yield score.at(model=parser, setting=setting.name)


# ---- what figures show -----------------------------------------------------------------------------------------------


def probed_trees(examples: Corpus, labels: np.ndarray) -> list[dict[str, Any]]:
    """The tree of every sentence as its predicted labels have it, beside the treebank's."""
    return [{"words": tree.words(), "spans": sorted(map(list, spans)), "gold": sorted(map(list, gold))}
            for tree, spans, gold in zip(examples.trees, decode_all(examples, labels),
                                         decode_all(examples, examples.binary_depths), strict=True)]


def scatter_plot(targets: np.ndarray, predicted: np.ndarray, n_drawn: int, seed: int) -> dict[str, Any]:
    """Some test spans to draw, and the best line through all of them; no line where the true values are all equal."""
    is_number = np.isfinite(predicted)  # a net that diverged has no others
    targets, predicted = targets[is_number], predicted[is_number]
    drawn = stream(seed, "scatter").choice(len(targets), min(n_drawn, len(targets)), replace=False)
    line = dict.fromkeys(("slope", "intercept"))
    if len(np.unique(targets)) > 1:
        fitted = linregress(targets.astype(np.float64), predicted.astype(np.float64))
        line = {"slope": float(fitted.slope), "intercept": float(fitted.intercept)}
    return {"true": targets[drawn].tolist(), "predicted": predicted[drawn].tolist(), **line}


def share_near_zero(true: Sequence[float], width: int) -> Metric:
    """Share of the spans that are drawn whose normalised marginal is near zero."""
    return Metric(table="marginals", width=width, metric="share_near_zero",
                  value=sum(number < NEAR_ZERO for number in true) / len(true), n=len(true), unit="fraction")
