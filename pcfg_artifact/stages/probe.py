"""Stage 7: parse trees and span marginals read from the hidden states of every layer of every model."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

from pcfg_artifact import cells
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.cells import SAMPLED, SPAN_LENGTH, TREEBANK, TREES
from pcfg_artifact.config import ProbeConfig, as_json
from pcfg_artifact.corpora import read_corpora, unscored_corpus
from pcfg_artifact.encoders import load_encoder, model_folders, untrained_folder
from pcfg_artifact.errors import StageError
from pcfg_artifact.example_sentence import example_tree
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.probing import probe_rows
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.illustrations import probed_tree, scatter_plot
from pcfg_artifact.probing.probe_rows import Unit
from pcfg_artifact.probing.reference_parsers import score_parsers
from pcfg_artifact.probing.tasks import Task, nary_tree_task, run_task, span_task, tree_task
from pcfg_artifact.progress import progress
from pcfg_artifact.seeding import stream
from pcfg_artifact.workers.probe_fits import (
    Context,
    device_of,
    fit_model,
    read_result,
    read_times,
    scores_as_json,
    write_result,
)

EXAMPLE = "example"  # a corpus of one sentence, which is drawn and not scored


def run(cfg: ProbeConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    corpora, left_out = read_corpora(inputs, cfg.max_length, cfg.n_train, cfg.n_test)
    example = {EXAMPLE: unscored_corpus(inputs.pcfg(), example_tree(inputs))}
    folders = model_folders(inputs["pretrain"])
    base = cells.roles_of(folders).base
    if base is None:
        raise StageError(f"{inputs['pretrain'].root} holds no model of the form A4L3; run --from pretrain --force")
    context = Context.build(cfg, corpora | example, base, machine, out.root, as_json(cfg))
    encoders = dict(folders)
    if cfg.random_weights:
        encoders[cells.untrained(base)] = untrained_folder(inputs["pretrain"], base)
    for name, folder in encoders.items():
        model, tokenizer = load_encoder(folder)
        context.last[name] = model.config.num_hidden_layers
        fit_model(context, name, model, tokenizer, fit_unit, 3, progress=progress, what=f"probing {name}")
        shutil.rmtree(context.states / name, ignore_errors=True)

    results, written = {}, {}
    for unit in (unit for name in encoders for unit in context.units(name)):
        results[unit], written[unit] = read_result(context, unit)
    write_illustrations(context, results, written, out)
    out.write_json("setup", {"config": as_json(cfg), "base": base, "models": context.last})
    out.facts["fits"] = {"/".join(map(str, unit)): found["facts"] for unit, found in written.items()}
    out.facts["cpu_seconds"] = read_times(context)
    out.write_metrics(list(metrics_of(cfg, corpora, left_out, results, list(folders))))


def metrics_of(cfg: ProbeConfig, corpora: dict[str, Corpus], left_out: dict[str, dict[str, int]],
               results: probe_rows.Results, models: list[str]) -> Iterator[Metric]:
    yield from probe_rows.layer_rows(results)
    yield from probe_rows.best_layer_rows(results, cfg.widest, cfg.seed)
    yield from probe_rows.marginal_rows(results, models, cfg.probes)
    tests = {text.name: corpora[text.name] for text in (SAMPLED.test, TREEBANK.test)}
    parsers = score_parsers(tests, stream(cfg.seed, "random trees"))
    yield from probe_rows.parser_rows(parsers, cfg.probes, cfg.widest, cfg.seed)
    for name, corpus in corpora.items():
        unparsed = sum(scores is None for scores in corpus.scores)
        counts = {"sentences": len(corpus), "words": int(corpus.lengths.sum()), **left_out[name],
                  "without span scores": unparsed}
        for column, value in counts.items():
            yield Metric(*cells.probing_corpus(name, column), cfg.seed, value, len(corpus), "count")


def write_illustrations(context: Context, results: probe_rows.Results, written: dict[Unit, Any], out: StageDir) -> None:
    """scatter.json and example.json: the base model as the probes see it that the paper shows, or the first ones."""
    base, last = context.base, context.last[context.base]
    tree_probe, marginal_probe = (name if name in context.probes else next(iter(context.probes))
                                  for name in (cells.TREE_PROBE, cells.MARGINAL_PROBE))
    best = probe_rows.best_layers(results)[base, tree_probe, TREEBANK.name]
    out.write_json("scatter", {"model": base, "layer": last,
                               "lengths": written[Unit(base, last, marginal_probe)]["scatter"]})
    out.write_json("example", {"model": base, "layer": best, **written[Unit(base, best, tree_probe)]["example"]})


# ---- one unit, in a worker process -----------------------------------------------------------------------------------


def fit_unit(context: Context, unit: Unit) -> Unit:
    """Every task of one probe on one layer of one model; its results are one file, written when all is there."""
    started, layers = time.process_time(), context.layers(unit)
    shown = {EXAMPLE: layers[EXAMPLE]}
    found: dict[str, Any] = {"scores": [], "facts": {}, "scatter": {}}
    for training in dict.fromkeys(setting.training for setting in cells.SETTINGS):
        tests = {s.name: layers[s.test.name] for s in cells.SETTINGS if s.training == training}
        for task in tasks_of(context, unit):
            is_drawn = training == TREEBANK.training
            result = run_task(task, context.probes[unit.probe], layers[training.name], tests, context.seeds,
                              device=device_of(context.machine),
                              unscored=shown if is_drawn and task.name == TREES else None)
            found["scores"] += scores_as_json(result.scores)
            found["facts"][f"{training.name} {task.name}"] = result.facts
            if is_drawn and task.name == TREES:
                found["example"] = probed_tree(context.corpora[EXAMPLE], result.predicted[EXAMPLE])
            if is_drawn and (length := SPAN_LENGTH.index(task.name)) is not None:
                found["scatter"][str(length)] = scatter_plot(
                    result.wanted[TREEBANK.name], result.predicted[TREEBANK.name], context.cfg.n_scatter,
                    context.cfg.seed)
    write_result(context, unit, found, time.process_time() - started)
    return unit


def tasks_of(context: Context, unit: Unit) -> list[Task]:
    """EOS for every layer; marginals at the first and last layer, or at all; ADJ and n-ary labels where asked for."""
    cfg, is_base = context.cfg, unit.model == context.base
    tasks = [tree_task(TREES)]
    if cfg.adjacent == "all" or (cfg.adjacent == "base" and is_base):
        tasks.append(tree_task(cells.ADJACENT_TREES))
    if cfg.nary == "all" or (cfg.nary == "base" and is_base):
        tasks.append(nary_tree_task(TREES))
    if context.has_marginals(unit):
        tasks += [span_task(width) for width in cfg.widths]
    return tasks
