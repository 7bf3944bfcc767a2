"""What a probe is asked: which rows of a layer it reads, what it must answer, and how the answers are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcfg_artifact.errors import StageError
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.scoring import span_f1
from pcfg_artifact.probing.control_labels import pair_labels, word_labels
from pcfg_artifact.probing.corpus import Corpus, Layer
from pcfg_artifact.probing.measures import accuracy, pearson, spearman
from pcfg_artifact.probing.probes import Probe
from pcfg_artifact.probing.representations import adjacent_rows, eos_rows, span_rows
from pcfg_artifact.probing.settings import ADJACENT, EOS, WIDEST
from pcfg_artifact.probing.targets import Span, Ties, decode

ROWS = {EOS: eos_rows, ADJACENT: adjacent_rows}
CONTROL = {"table": "control", "group": "control"}


@dataclass(frozen=True)
class Task:
    """rows(lengths) gives (n, k) row indices; targets(corpus) gives (n,) answers, NaN where there is none.

    dimensions: of all scores of the task.
    """

    name: str
    dimensions: Mapping[str, Any]
    rows: Callable[[np.ndarray], np.ndarray]
    targets: Callable[[Corpus], np.ndarray]
    score: Callable[[Corpus, np.ndarray, np.ndarray], list[Metric]]

    def examples(self, layer: Layer) -> tuple[np.ndarray, np.ndarray]:
        """Inputs (n, k*d) float32 and targets (n,) of every example of a corpus that has an answer."""
        rows, targets = self.rows(layer.corpus.lengths), self.targets(layer.corpus)
        if not np.issubdtype(targets.dtype, np.integer):
            is_known = ~np.isnan(targets)
            rows, targets = rows[is_known], targets[is_known]
        width = layer.states.shape[1]
        x = np.empty((len(rows), rows.shape[1] * width), np.float32)
        for k in range(rows.shape[1]):  # block by block: a single index would hold everything twice
            x[:, k * width:(k + 1) * width] = layer.states[rows[:, k]]
        return x, targets


# ---- the tasks of the paper ------------------------------------------------------------------------------------------


def tree_task(rows: str) -> Task:
    """Relative depths of the binarised tree from the input `EOS` or `ADJ`."""
    return Task(rows, {"input": rows}, ROWS[rows], lambda corpus: corpus.binary_depths, score_binary_trees)


def nary_tree_task(rows: str) -> Task:
    """The named alternative: relative depths of the treebank's own n-ary tree."""
    return Task(f"{rows} n-ary", {"input": rows, "group": "n-ary"}, ROWS[rows], lambda corpus: corpus.nary_depths,
                score_nary_trees)


def span_task(width: int) -> Task:
    """The normalised marginal of the spans of one width, from their first and last word."""
    return Task(f"width {width}", {"width": width}, lambda lengths: span_rows(lengths, width),
                lambda corpus: corpus.span_targets(width), score_correlation)


def control_tree_task(seed: int) -> Task:
    """phi(w) in {-1, 0, 1} from the input of the tree task."""
    return Task(EOS, {"input": EOS, **CONTROL}, eos_rows, lambda corpus: word_labels(corpus.sentences, seed),
                score_labels)


def control_span_task(width: int, seed: int) -> Task:
    """phi(w1, w2) in [0, 1) for the spans that have a marginal, so that both tasks see the same examples."""
    def targets(corpus: Corpus) -> np.ndarray:
        labels = pair_labels(corpus.sentences, width, seed)
        return np.where(np.isnan(corpus.span_targets(width)), np.nan, labels)

    return Task(f"width {width}", {"width": width, **CONTROL}, lambda lengths: span_rows(lengths, width), targets,
                score_correlation)


# ---- scores ----------------------------------------------------------------------------------------------------------


def decode_all(corpus: Corpus, labels: np.ndarray, ties: Ties = "first") -> list[set[Span]]:
    """The tree of every sentence from the labels of all."""
    ends = np.cumsum(corpus.lengths - 1)
    return [decode(part, ties) for part in np.split(labels, ends[:-1])]


