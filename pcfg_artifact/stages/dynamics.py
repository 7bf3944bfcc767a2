"""Stage `dynamics`: when a model learns to predict, to hold the tree, and to use it, at every kept step.

It follows the base model and, where the run has one, the causal model of the same shape.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.interventions.counterfactuals import build
from pcfg_artifact.interventions.effects import half_way_step
from pcfg_artifact.interventions.experiment import LINEAR
from pcfg_artifact.metrics.models import masked_counterpart
from pcfg_artifact.metrics.schema import Key, Metric
from pcfg_artifact.metrics.selection import BEST, Numbers
from pcfg_artifact.mlm import exact_comparison
from pcfg_artifact.parsing.engine import EngineOptions
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.parsing.prefix.left_to_right import next_words
from pcfg_artifact.parsing.prefix.tree_facts import facts_so_far
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.probes import build_probes, shown_probe
from pcfg_artifact.probing.reading_probe import OF_TREE, RELATIVE_DEPTH
from pcfg_artifact.probing.settings import EOS, settings_of
from pcfg_artifact.run.corpora import read_corpora
from pcfg_artifact.run.inputs import Inputs, kept_folders, model_folders
from pcfg_artifact.run.sections import DynamicsConfig
from pcfg_artifact.run.stage_folder import Folder, StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import progress
from pcfg_artifact.system.threads import ordered_map
from pcfg_artifact.workers.model_jobs import (
    Checkpoint,
    CheckpointContext,
    Followed,
    InterventionContext,
    MaskedWords,
    NextWordsAndEnd,
    measure_checkpoint,
)
from pcfg_artifact.workers.pool import n_processes, run_jobs

HALF_WAY = ("excess", "sentence_f1", "pearson")  # the measures of which the half-way step is told


def run(cfg: DynamicsConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    context = build_context(cfg, inputs, machine)
    jobs = [Checkpoint(name, step, folder) for name in context.followed
            for step, folder in kept_folders(inputs["pretrain"], name).items()]
    done = list(progress(run_jobs(measure_checkpoint, jobs, context, n_processes(machine, machine.n_workers)),
                         total=len(jobs), desc=f"{' and '.join(context.followed)} while trained"))
    out.facts["cpu_seconds"] = {f"{job.model} step {job.step}": round(seconds, 2) for job, _, seconds in done}
    found = {job: points for job, points, _ in done}
    curves = [point for job in jobs for point in found[job]]
    out.write_metrics([*(point for point in curves if math.isfinite(point.value)), *half_way_metrics(curves)])


def build_context(cfg: DynamicsConfig, inputs: Inputs, machine: Machine) -> CheckpointContext:
    setup, options = inputs["probe"].json("setup"), inputs["intervene"].json("setup")["config"]
    base, probe, grammar = setup["base"], setup["config"], inputs.pcfg()
    corpora, _ = read_corpora(inputs, probe["max_length"], cfg.n_train, cfg.n_test)
    setting = settings_of(corpora)[-1]
    train, test = corpora[setting.training.name], corpora[setting.test.name]
    linear, interventions = build_probes((LINEAR,), probe), None
    if inputs["intervene"].metrics():  # of a grammar whose spans are never in doubt there are none
        data = build(grammar, inputs.sentences("probe_train"), inputs.sentences("probe_test"),
                     mask_rate=options["mask_rate"], max_length=options["max_length"], n_train=cfg.n_train,
                     n_test=cfg.n_test, widths=options["widths"], n_questions=cfg.n_questions, seed=cfg.seed,
                     options=EngineOptions(n_threads=machine.n_workers))
        interventions = InterventionContext(data, linear, machine, cfg.seed)
    best = best_layer(inputs["probe"], table="parsing", model=base, probe=shown_probe(LINEAR, probe["probes"]),
                      setting=setting.name, input=EOS, convention="PB", metric="sentence_f1")
    followed = {base: Followed(masked_words(cfg, grammar, inputs, machine, options), train, test, best, interventions)}
    causal_models = model_folders(inputs["pretrain"], is_causal=True)
    for causal in (name for name in causal_models if masked_counterpart(name) == base):
        followed[causal] = Followed(words_ahead(cfg, grammar, inputs, machine, options),
                                    scored_so_far(grammar, train, machine), scored_so_far(grammar, test, machine),
                                    # `probe` reads no causal models, `incremental` reads their relative depths.
                                    best_layer(inputs["incremental"], table="incremental", model=causal,
                                               setting=OF_TREE, **vars(RELATIVE_DEPTH), metric="explained"), None)
    return CheckpointContext(followed, linear[LINEAR], tuple(probe["widths"]), setting.name, cfg.n_attention, machine,
                             cfg.seed)


# ---- what is predicted -----------------------------------------------------------------------------------------------


def masked_words(cfg: DynamicsConfig, grammar: PCFG, inputs: Inputs, machine: Machine, options: Mapping[str, Any]
                 ) -> MaskedWords:
    """The first validation sentences, masked as for `intervene`; those without a mask say nothing."""
    masking = Masking(options["mask_rate"], "mask")
    masked = [one for one in exact_comparison.masked_sentences(
        grammar, inputs.sentences("validation"), masking, seed=cfg.seed, n=cfg.n_loss, max_length=options["max_length"])
        if len(one.positions)]
    engine = EngineOptions(n_threads=machine.n_workers)
    return MaskedWords(masked, list(exact_comparison.exact_predictions(grammar, masked, masking, engine)))


def words_ahead(cfg: DynamicsConfig, grammar: PCFG, inputs: Inputs, machine: Machine, options: Mapping[str, Any]
                ) -> NextWordsAndEnd:
    """The same validation sentences for a causal model."""
    sentences = inputs.sentences("validation")
    chosen = np.flatnonzero(sentences.lengths <= options["max_length"])[:cfg.n_loss]
    words = [np.asarray(sentences.row(int(s)), np.int64) for s in chosen]
    exact = ordered_map(lambda ids: next_words(grammar, ids).next_word, words, machine.n_workers)
    return NextWordsAndEnd(words, list(exact))


# ---- what is read ----------------------------------------------------------------------------------------------------


def scored_so_far(grammar: PCFG, corpus: Corpus, machine: Machine) -> Corpus:
    """The corpus with the probability of every span given the words up to its end in place of its score."""
    facts = ordered_map(partial(facts_so_far, grammar), corpus.sentences, machine.n_workers)
    return dataclasses.replace(corpus, scores=[None if scores is None else fact.spans
                                               for scores, fact in zip(corpus.scores, facts, strict=True)])


def best_layer(stage: Folder, **scores: Any) -> int:
    """The layer with the highest of these scores of a stage."""
    best, = Numbers(stage.metrics()).select({**scores, "layer": BEST})
    assert best.layer is not None  # it was selected by it
    return best.layer


# ---- curves ----------------------------------------------------------------------------------------------------------


def half_way_metrics(curves: Iterable[Metric]) -> Iterator[Metric]:
    """When loss, tree and the marginals of each width had gone half of their way."""
    by_curve: dict[Key, list[Metric]] = defaultdict(list)
    for metric in curves:
        if metric.metric in HALF_WAY:
            by_curve[metric.at(step=None).key].append(metric)
    for points in by_curve.values():
        step = half_way_step({point.step: point.value for point in points if point.step is not None})
        if math.isfinite(step):
            yield points[0].at(table="half_way", step=None, value=step, error=None, n=len(points), unit="steps")
