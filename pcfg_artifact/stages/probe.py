"""Stage 7: parse trees and span marginals read from the hidden states of every layer of every model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pcfg_artifact import cells
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.cells import SAMPLED, SPAN_LENGTH, TREEBANK, TREES
from pcfg_artifact.config import ProbeConfig, as_json
from pcfg_artifact.corpora import read_corpora, unscored_corpus
from pcfg_artifact.encoders import load_config, model_folders, untrained_folder
from pcfg_artifact.errors import StageError
from pcfg_artifact.example_sentence import example_trees
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.probing import probe_rows
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.illustrations import probed_trees, scatter_plot
from pcfg_artifact.probing.probe_rows import Unit
from pcfg_artifact.probing.reference_parsers import score_parsers
from pcfg_artifact.probing.tasks import ProbeScore, Task, nary_tree_task, run_task, span_task, tree_task
from pcfg_artifact.progress import progress
from pcfg_artifact.roles import roles_of, untrained
from pcfg_artifact.seeding import stream
from pcfg_artifact.workers.probe_fits import (
    Context,
    Fit,
    device_of,
    fit_all,
    read_result,
    read_times,
    scores_as_json,
    write_result,
)

EXAMPLE = "example"  # a corpus of some sentences, which are shown and not scored


def run(cfg: ProbeConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    corpora, left_out = read_corpora(inputs, cfg.max_length, cfg.n_train, cfg.n_test)
    example = {EXAMPLE: unscored_corpus(inputs.pcfg(), example_trees(inputs))}
    folders = model_folders(inputs["pretrain"])
    base = roles_of(folders).base
    if base is None:
        raise StageError(f"{inputs['pretrain'].root} holds no model of the form A4L3; run --from pretrain --force")
    context = Context.build(cfg, corpora | example, base, machine, out.root, as_json(cfg))
    encoders = dict(folders)
    if cfg.random_weights:
        encoders[untrained(base)] = untrained_folder(inputs["pretrain"], base)
    context.last.update({name: load_config(folder).num_hidden_layers for name, folder in encoders.items()})
    fit_all(context, encoders, fits_of, run_fit, 3, progress=progress, what="probing")

    results: dict[Unit, list[ProbeScore]] = {}
    written: dict[Fit, Any] = {}
    for unit in (unit for name in encoders for unit in context.units(name)):
        results[unit] = []
        for fit in fits_of(context, unit):
            scores, written[fit] = read_result(context, fit)
            results[unit] += scores
    write_illustrations(context, results, written, out)
    out.write_json("setup", {"config": as_json(cfg), "base": base, "models": context.last})
    out.facts["fits"] = {f"{fit.unit.model}/{fit}": found["facts"] for fit, found in written.items()}
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


def write_illustrations(context: Context, results: probe_rows.Results, written: dict[Fit, Any], out: StageDir) -> None:
    """scatter.json, example.json and explored.json: the base model as the probes see it that the paper shows, or the
    first ones."""
    base, last = context.base, context.last[context.base]
    tree_probe, marginal_probe = (name if name in context.probes else next(iter(context.probes))
                                  for name in (cells.TREE_PROBE, cells.MARGINAL_PROBE))
    best = probe_rows.best_layers(results)[base, tree_probe, TREEBANK.name]
    training, shown = TREEBANK.training.name, Unit(base, last, marginal_probe)
    scatter = {str(width): written[Fit(shown, training, SPAN_LENGTH(width))]["scatter"] for width in context.cfg.widths}
    trees = [written[Fit(Unit(base, layer, tree_probe), training, TREES)]["example"] for layer in range(last + 1)]
    out.write_json("scatter", {"model": base, "layer": last, "lengths": scatter})
    out.write_json("example", {"model": base, "layer": best, **trees[best][0]})
    out.write_json("explored", {"model": base, "best": best, "words": [tree["words"] for tree in trees[0]],
                                "layers": [[tree["spans"] for tree in layer] for layer in trees]})


# ---- one fit, in a worker process ------------------------------------------------------------------------------------


def fits_of(context: Context, unit: Unit) -> list[Fit]:
    """Every task of a probe on a layer, learned from sampled text and from the treebank."""
    trainings = dict.fromkeys(setting.training.name for setting in cells.SETTINGS)
    return [Fit(unit, training, name) for training in trainings for name in tasks_of(context, unit)]


def run_fit(context: Context, fit: Fit) -> Fit:
    started, unit, layers = time.process_time(), fit.unit, context.layers(fit.unit)
    tests = {s.name: layers[s.test.name] for s in cells.SETTINGS if s.training.name == fit.training}
    is_drawn = fit.training == TREEBANK.training.name
    shown = {EXAMPLE: layers[EXAMPLE]} if is_drawn and fit.task == TREES else {}
    result = run_task(tasks_of(context, unit)[fit.task], context.probes[unit.probe], layers[fit.training], tests,
                      context.seeds, device=device_of(context.machine), unscored=shown)
    found: dict[str, Any] = {"scores": scores_as_json(result.scores), "facts": result.facts}
    if shown:
        found["example"] = probed_trees(context.corpora[EXAMPLE], result.predicted[EXAMPLE])
    if is_drawn and SPAN_LENGTH.index(fit.task) is not None:
        found["scatter"] = scatter_plot(result.wanted[TREEBANK.name], result.predicted[TREEBANK.name],
                                        context.cfg.n_scatter, context.cfg.seed)
    write_result(context, fit, found, time.process_time() - started)
    return fit


def tasks_of(context: Context, unit: Unit) -> dict[str, Task]:
    """EOS for every layer; marginals at the first and last layer, or at all; ADJ and n-ary labels where asked for."""
    cfg, is_base = context.cfg, unit.model == context.base
    tasks = [tree_task(TREES)]
    if cfg.adjacent == "all" or (cfg.adjacent == "base" and is_base):
        tasks.append(tree_task(cells.ADJACENT_TREES))
    if cfg.nary == "all" or (cfg.nary == "base" and is_base):
        tasks.append(nary_tree_task(TREES))
    if context.has_marginals(unit):
        tasks += [span_task(width) for width in cfg.widths]
    return {task.name: task for task in tasks}
