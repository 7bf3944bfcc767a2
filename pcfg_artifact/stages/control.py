"""Stage 8: control tasks for the base model on the treebank, and selectivity = task - control.

Corpora and fits are those of the stage `probe`, read from its setup.json: selectivity compares like with like.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping

from pcfg_artifact import artifacts, storage
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.config import ControlConfig, ProbeConfig
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.probing.tables import Unit, selectivity_rows
from pcfg_artifact.probing.tasks import PROBES, control_span_task, control_tree_task, run_task
from pcfg_artifact.progress import progress
from pcfg_artifact.stages.probe import Context, fits_of
from pcfg_artifact.stages.probed import (
    device_of,
    load_encoder,
    model_folders,
    read_corpora,
    run_fits,
    store_states,
    stored_layer,
)

Measured = Mapping[tuple[str, str, str], Mapping[int, tuple[float, int]]]  # (table, row, column) -> seed -> (value, n)


def run(cfg: ControlConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    setup = inputs["probe"].json("setup")
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in setup["config"].items()}
    probe_cfg = ProbeConfig(**options)
    base, last = setup["base"], setup["models"][setup["base"]]
    corpora = read_corpora(inputs, probe_cfg.max_length, probe_cfg.n_train, probe_cfg.n_test)[0]
    corpora = {name: corpora[name] for name in ("PTB train", "PTB test")}
    context = Context(probe_cfg, corpora, out.path("scratch"), out.path("fits"), base, {base: last}, machine,
                      cfg.seed)

    units = [Unit(base, layer, probe) for layer in range(last + 1) for probe in reversed(PROBES)]
    todo = [unit for unit in units if not context.path(unit).is_file()]
    if todo:
        model, tokenizer = load_encoder(model_folders(inputs)[base])
        store_states(model, tokenizer, corpora, context.states / base, precision=probe_cfg.precision,
                     max_tokens=probe_cfg.batch_tokens, device=machine.device, progress=progress)
        finished = run_fits(fit_unit, todo, context, 2 * model.config.hidden_size)
        for _ in progress(finished, total=len(todo), desc="control tasks"):
            pass
    shutil.rmtree(context.states, ignore_errors=True)
    out.write_metrics(list(_metrics(context, units, _measured(inputs["probe"].metrics()))))


def fit_unit(context: Context, unit: Unit) -> Unit:
    """The control tasks of one probe on one layer, in a worker process."""
    layers = stored_layer(context.corpora, context.states / unit.model, unit.layer)
    fits = fits_of(context.cfg, device_of(context.machine))
    tasks = [control_tree_task(context.control_seed)]
    if context.cfg.marginal_layers == "all" or unit.layer in (0, context.last[unit.model]):
        tasks += [control_span_task(width, context.control_seed) for width in context.cfg.widths]
    scores, facts = [], {}
    for task in tasks:
        outcome = run_task(task, unit.probe, layers["PTB train"], {"PTB": layers["PTB test"]}, fits)
        scores += [[*s[:4], artifacts.finite_or_none(s.value), s.n] for s in outcome.scores]
        facts[task.name] = outcome.facts
    storage.write_json(context.path(unit), {"scores": scores, "facts": facts})
    return unit


def _measured(metrics: list[Metric]) -> Measured:
    found: dict[tuple[str, str, str], dict[int, tuple[float, int]]] = defaultdict(dict)
    for m in metrics:
        found[m.table, m.row, m.column][m.seed] = (m.value, m.n)
    return found


def _metrics(context: Context, units: list[Unit], probed: Measured) -> Iterator[Metric]:
    for unit in units:
        control: dict[tuple[str, str], dict[int, tuple[float, int]]] = defaultdict(dict)
        for _, task, metric, seed, value, n in storage.read_json(context.path(unit))["scores"]:
            control[task, metric][seed] = (float("nan") if value is None else value, n)
        name = f"{unit.model} {unit.probe} PTB"
        column = f"L{unit.layer}"
        yield from selectivity_rows("table6", "relative_depth", unit.probe, column,
                                    probed["figure_layers", f"{name} EOS accuracy", column], control["EOS", "accuracy"])
        for (task, metric), by_seed in control.items():
            if metric != "pearson":
                continue
            task_scores = probed["figure_marginals", f"{name} {column} pearson", task]
            yield from selectivity_rows("figure_selectivity", "marginal", f"{column} {unit.probe}", task, task_scores,
                                        by_seed)
            if unit.layer == context.last[unit.model]:
                yield from selectivity_rows("table8", "marginal", unit.probe, task, task_scores, by_seed)
