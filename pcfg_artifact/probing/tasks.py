"""What a probe is asked: which rows of a layer it reads, what it must answer, and how that is scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from pcfg_artifact.errors import StageError
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.probing.control_tasks import pair_labels, word_labels
from pcfg_artifact.probing.corpus import Corpus, Layer
from pcfg_artifact.probing.probe_scores import score_binary_trees, score_correlation, score_labels, score_nary_trees
from pcfg_artifact.probing.probes import Probe
from pcfg_artifact.probing.representations import eos_rows, span_rows, window_rows
from pcfg_artifact.probing.settings import ADJACENT, EOS, NARY

Rows = Callable[[np.ndarray], np.ndarray]
# What a tree probe reads: the rows of a layer that stand for each word.  Names are those of the column `input`.
ROWS: dict[str, Rows] = {EOS: eos_rows, ADJACENT: partial(window_rows, window=1)}
CONTROL = {"table": "control", "group": "control"}


@dataclass(frozen=True)
class Task:
    """rows(lengths) gives (n, k) row indices; targets(corpus) gives (n,) answers, NaN where there is none.

    dimensions: of all scores of the task.
    """

    name: str
    dimensions: Mapping[str, Any]
    rows: Rows
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
    """Relative depths of the binarised tree from one of the inputs in ROWS."""
    return Task(rows, {"input": rows}, ROWS[rows], lambda corpus: corpus.binary_depths, score_binary_trees)


def nary_tree_task(rows: str) -> Task:
    """The named alternative: relative depths of the treebank's own n-ary tree."""
    return Task(f"{rows} n-ary", {"input": rows, "group": NARY}, ROWS[rows], lambda corpus: corpus.nary_depths,
                score_nary_trees)


def span_task(width: int) -> Task:
    """The normalised marginal of the spans of one width, from their first and last word."""
    return Task(f"width {width}", {"width": width}, partial(span_rows, width=width),
                lambda corpus: corpus.span_targets(width), score_correlation)


def window_tasks(window: int, widths: Iterable[int]) -> list[Task]:
    """The tree and the marginals of these widths from the words within `window` of a word, or of a span's two ends."""
    name = ADJACENT if window == 1 else f"{ADJACENT} {window}"
    tree = Task(name, {"input": name}, partial(window_rows, window=window), lambda corpus: corpus.binary_depths,
                score_binary_trees)
    return [tree, *(replace(span_task(width), name=f"width {width} {name}", dimensions={"width": width, "input": name},
                            rows=partial(span_rows, width=width, window=window)) for width in widths)]


def control_tree_task(seed: int) -> Task:
    """phi(w) in {-1, 0, 1} from the input of the tree task."""
    return Task(EOS, {"input": EOS, **CONTROL}, eos_rows, lambda corpus: word_labels(corpus.sentences, seed),
                score_labels)


def control_span_task(width: int, seed: int) -> Task:
    """phi(w1, w2) in [0, 1) for the spans that have a marginal, so that both tasks see the same examples."""
    def targets(corpus: Corpus) -> np.ndarray:
        labels = pair_labels(corpus.sentences, width, seed)
        return np.where(np.isnan(corpus.span_targets(width)), np.nan, labels)

    return Task(f"width {width}", {"width": width, **CONTROL}, partial(span_rows, width=width), targets,
                score_correlation)


# ---- fit and score ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskResult:
    """Scores of one task, the test targets and predictions of the first seed by setting, and facts about the fit."""

    scores: list[Metric] = field(default_factory=list)
    targets: dict[str, np.ndarray] = field(default_factory=dict)
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
        x, test_targets = task.examples(test)
        predictions = fitted.predict(x)
        result.targets[setting], result.predicted[setting] = test_targets, predictions[0]
        if setting not in tests:
            continue
        for seed, predicted in zip(used, predictions, strict=True):
            result.scores.extend(score.at(**task.dimensions, probe=probe.name, setting=setting, seed=seed)
                                 for score in task.score(test.corpus, test_targets, predicted))
    return result
