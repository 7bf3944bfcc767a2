"""Stage 8: control tasks for the base model on the treebank, and selectivity = task - control.

Corpora and fits are those of the stage `probe`, read from its setup.json: selectivity compares like with like.
"""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pcfg_artifact import cells
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.cells import TREEBANK, TREES, Cell, Measurement
from pcfg_artifact.config import ControlConfig, ProbeConfig
from pcfg_artifact.corpora import read_corpora
from pcfg_artifact.encoders import load_encoder, model_folders
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.probing.probe_rows import BySeed, Unit, selectivity_rows
from pcfg_artifact.probing.tasks import control_span_task, control_tree_task, run_task
from pcfg_artifact.progress import progress
from pcfg_artifact.workers.probe_fits import (
    Context,
    device_of,
    fit_model,
    read_result,
    read_times,
    scores_as_json,
    write_result,
)

Probed = Mapping[Cell, BySeed]


def run(cfg: ControlConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    setup = inputs["probe"].json("setup")
    options: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                               for name, value in setup["config"].items()}
    probe_cfg, base = ProbeConfig(**options), setup["base"]
    corpora, _ = read_corpora(inputs, probe_cfg.max_length, probe_cfg.n_train, probe_cfg.n_test)
    corpora = {text.name: corpora[text.name] for text in (TREEBANK.training, TREEBANK.test)}
    context = Context.build(probe_cfg, corpora, base, machine, out.root, options, cfg.seed)
    context.last[base] = setup["models"][base]
    model, tokenizer = load_encoder(model_folders(inputs["pretrain"])[base])
    fit_model(context, base, model, tokenizer, fit_unit, 2, progress=progress, what="control tasks")
    out.facts["cpu_seconds"] = read_times(context)
    shutil.rmtree(context.states, ignore_errors=True)
    out.write_metrics(list(metrics_of(context, probed_scores(inputs["probe"].metrics()))))


def fit_unit(context: Context, unit: Unit) -> Unit:
    """The control tasks of one probe on one layer, in a worker process."""
    started, layers = time.process_time(), context.layers(unit)
    tasks = [control_tree_task(context.control_seed)]
    if context.has_marginals(unit):
        tasks += [control_span_task(width, context.control_seed) for width in context.cfg.widths]
    scores, facts = [], {}
    for task in tasks:
        result = run_task(task, context.probes[unit.probe], layers[TREEBANK.training.name],
                          {TREEBANK.name: layers[TREEBANK.test.name]}, context.seeds, device=device_of(context.machine))
        scores += scores_as_json(result.scores)
        facts[task.name] = result.facts
    write_result(context, unit, {"scores": scores, "facts": facts}, time.process_time() - started)
    return unit


def probed_scores(metrics: list[Metric]) -> Probed:
    found: dict[Cell, dict[int, Measurement]] = defaultdict(dict)
    for m in metrics:
        found[Cell(m.table, m.row, m.column)][m.seed] = Measurement(m.value, m.n)
    return found


def metrics_of(context: Context, probed: Probed) -> Iterator[Metric]:
    units = context.units(context.base)
    # Nothing depends on this order but the order of lines: that of fitting, probes with seeds first.
    units.sort(key=lambda unit: (unit.layer, not context.probes[unit.probe].has_seeds))
    for unit in units:
        model, layer, probe = unit
        control: dict[tuple[str, str], dict[int, Measurement]] = defaultdict(dict)
        for s in read_result(context, unit)[0]:
            control[s.task, s.metric][s.seed] = Measurement(s.value, s.n)
        accuracy = probed[cells.layer_score(model, probe, TREEBANK.name, TREES, "accuracy", layer)]
        yield from selectivity_rows(partial(cells.control_of_trees, probe, layer=layer), "relative_depth", accuracy,
                                    control[TREES, "accuracy"])
        for (task, metric), by_seed in control.items():
            if metric != "pearson":
                continue
            pearson = probed[cells.marginal_score(model, probe, TREEBANK.name, layer, metric, task)]
            yield from selectivity_rows(partial(cells.control_by_layer, layer, probe, task=task), "marginal", pearson,
                                        by_seed)
            if layer == context.last[model]:
                yield from selectivity_rows(partial(cells.control_of_marginals, probe, task=task), "marginal", pearson,
                                            by_seed)
