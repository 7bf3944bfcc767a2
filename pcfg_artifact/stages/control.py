"""Stage `control`: control tasks for the base model on the treebank, without one on sampled text, and selectivity.

Selectivity is the score of the task less that of the control task.
Corpora and fits are those of the stage `probe`, read from its setup.json: selectivity compares like with like.
"""

from __future__ import annotations

import time
from typing import Any

from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.probing.control_tasks import control_metrics, sensitivity_metrics
from pcfg_artifact.probing.settings import settings_of
from pcfg_artifact.probing.tasks import Task, control_span_task, control_tree_task, run_task
from pcfg_artifact.run.corpora import read_corpora
from pcfg_artifact.run.inputs import Inputs, model_folders
from pcfg_artifact.run.sections import ControlConfig, ProbeConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import progress
from pcfg_artifact.workers.pool import device_of
from pcfg_artifact.workers.probe_fits import Context, Fit, Unit, fit_all, read_result, read_times, write_result


def run(cfg: ControlConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    setup = inputs["probe"].json("setup")
    options: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                               for name, value in setup["config"].items()}
    probe_cfg, base = ProbeConfig(**options), setup["base"]
    corpora, _ = read_corpora(inputs, probe_cfg.max_length, probe_cfg.n_train, probe_cfg.n_test)
    setting = settings_of(corpora)[-1]
    corpora = {text.name: corpora[text.name] for text in (setting.training, setting.test)}
    context = Context.build(probe_cfg, corpora, base, machine, out.root, options, cfg.seed)
    context.last[base] = setup["models"][base]
    folder = model_folders(inputs["pretrain"])[base]
    fit_all(context, {base: folder}, fits_of, run_fit, 2, progress=progress, what="control tasks")
    out.facts["cpu_seconds"] = read_times(context)
    scores = [score for unit in context.units(base) for fit in fits_of(context, unit)
              for score in read_result(context, fit)[0]]
    probed = inputs["probe"].metrics()
    metrics = list(control_metrics(scores, probed))
    numbers = Numbers([*probed, *metrics])
    metrics += [score for probe in context.probes for score in sensitivity_metrics(numbers, base, probe, setting.name)]
    out.write_metrics(metrics)


def tasks_of(context: Context, unit: Unit) -> dict[str, Task]:
    """Random labels for words at every layer, and for pairs of words where marginals are probed."""
    tasks = [control_tree_task(context.control_seed)]
    if context.has_marginals(unit):
        tasks += [control_span_task(width, context.control_seed) for width in context.cfg.widths]
    return {task.name: task for task in tasks}


def fits_of(context: Context, unit: Unit) -> list[Fit]:
    return [Fit(unit, settings_of(context.corpora)[-1].training.name, name) for name in tasks_of(context, unit)]


def run_fit(context: Context, fit: Fit) -> Fit:
    """One control task of one probe on one layer, in a worker process."""
    started, layers, setting = time.process_time(), context.layers(fit.unit), settings_of(context.corpora)[-1]
    result = run_task(tasks_of(context, fit.unit)[fit.task], context.probes[fit.unit.probe], layers[fit.training],
                      {setting.name: layers[setting.test.name]}, context.seeds, device=device_of(context.machine))
    write_result(context, fit, result, time.process_time() - started)
    return fit
