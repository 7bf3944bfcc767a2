"""The scores of all probes as the rows of the paper's tables and figures."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pcfg_artifact.artifacts import Metric
from pcfg_artifact.probing.tasks import PROBES, TWO_LAYER, Score, Scores

HEADLINE = "sentence_f1"  # the best layer of a probe is the one with the highest
TABLE7 = ("l=2", "l=5", "l=10")


class Unit(NamedTuple):
    """What is fitted, kept and resumed as one: every task of one probe on one layer of one model."""

    model: str
    layer: int
    probe: str


Results = Mapping[Unit, Sequence[Score]]


def base_model(names: Iterable[str]) -> str:
    """The model that the paper shows most (its A12L12): most common number of heads, then most layers."""
    sizes = {name: tuple(map(int, match.groups())) for name in names if (match := re.fullmatch(r"A(\d+)L(\d+)", name))}
    common = Counter(heads for heads, _ in sizes.values())
    return max(sizes, key=lambda name: (common[sizes[name][0]], sizes[name][1], sizes[name][0]))


def unit_of(metric: str) -> str:
    return "percent" if "f1" in metric or metric.startswith("width") else "fraction"


def layer_rows(results: Results) -> Iterator[Metric]:
    """figure_layers and figure_marginals: every layer of every model."""
    for unit, scores in results.items():
        for s in scores:
            if s.metric in ("pearson", "spearman"):
                row = f"{unit.model} {unit.probe} {s.setting} L{unit.layer} {s.metric}"
                yield Metric("figure_marginals", row, s.task, s.seed, s.value, s.n, "fraction")
            elif not s.metric.startswith("width"):
                yield Metric("figure_layers", f"{unit.model} {unit.probe} {s.setting} {s.task} {s.metric}",
                             f"L{unit.layer}", s.seed, s.value, s.n, unit_of(s.metric))


def best_layers(results: Results) -> dict[tuple[str, str, str], int]:
    """(model, probe, setting) -> the layer with the highest mean sentence F1 over seeds, input EOS (ties: first)."""
    found: dict[tuple[str, str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for unit, scores in results.items():
        for s in scores:
            if (s.task, s.metric) == ("EOS", HEADLINE):
                found[unit.model, unit.probe, s.setting][unit.layer].append(s.value)
    return {key: max(sorted(layers), key=lambda layer: np.mean(layers[layer])) for key, layers in found.items()}


def best_layer_rows(results: Results, seed: int) -> Iterator[Metric]:
    """table4 and f1_by_length at the best layer; best_layer says which it is; spread says what the seeds do to it."""
    for (model, probe, setting), layer in best_layers(results).items():
        row = f"{model} {probe} {setting}"
        by_metric: dict[str, list[Score]] = defaultdict(list)
        for s in results[Unit(model, layer, probe)]:
            if (s.task, s.setting) == ("EOS", setting):
                by_metric[s.metric].append(s)
        for s in (*by_metric[HEADLINE], *by_metric["corpus_f1"]):
            yield Metric("table4", f"{probe} {setting} {s.metric}", model, s.seed, s.value, s.n, "percent")
        for metric, scores in by_metric.items():
            if metric.startswith("width"):
                yield from (Metric("f1_by_length", row, metric, s.seed, s.value, s.n, "percent") for s in scores)
        values, n = [s.value for s in by_metric[HEADLINE]], by_metric[HEADLINE][0].n
        yield Metric("best_layer", row, "layer", seed, layer, n, "count")
        if len(values) > 1:
            for column, value in (("mean", np.mean(values)), ("sd", np.std(values, ddof=1))):
                yield Metric("spread", f"{row} {HEADLINE}", column, seed, float(value), len(values), "percent")


def baseline_rows(baselines: Mapping[str, Mapping[str, Scores]], settings: Mapping[str, str],
                  seed: int) -> Iterator[Metric]:
    """table4's columns for Inside-Outside and the trivial trees, on the probes' own test sentences.

    baselines: name -> test corpus -> scores; settings: setting -> test corpus.
    """
    for name, by_corpus in baselines.items():
        for setting, corpus in settings.items():
            for metric in (HEADLINE, "corpus_f1"):
                value, n = by_corpus[corpus][metric]
                yield from (Metric("table4", f"{probe} {setting} {metric}", name, seed, value, n, "percent")
                            for probe in PROBES)
            if name == "IO" and setting != "OOD":  # the test set of OOD is that of PTB
                yield from (Metric("f1_by_length", f"IO {setting}", metric, seed, value, n, "percent")
                            for metric, (value, n) in by_corpus[corpus].items() if metric.startswith("width"))


def marginal_rows(results: Results, models: Iterable[str]) -> Iterator[Metric]:
    """table5 and table7: the last layer of every model on the treebank."""
    for model in models:
        last = max(unit.layer for unit in results if unit.model == model)
        for probe in PROBES:
            for s in results[Unit(model, last, probe)]:
                if s.setting != "PTB":
                    continue
                if s.metric == "pearson":
                    yield Metric("table5", s.task, f"{model} {probe}", s.seed, s.value, s.n, "fraction")
                if s.metric in ("pearson", "spearman") and probe == TWO_LAYER and s.task in TABLE7:
                    yield Metric("table7", s.task, f"{model} {s.metric}", s.seed, s.value, s.n, "fraction")


def selectivity_rows(table: str, row: str, probe: str, column: str, task: Mapping[int, tuple[float, int]],
                     control: Mapping[int, tuple[float, int]]) -> Iterator[Metric]:
    """Task, control and selectivity = task - control of one cell, per seed; both sides map seed -> (value, n)."""
    for seed, (value, n) in control.items():
        yield Metric(table, f"{probe} {row}", column, seed, task[seed][0], task[seed][1], "fraction")
        yield Metric(table, f"{probe} control", column, seed, value, n, "fraction")
        yield Metric(table, f"{probe} selectivity", column, seed, task[seed][0] - value, n, "fraction")