def score_labels(corpus: Corpus, wanted: np.ndarray, predicted: np.ndarray) -> list[Metric]:
    return [Metric(table="parsing", metric="accuracy", value=accuracy(wanted, predicted), n=len(wanted),
                   unit="fraction")]


def score_binary_trees(corpus: Corpus, wanted: np.ndarray, predicted: np.ndarray) -> list[Metric]:
    """Accuracy; F1 in PB (the headline) and KIM; and PB by span width."""
    spans = decode_all(corpus, predicted)
    return [*score_labels(corpus, wanted, predicted), *score_spans(corpus, spans), *_kim(corpus, spans)]


def score_spans(corpus: Corpus, spans: Sequence[Iterable[Span]]) -> list[Metric]:
    """F1 of any parser's trees in PB, of all spans and by their width."""
    main = span_f1(corpus.trees, spans, "PB")
    by_width = [Metric(table="parsing", convention="PB", width=width, metric="f1", value=f1, n=main.n_sentences,
                       unit="percent") for width, f1 in sorted(main.by_length.items()) if width <= WIDEST]
    return [*main.metrics("parsing", counts_skipped=False), *by_width]


def score_nary_trees(corpus: Corpus, wanted: np.ndarray, predicted: np.ndarray) -> list[Metric]:
    """Accuracy, and KIM of the labels decoded both ways: n-ary (all ties) and binary (first minimum)."""
    return [*score_labels(corpus, wanted, predicted), *_kim(corpus, decode_all(corpus, predicted, "all")),
            *_kim(corpus, decode_all(corpus, predicted, "first"), bin="decoded as binary")]


def _kim(corpus: Corpus, spans: Sequence[Iterable[Span]], **dimensions: Any) -> list[Metric]:
    return span_f1(corpus.trees, spans, "KIM").metrics("parsing", counts_skipped=False, **dimensions)


def score_correlation(corpus: Corpus, wanted: np.ndarray, predicted: np.ndarray) -> list[Metric]:
    return [Metric(table="marginals", metric=name, value=measure(wanted, predicted), n=len(wanted), unit="fraction")
            for name, measure in (("pearson", pearson), ("spearman", spearman))]


# ---- fit and score ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskResult:
    """Scores of one task, the test answers and predictions of the first seed by setting, and facts about the fit."""

    scores: list[Metric] = field(default_factory=list)
    wanted: dict[str, np.ndarray] = field(default_factory=dict)
    predicted: dict[str, np.ndarray] = field(default_factory=dict)
    facts: dict[str, float | bool | None] = field(default_factory=dict)


def run_task(task: Task, probe: Probe, train: Layer, tests: Mapping[str, Layer], seeds: Sequence[int], *,
             device: str = "cpu", unscored: Mapping[str, Layer] | None = None) -> TaskResult:
    """Fit one probe on the training corpus and score it on every test corpus (setting -> corpus).

    The predictions for `unscored` corpora are kept as well, but they are part of no score.
    """
    x, targets = task.examples(train)
    if not len(targets):
        raise StageError(f"the training corpus has no example of {task.name}; take longer sentences or fewer widths")
    used = tuple(seeds) if probe.has_seeds else tuple(seeds[:1])
    fitted = probe.fit(x, targets, used, device=device if probe.uses_gpu else "cpu", overwrite_x=True)
    result = TaskResult(facts={**fitted.facts, "examples": len(targets)})
    for setting, test in {**tests, **(unscored or {})}.items():
        x, wanted = task.examples(test)
        predictions = fitted.predict(x)
        result.wanted[setting], result.predicted[setting] = wanted, predictions[0]
        if setting not in tests:
            continue
        for seed, predicted in zip(used, predictions, strict=True):
            result.scores.extend(score.at(**task.dimensions, probe=probe.name, setting=setting, seed=seed)
                                 for score in task.score(test.corpus, wanted, predicted))
    return result
