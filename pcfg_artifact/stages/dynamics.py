"""Stage: when a model learns to predict, to hold the tree, and to use it: every kept step of its training.

Followed are the base model and, where the run has it, the causal model of the same shape.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.cells import OF_TREE, RELATIVE_DEPTH, SPAN_WIDTH, TREE_PROBE, TREEBANK, Cell
from pcfg_artifact.config import DynamicsConfig
from pcfg_artifact.corpora import read_corpora
from pcfg_artifact.encoders import causal_folders, kept_folders
from pcfg_artifact.grammar import PCFG
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.interventions.effects import Effect
from pcfg_artifact.interventions.experiment import LINEAR
from pcfg_artifact.interventions.learning_curves import half_way_step
from pcfg_artifact.interventions.material import gather
from pcfg_artifact.machine import Machine
from pcfg_artifact.mlm import optimum
from pcfg_artifact.ordered import ordered_map
from pcfg_artifact.parsing import EngineOptions
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.parsing.prefix import next_words
from pcfg_artifact.parsing.tree_facts import facts_so_far
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.progress import progress
from pcfg_artifact.roles import masked_counterpart
from pcfg_artifact.workers.checkpoint_jobs import (
    LOSS,
    MARGINALS,
    TREE,
    Checkpoint,
    CheckpointContext,
    Followed,
    MaskedWords,
    NextWordsAndEnd,
    measure_checkpoint,
    unit_of,
)
from pcfg_artifact.workers.intervention_jobs import InterventionContext
from pcfg_artifact.workers.pool import run_jobs

Curves = Mapping[int, Mapping[str, Effect]]  # step -> quantity -> its value


def run(cfg: DynamicsConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    context = build_context(cfg, inputs, machine)
    jobs = [Checkpoint(name, step, folder) for name in context.followed
            for step, folder in kept_folders(inputs["pretrain"], name).items()]
    done = list(progress(run_jobs(measure_checkpoint, jobs, context, machine.n_workers), total=len(jobs),
                         desc=f"{' and '.join(context.followed)} while trained"))
    found = {job: curves for job, curves, _ in done}
    out.facts["cpu_seconds"] = {f"{job.model} step {job.step}": round(seconds, 2) for job, _, seconds in done}
    metrics: list[Metric] = []
    for name in context.followed:
        curves = {job.step: found[job] for job in jobs if job.model == name}
        metrics += [*curve_rows(name, curves, cfg.seed), *half_way_rows(name, curves, context.widths, cfg.seed)]
    out.write_metrics(metrics)


def build_context(cfg: DynamicsConfig, inputs: Inputs, machine: Machine) -> CheckpointContext:
    setup, asked = inputs["probe"].json("setup"), inputs["intervene"].json("setup")["config"]
    base, probe, grammar = setup["base"], setup["config"], inputs.pcfg()
    corpora, _ = read_corpora(inputs, probe["max_length"], cfg.n_train, cfg.n_test)
    train, test = corpora[TREEBANK.training.name], corpora[TREEBANK.test.name]
    material = gather(grammar, inputs.sentences("probe_train"), inputs.sentences("probe_test"),
                      mask_rate=asked["mask_rate"], max_length=asked["max_length"], n_train=cfg.n_train,
                      n_test=cfg.n_test, widths=asked["widths"], n_questions=cfg.n_questions, seed=cfg.seed,
                      options=EngineOptions(n_threads=machine.n_workers))
    interventions = InterventionContext(material, probe, machine, cfg.seed)
    followed = {base: Followed(masked_words(cfg, grammar, inputs, machine, asked), train, test,
                               best_layer(inputs, base), interventions)}
    for causal in (name for name in causal_folders(inputs["pretrain"]) if masked_counterpart(name) == base):
        followed[causal] = Followed(words_ahead(cfg, grammar, inputs, machine, asked),
                                    scored_so_far(grammar, train, machine), scored_so_far(grammar, test, machine),
                                    best_causal_layer(inputs, causal), None)
    return CheckpointContext(followed, interventions.probes()[LINEAR], tuple(probe["widths"]), cfg.n_attention, machine,
                             cfg.seed)


# ---- what is predicted -----------------------------------------------------------------------------------------------


def masked_words(cfg: DynamicsConfig, grammar: PCFG, inputs: Inputs, machine: Machine, asked: Mapping[str, Any]
                 ) -> MaskedWords:
    """The first validation sentences, masked as for `intervene`; those without a mask say nothing."""
    masking = Masking(asked["mask_rate"], "mask")
    masked = [one for one in optimum.masked_sentences(grammar, inputs.sentences("validation"), masking, seed=cfg.seed,
                                                      n=cfg.n_loss, max_length=asked["max_length"])
              if len(one.positions)]
    options = EngineOptions(n_threads=machine.n_workers)
    return MaskedWords(masked, list(optimum.exact_predictions(grammar, masked, masking, options)))


def words_ahead(cfg: DynamicsConfig, grammar: PCFG, inputs: Inputs, machine: Machine, asked: Mapping[str, Any]
                ) -> NextWordsAndEnd:
    """The same validation sentences for a causal model."""
    sentences = inputs.sentences("validation")
    chosen = np.flatnonzero(sentences.lengths <= asked["max_length"])[:cfg.n_loss]
    words = [np.asarray(sentences.row(int(s)), np.int64) for s in chosen]
    exact = ordered_map(lambda ids: next_words(grammar, ids).next_word, words, machine.n_workers)
    return NextWordsAndEnd(words, list(exact))


# ---- what is read ----------------------------------------------------------------------------------------------------


def scored_so_far(grammar: PCFG, corpus: Corpus, machine: Machine) -> Corpus:
    """The corpus with the probability of every span given the words up to its end in place of its score."""
    facts = ordered_map(partial(facts_so_far, grammar), corpus.sentences, machine.n_workers)
    return dataclasses.replace(corpus, scores=[None if scores is None else fact.spans
                                               for scores, fact in zip(corpus.scores, facts, strict=True)])


def best_layer(inputs: Inputs, model: str) -> int:
    """The layer that a linear probe parses the treebank best from."""
    best = cells.best_layer(model, TREE_PROBE, TREEBANK.name)
    return next(int(m.value) for m in inputs["probe"].metrics() if Cell(m.table, m.row, m.column) == best)


def best_causal_layer(inputs: Inputs, model: str) -> int:
    """The layer that a linear probe reads relative depths best from: causal models are probed by `incremental`."""
    row = cells.known_by_layer(model, RELATIVE_DEPTH, OF_TREE, 0).row
    shares = {m.column: m.value for m in inputs["incremental"].metrics() if m.row == row}
    return max(range(len(shares)), key=lambda layer: shares[cells.LAYER(layer)])


# ---- rows ------------------------------------------------------------------------------------------------------------


def curve_rows(model: str, curves: Curves, seed: int) -> Iterator[Metric]:
    for step, found in curves.items():
        for quantity, (value, error, n) in found.items():
            for name, number, unit in ((quantity, value, unit_of(quantity)),
                                       (cells.error_of(quantity), error, cells.STANDARD_ERROR)):
                if math.isfinite(number):
                    yield Metric(*cells.while_training(model, name, step), seed, number, n, unit)


def half_way_rows(model: str, curves: Curves, widths: Sequence[int], seed: int) -> Iterator[Metric]:
    """When loss, tree and the marginals of each width had gone half of their way."""
    for quantity in (LOSS, TREE, *(f"{MARGINALS} {SPAN_WIDTH(width)}" for width in widths)):
        step = half_way_step({step: found[quantity].value for step, found in curves.items()})
        if math.isfinite(step):
            yield Metric(*cells.half_way(model, quantity), seed, step, len(curves), "count")
