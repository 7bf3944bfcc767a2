"""Control tasks: random labels that depend on the words alone, and what a probe's scores are worth beside theirs.

Labels are hashed from the seed, so that no table of them is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import ALL, BEST, LAST, Numbers
from pcfg_artifact.probing.settings import EOS, NARY
from pcfg_artifact.system.random_streams import derive_seed

TASK_OF = {"accuracy": "parsing", "pearson": "marginals"}  # measure of a control task -> table of the task's own scores


@lru_cache(maxsize=1 << 20)
def word_label(word: str, seed: int) -> int:
    """phi(w), uniform on {-1, 0, 1}."""
    return derive_seed(seed, "control word", word) % 3 - 1


@lru_cache(maxsize=1 << 20)
def pair_label(first: str, last: str, seed: int) -> float:
    """phi(w1, w2), uniform on [0, 1)."""
    return derive_seed(seed, "control pair", first, last) / 2**64


def word_labels(sentences: Sequence[Sequence[str]], seed: int) -> np.ndarray:
    """Labels of every word but the last of each sentence: the positions that have a relative depth."""
    return np.array([word_label(word, seed) for words in sentences for word in words[:-1]], dtype=np.int64)


def pair_labels(sentences: Sequence[Sequence[str]], width: int, seed: int) -> np.ndarray:
    """Labels of every span of this width from its first and last word, by sentence and start."""
    return np.array([pair_label(words[i], words[i + width - 1], seed)
                     for words in sentences for i in range(len(words) - width + 1)], dtype=np.float32)


def control_metrics(control: Iterable[Metric], probed: Iterable[Metric]) -> Iterator[Metric]:
    """Control tasks, and selectivity, which is the task's score of the same seed less the control task's; of trees it
    is there for the labels of the n-ary tree too, where those were probed."""
    value = {(score.key, score.seed): score.value for score in probed}
    for score in control:
        if score.metric in TASK_OF:
            task = score.at(table=TASK_OF[score.metric], group="")
            yield score
            yield score.at(group="selectivity", value=value[task.key, task.seed] - score.value)
            if (nary := value.get((task.at(group=NARY).key, task.seed))) is not None:
                yield score.at(group="selectivity", bin=NARY, value=nary - score.value)


def sensitivity_metrics(numbers: Numbers, model: str, probe: str, setting: str) -> Iterator[Metric]:
    """How much a probe gains over layer 0 (sensitivity), beside how much it beats its control task (selectivity).

    Parsing: sentence F1 of the best layer less layer 0; selectivity of accuracy at its best layer.  Marginals, per
    span width: Pearson correlation of the last layer less layer 0; selectivity at the last layer.
    """
    def scores(**selected: Any) -> list[Metric]:
        return numbers.select({"model": model, "probe": probe, "setting": setting, **selected})

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
