"""Stage 7: parse trees and span marginals read from the hidden states of every layer of every model."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pcfg_artifact import artifacts, storage
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.config import ProbeConfig
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.probing import tables
from pcfg_artifact.probing.baselines import score_baselines
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.figures import example_tree, scatter_plot
from pcfg_artifact.probing.fitting import LinearFit, NetworkFit
from pcfg_artifact.probing.tables import Unit
from pcfg_artifact.probing.tasks import (
    LINEAR,
    PROBES,
    TWO_LAYER,
    Fits,
    Score,
    Task,
    nary_tree_task,
    run_task,
    span_task,
    tree_task,
)
from pcfg_artifact.progress import progress
from pcfg_artifact.seeding import stream
from pcfg_artifact.stages.probed import (
    SETTINGS,
    device_of,
    load_encoder,
    model_folders,
    read_corpora,
    run_fits,
    store_states,
    stored_layer,
    untrained_folder,
)

RANDOM = "-random"  # of a model's name: the same model before training, with the weights it started from


@dataclass(frozen=True)
class Context:
    """What every fit of the stage needs."""

    cfg: ProbeConfig
    corpora: dict[str, Corpus]
    states: Path  # folder of hidden states by model
    results: Path
    base: str
    last: dict[str, int]  # model -> its last layer
    machine: Machine
    control_seed: int = 0  # of the random labels, for the stage `control`

    def path(self, unit: Unit) -> Path:
        return self.results / unit.model / f"L{unit.layer}-{unit.probe}.json"


def run(cfg: ProbeConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    corpora, n_seen = read_corpora(inputs, cfg.max_length, cfg.n_train, cfg.n_test)
    folders = model_folders(inputs)
    base = tables.base_model(folders)
    encoders = dict(folders)
    if cfg.random_weights:
        encoders[f"{base}{RANDOM}"] = untrained_folder(inputs, base)
    context = Context(cfg, corpora, out.path("scratch"), out.path("fits"), base, {}, machine)

    for name, folder in encoders.items():
        model, tokenizer = load_encoder(folder)
        context.last[name] = model.config.num_hidden_layers
        units = [Unit(name, layer, probe) for layer in range(context.last[name] + 1) for probe in reversed(PROBES)]
        todo = [unit for unit in units if not context.path(unit).is_file()]
        if todo:
            store_states(model, tokenizer, corpora, context.states / name, precision=cfg.precision,
                         max_tokens=cfg.batch_tokens, device=machine.device, progress=progress)
            finished = run_fits(fit_unit, todo, context, 3 * model.config.hidden_size)
            for _ in progress(finished, total=len(todo), desc=f"probing {name}"):
                pass
        shutil.rmtree(context.states / name, ignore_errors=True)

    written = {unit: storage.read_json(context.path(unit)) for unit in _all_units(context)}
    results = {unit: [Score(*s[:4], float("nan") if s[4] is None else s[4], s[5]) for s in found["scores"]]
               for unit, found in written.items()}
    last = written[Unit(base, context.last[base], TWO_LAYER)]
    best = tables.best_layers(results)[base, LINEAR, "PTB"]
    out.write_json("scatter", {"model": base, "layer": context.last[base], "lengths": last["scatter"]})
    out.write_json("example", {"model": base, "layer": best, **written[Unit(base, best, LINEAR)]["example"]})
    out.write_json("setup", {"config": asdict(cfg), "base": base, "models": context.last})
    out.facts["fits"] = {"/".join(map(str, unit)): found["facts"] for unit, found in written.items()}
    out.write_metrics(list(_metrics(cfg, corpora, n_seen, results, list(folders))))


def _all_units(context: Context) -> list[Unit]:
    return [Unit(name, layer, probe) for name, last in context.last.items()
            for layer in range(last + 1) for probe in PROBES]


def _metrics(cfg: ProbeConfig, corpora: dict[str, Corpus], n_seen: dict[str, int], results: tables.Results,
             models: list[str]) -> Iterator[Metric]:
    settings = {setting: corpus for tests in SETTINGS.values() for setting, corpus in tests.items()}
    yield from tables.layer_rows(results)
    yield from tables.best_layer_rows(results, cfg.seed)
    yield from tables.marginal_rows(results, models)
    scored = score_baselines({name: corpora[name] for name in settings.values()}, stream(cfg.seed, "random trees"))
    yield from tables.baseline_rows(scored, settings, cfg.seed)
    for name, corpus in corpora.items():
        unparsed = sum(scores is None for scores in corpus.scores)
        for column, value in (("sentences", len(corpus)), ("words", int(corpus.lengths.sum())),
                              ("seen in training", n_seen.get(name, 0)), ("without span scores", unparsed)):
            yield Metric("probing_corpora", name, column, cfg.seed, value, len(corpus), "count")


# ---- one unit, in a worker process -----------------------------------------------------------------------------------


def fit_unit(context: Context, unit: Unit) -> Unit:
    """Every task of one probe on one layer of one model; its results are one file, written when all is there."""
    cfg, started = context.cfg, time.process_time()
    layers = stored_layer(context.corpora, context.states / unit.model, unit.layer)
    fits = fits_of(cfg, device_of(context.machine))
    found: dict[str, Any] = {"scores": [], "facts": {}, "scatter": {}}
    for corpus, tests in SETTINGS.items():
        for task in tasks_of(context, unit):
            outcome = run_task(task, unit.probe, layers[corpus], {s: layers[name] for s, name in tests.items()}, fits)
            found["scores"] += [[*s[:4], artifacts.finite_or_none(s.value), s.n] for s in outcome.scores]
            found["facts"][f"{corpus} {task.name}"] = outcome.facts
            if "PTB" in tests and task.name == "EOS":
                found["example"] = example_tree(context.corpora["PTB test"], outcome.predicted["PTB"])
            if "PTB" in tests and task.name.startswith("l="):
                found["scatter"][task.name.removeprefix("l=")] = scatter_plot(
                    outcome.wanted["PTB"], outcome.predicted["PTB"], cfg.n_scatter, cfg.seed)
    found["facts"]["cpu_seconds"] = time.process_time() - started
    storage.write_json(context.path(unit), found)
    return unit


def fits_of(cfg: ProbeConfig, device: str) -> Fits:
    return Fits(LinearFit(cfg.linear_iterations, cfg.inverse_penalty),
                NetworkFit(cfg.n_hidden, cfg.epochs, cfg.learning_rate, cfg.milestones, cfg.batch_size),
                tuple(range(cfg.seed, cfg.seed + cfg.n_seeds)), device)


def tasks_of(context: Context, unit: Unit) -> list[Task]:
    """EOS for every layer; marginals at the first and last layer, or at all; ADJ and n-ary labels where asked for."""
    cfg, is_base = context.cfg, unit.model == context.base
    tasks = [tree_task("EOS")]
    if cfg.adjacent == "all" or (cfg.adjacent == "base" and is_base):
        tasks.append(tree_task("ADJ"))
    if cfg.nary == "all" or (cfg.nary == "base" and is_base):
        tasks.append(nary_tree_task("EOS"))
    if cfg.marginal_layers == "all" or unit.layer in (0, context.last[unit.model]):
        tasks += [span_task(width) for width in cfg.widths]
    return tasks
