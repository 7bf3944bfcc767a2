"""The scores of all probes as the rows of the paper's tables and figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.artifacts import Metric
from pcfg_artifact.cells import CORPUS_F1, SENTENCE_F1, SPAN_WIDTH, TREES, Cell, Measurement
from pcfg_artifact.probing.reference_parsers import EXACT_PARSER
from pcfg_artifact.probing.tasks import ProbeScore, Scores


class Unit(NamedTuple):
    """Every task of one probe on one layer of one model."""

    model: str
    layer: int
    probe: str


Results = Mapping[Unit, Sequence[ProbeScore]]
BySeed = Mapping[int, Measurement]


def layer_rows(results: Results) -> Iterator[Metric]:
    """figure_layers and figure_marginals: every layer of every model."""
    for unit, scores in results.items():
        for s in scores:
            if s.metric in ("pearson", "spearman"):
                cell = cells.marginal_score(unit.model, unit.probe, s.setting, unit.layer, s.metric, s.task)
            elif SPAN_WIDTH.index(s.metric) is None:
                cell = cells.layer_score(unit.model, unit.probe, s.setting, s.task, s.metric, unit.layer)
            else:
                continue
            yield Metric(*cell, s.seed, s.value, s.n, cells.unit_of(s.metric))


def best_layers(results: Results) -> dict[tuple[str, str, str], int]:
    """(model, probe, setting) -> the layer with the highest mean sentence F1 over seeds, input EOS (ties: first)."""
    found: dict[tuple[str, str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for unit, scores in results.items():
        for s in scores:
            if (s.task, s.metric) == (TREES, SENTENCE_F1):
                found[unit.model, unit.probe, s.setting][unit.layer].append(s.value)
    return {key: max(sorted(layers), key=lambda layer: np.mean(layers[layer])) for key, layers in found.items()}


def best_layer_rows(results: Results, widest: int, seed: int) -> Iterator[Metric]:
    """table4 and f1_by_length at the best layer; best_layer says which it is; spread says what the seeds do to it."""
    for (model, probe, setting), layer in best_layers(results).items():
        by_metric: dict[str, list[ProbeScore]] = defaultdict(list)
        for s in results[Unit(model, layer, probe)]:
            if (s.task, s.setting) == (TREES, setting):
                by_metric[s.metric].append(s)
        for s in (*by_metric[SENTENCE_F1], *by_metric[CORPUS_F1]):
            yield Metric(*cells.best_f1(probe, setting, s.metric, model), s.seed, s.value, s.n, "percent")
        row = cells.fit_row(model, probe, setting)
        for metric, scores in by_metric.items():
            if (width := SPAN_WIDTH.index(metric)) is not None and width <= widest:
                yield from (Metric(*cells.f1_by_width(row, width), s.seed, s.value, s.n, "percent") for s in scores)
        values, n = [s.value for s in by_metric[SENTENCE_F1]], by_metric[SENTENCE_F1][0].n
        yield Metric(*cells.best_layer(model, probe, setting), seed, layer, n, "count")
        if len(values) > 1:
            for column, value in (("mean", np.mean(values)), ("sd", np.std(values, ddof=1))):
                yield Metric(*cells.spread(model, probe, setting, SENTENCE_F1, column), seed, float(value), len(values),
                             "percent")


def parser_rows(parsers: Mapping[str, Mapping[str, Scores]], probes: Sequence[str], widest: int, seed: int
                ) -> Iterator[Metric]:
    """table4's columns for Inside-Outside and the trivial trees, on the probes' own test sentences.

    parsers: name -> test text -> scores.
    """
    for name, by_text in parsers.items():
        for setting in cells.SETTINGS:
            scores = by_text[setting.test.name]
            for metric in (SENTENCE_F1, CORPUS_F1):
                yield from (Metric(*cells.best_f1(probe, setting.name, metric, name), seed, *scores[metric], "percent")
                            for probe in probes)
            if name == EXACT_PARSER and setting != cells.OUT_OF_DISTRIBUTION:  # tested on the same text as TREEBANK
                row = cells.exact_row(setting.name)
                yield from (Metric(*cells.f1_by_width(row, width), seed, value, n, "percent")
                            for metric, (value, n) in scores.items()
                            if (width := SPAN_WIDTH.index(metric)) is not None and width <= widest)


def marginal_rows(results: Results, models: Iterable[str], probes: Sequence[str]) -> Iterator[Metric]:
    """table5 and table7: the last layer of every model on the treebank."""
    for model in models:
        last = max(unit.layer for unit in results if unit.model == model)
        for probe in probes:
            for s in results[Unit(model, last, probe)]:
                if s.setting != cells.TREEBANK.name:
                    continue
                if s.metric == "pearson":
                    yield Metric(*cells.pearson_by_length(s.task, model, probe), s.seed, s.value, s.n, "fraction")
                is_shown = probe == cells.MARGINAL_PROBE and s.task in cells.TABLE7_LENGTHS
                if is_shown and s.metric in ("pearson", "spearman"):
                    yield Metric(*cells.correlation(s.task, model, s.metric), s.seed, s.value, s.n, "fraction")


def selectivity_rows(cell_of: Callable[[str], Cell], task_name: str, task: BySeed, control: BySeed) -> Iterator[Metric]:
    """Task, control and selectivity = task - control, per seed; cell_of names the cell of each of the three."""
    for seed, (value, n) in control.items():
        yield Metric(*cell_of(task_name), seed, *task[seed], "fraction")
        yield Metric(*cell_of(cells.CONTROL), seed, value, n, "fraction")
        yield Metric(*cell_of(cells.SELECTIVITY), seed, task[seed].value - value, n, "fraction")
