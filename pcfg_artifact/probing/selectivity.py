"""What a probe's scores are worth: how much better they are than its control task's, and than those of layer 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import ALL, BEST, LAST, Numbers
from pcfg_artifact.probing.settings import EOS, TREEBANK

TASK_OF = {"accuracy": "parsing", "pearson": "marginals"}  # measure of a control task -> table of the task's own scores


def control_metrics(control: Iterable[Metric], probed: Iterable[Metric]) -> Iterator[Metric]:
    """Control tasks, and selectivity, which is the task's score of the same seed less the control task's."""
    value = {(score.key, score.seed): score.value for score in probed}
    for score in control:
        if score.metric in TASK_OF:
            task = score.at(table=TASK_OF[score.metric], group="")
            yield score
            yield score.at(group="selectivity", value=value[task.key, task.seed] - score.value)


def sensitivity_metrics(numbers: Numbers, model: str, probe: str) -> Iterator[Metric]:
    """How much a probe gains over layer 0 (sensitivity), beside how much it beats its control task (selectivity).

    Parsing: sentence F1 of the best layer less layer 0; selectivity of accuracy at its best layer.  Marginals, per
    span width: Pearson correlation of the last layer less layer 0; selectivity at the last layer.  Treebank text.
    """
    def scores(**wanted: Any) -> list[Metric]:
        return numbers.select({"model": model, "probe": probe, "setting": TREEBANK.name, **wanted})

    trees = {"table": "parsing", "input": EOS, "convention": "PB", "metric": "sentence_f1"}
    marginals = {"table": "marginals", "width": ALL, "metric": "pearson"}
    first = {score.width: score.value for score in (*scores(**trees, layer=0), *scores(**marginals, layer=0))}
    for score in (*scores(**trees, layer=BEST), *scores(**marginals, layer=LAST)):
        yield _of_case(score, "sensitivity", score.value - first[score.width])
    selectivity = {"table": "control", "group": "selectivity"}
    accuracies = scores(**selectivity, input=EOS, layer=ALL, metric="accuracy")
    for score in (max(accuracies, key=lambda one: one.value),
                  *scores(**selectivity, width=ALL, layer=LAST, metric="pearson")):
        yield _of_case(score, "selectivity", score.value)


def _of_case(score: Metric, metric: str, value: float) -> Metric:
    return score.at(table="sensitivity", layer=None, input="", convention="", metric=metric, value=value,
                    group="trees" if score.width is None else "marginals")
