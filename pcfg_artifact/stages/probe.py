"""Stage `probe`: parse trees and span marginals read from the hidden states of every layer of every model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pcfg_artifact.errors import StageError
from pcfg_artifact.metrics.models import roles_of, untrained
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import ALL, BEST, Numbers
from pcfg_artifact.mlm.encoders import load_config
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.probe_scores import parser_metrics, probed_trees, scatter_plot, share_near_zero
from pcfg_artifact.probing.probes import shown_probe
from pcfg_artifact.probing.settings import EOS, MARGINAL_PROBE, TREE_PROBE, settings_of
from pcfg_artifact.probing.tasks import ROWS, Task, nary_tree_task, run_task, span_task, tree_task, window_tasks
from pcfg_artifact.run.corpora import read_corpora, unscored_corpus
from pcfg_artifact.run.example_sentence import example_trees
from pcfg_artifact.run.inputs import Inputs, model_folders, untrained_folder
from pcfg_artifact.run.sections import ProbeConfig, as_json
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import progress
from pcfg_artifact.system.random_streams import stream
from pcfg_artifact.workers.pool import device_of
from pcfg_artifact.workers.probe_fits import Context, Fit, Unit, fit_all, read_result, read_times, write_result

EXAMPLE = "example"  # a corpus of some sentences, which are shown and not scored
BEST_LAYERS = {"table": "parsing", "model": ALL, "layer": BEST, "probe": ALL, "setting": ALL, "input": EOS,
               "convention": "PB", "metric": "sentence_f1"}
BestLayers = Mapping[tuple[str, str, str], int]  # by model, probe and setting


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
    # Layer 0 of the base model has every task.
    n_rows = max(task.rows(np.array([cfg.max_length])).shape[1]
                 for task in tasks_of(context, context.units(base)[0]).values())
    fit_all(context, encoders, fits_of, run_fit, n_rows, progress=progress, what="probing")

    scores: list[Metric] = []
    written: dict[Fit, Any] = {}
    for fit in (fit for name in encoders for unit in context.units(name) for fit in fits_of(context, unit)):
        found, written[fit] = read_result(context, fit)
        scores += found
    out.write_json("setup", {"config": as_json(cfg), "base": base, "models": context.last})
    out.facts["fits"] = {f"{fit.unit.model}/{fit}": found["facts"] for fit, found in written.items()}
    out.facts["cpu_seconds"] = read_times(context)
    best = {(score.model, score.probe, score.setting): score.layer
            for score in Numbers(scores).select(BEST_LAYERS) if score.layer is not None}
    tests = {name: corpora[name] for name in dict.fromkeys(setting.test.name for setting in settings_of(corpora))}
    others = [*parser_metrics(tests, cfg.widest, stream(cfg.seed, "random trees")),
              *corpus_metrics(corpora, left_out), *write_illustrations(context, best, written, out)]
    out.write_metrics([*shown_scores(scores, best, cfg.widest), *(metric.at(seed=cfg.seed) for metric in others)])


def shown_scores(scores: Iterable[Metric], best: BestLayers, widest: int) -> Iterator[Metric]:
    """Those of every layer, but F1 by span width of the best layer alone."""
    for score in scores:
        if score.metric != "f1":
            yield score
        elif score.input == EOS and score.width is not None and score.width <= widest \
                and score.layer == best[score.model, score.probe, score.setting]:
            yield score.at(layer=None, group="best layer")


def corpus_metrics(corpora: dict[str, Corpus], left_out: dict[str, dict[str, int]]) -> Iterator[Metric]:
    for name, corpus in corpora.items():
        unparsed = sum(scores is None for scores in corpus.scores)
        counts = {"sentences": len(corpus), "words": int(corpus.lengths.sum()), **left_out[name],
                  "without_span_scores": unparsed}
        for metric, value in counts.items():
            yield Metric(table="probing_corpora", group=name, metric=metric, value=value, n=len(corpus), unit="count")


def write_illustrations(context: Context, best: BestLayers, written: dict[Fit, Any], out: StageDir) -> list[Metric]:
    """scatter.json, example.json and explored.json: the base model as the probes see it that the paper shows, or the
    first ones; and what a scatter plot says in a number."""
    base, last = context.base, context.last[context.base]
    tree_probe, marginal_probe = (shown_probe(name, context.probes) for name in (TREE_PROBE, MARGINAL_PROBE))
    setting = settings_of(context.corpora)[-1]
    best_layer = best[base, tree_probe, setting.name]
    training, shown = setting.training.name, Unit(base, last, marginal_probe)
    scatter = {width: written[Fit(shown, training, span_task(width).name)]["scatter"] for width in context.cfg.widths}
    trees = [written[Fit(Unit(base, layer, tree_probe), training, EOS)]["example"] for layer in range(last + 1)]
    out.write_json("scatter", {"model": base, "layer": last, "lengths": scatter})
    out.write_json("example", {"model": base, "layer": best_layer, **trees[best_layer][0]})
    out.write_json("explored", {"model": base, "best": best_layer, "words": [tree["words"] for tree in trees[0]],
                                "layers": [[tree["spans"] for tree in layer] for layer in trees]})
    return [share_near_zero(points["true"], width).at(setting=setting.name)
            for width, points in scatter.items() if points["true"]]  # none where the probe diverged


# ---- one fit, in a worker process ------------------------------------------------------------------------------------


def fits_of(context: Context, unit: Unit) -> list[Fit]:
    """Every task of a probe on a layer, learned from sampled text and from the treebank, where there is one."""
    trainings = dict.fromkeys(setting.training.name for setting in settings_of(context.corpora))
    return [Fit(unit, training, name) for training in trainings for name in tasks_of(context, unit)]


def run_fit(context: Context, fit: Fit) -> Fit:
    started, unit, layers = time.process_time(), fit.unit, context.layers(fit.unit)
    settings = settings_of(context.corpora)
    tests = {s.name: layers[s.test.name] for s in settings if s.training.name == fit.training}
    is_drawn = fit.training == settings[-1].training.name
    task, unscored = tasks_of(context, unit)[fit.task], {EXAMPLE: layers[EXAMPLE]}
    has_example = is_drawn and fit.task == EOS
    result = run_task(task, context.probes[unit.probe], layers[fit.training], tests, context.seeds,
                      device=device_of(context.machine), unscored=unscored if has_example else {})
    shown: dict[str, Any] = {}
    if has_example:
        shown["example"] = probed_trees(context.corpora[EXAMPLE], result.predicted[EXAMPLE])
    if is_drawn and set(task.dimensions) == {"width"}:
        shown["scatter"] = scatter_plot(result.targets[settings[-1].name], result.predicted[settings[-1].name],
                                        context.cfg.n_scatter, context.cfg.seed)
    write_result(context, fit, result, time.process_time() - started, **shown)
    return fit


def tasks_of(context: Context, unit: Unit) -> dict[str, Task]:
    """EOS for every layer; marginals at the first and last layer, or at all; the other inputs and n-ary labels where
    asked for, and windows of the base model's word vectors."""
    cfg, is_base = context.cfg, unit.model == context.base
    tasks = [tree_task(EOS)]
    if cfg.adjacent == "all" or (cfg.adjacent == "base" and is_base):
        tasks += [tree_task(name) for name in ROWS if name != EOS]
    if cfg.nary == "all" or (cfg.nary == "base" and is_base):
        tasks.append(nary_tree_task(EOS))
    if context.has_marginals(unit):
        tasks += [span_task(width) for width in cfg.widths]
    if is_base and unit.layer == 0:
        tasks += [task for window in cfg.windows for task in window_tasks(window, cfg.widths)]
    return {task.name: task for task in tasks}
