"""Jobs of the stages `intervene` and `dynamics`, each in a worker process: one layer of a model, one checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcfg_artifact.cells import SENTENCE_F1, SPAN_WIDTH, TREEBANK, TREES
from pcfg_artifact.encoders import load_encoder, load_masked_lm
from pcfg_artifact.interventions.effects import Effect, mean_over_sentences
from pcfg_artifact.interventions.experiment import (
    LINEAR,
    RANDOM,
    TWO_LAYER,
    LayerOutcome,
    Masked,
    intervene,
    middle_layer,
)
from pcfg_artifact.interventions.material import Material
from pcfg_artifact.interventions.upper_layers import layer_states
from pcfg_artifact.machine import Machine
from pcfg_artifact.mlm.evaluation import predictions
from pcfg_artifact.mlm.optimum import Gap, MaskedSentence
from pcfg_artifact.probing.attended_distance import attended_distances
from pcfg_artifact.probing.corpus import Corpus, Layer
from pcfg_artifact.probing.probes import Probe, build_probes
from pcfg_artifact.probing.representations import extract
from pcfg_artifact.probing.tasks import run_task, span_task, tree_task
from pcfg_artifact.workers.probe_fits import device_of

BATCH_TOKENS = 4096  # of one forward pass: memory, not results
LOSS, TREE, MARGINALS, DISTANCE = "loss above optimum", "tree F1", "marginals", "attended distance"
SLOPE, RANDOM_SLOPE = "intervention slope", "random direction slope"


class LayerJob(NamedTuple):
    model: str
    folder: Path
    layer: int


@dataclass(frozen=True, eq=False)
class InterventionContext:
    """What all layers share; `probe_options` are those of the stage `probe`."""

    material: Material
    probe_options: Mapping[str, Any]
    machine: Machine
    seed: int

    def probes(self) -> dict[str, Probe]:
        built = build_probes(("linear", "2-layer"), self.probe_options)
        return {LINEAR: built["linear"], TWO_LAYER: built["2-layer"]}


def intervene_on_layer(context: InterventionContext, job: LayerJob) -> tuple[LayerJob, LayerOutcome, float]:
    """All ways and controls on one layer of one model, and the processor time."""
    started = time.process_time()
    return job, _outcome(context, job.folder, job.layer, context.probes()), time.process_time() - started


def _outcome(context: InterventionContext, folder: Path, layer: int, probes: Mapping[str, Probe]) -> LayerOutcome:
    model, _ = load_masked_lm(folder)
    model.to(device_of(context.machine))
    m = context.material
    train, test = ([states[layer] for states in layer_states(model, sentences)] for sentences in (m.train, m.test))
    return intervene(model, layer, Masked(m.train, m.train_marginals, train), Masked(m.test, m.test_marginals, test),
                     m.asked, probes, context.seed)


# ---- one checkpoint --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CheckpointContext:
    """What all checkpoints of a model share.  exact: (masked, n_words) of every sentence of `masked`."""

    interventions: InterventionContext
    masked: Sequence[MaskedSentence]
    exact: Sequence[np.ndarray]
    train: Corpus
    test: Corpus
    widths: Sequence[int]
    best_layer: int  # of the finished model, for trees of the treebank
    n_attention: int


def checkpoint_curves(context: CheckpointContext, job: tuple[int, Path]) -> tuple[int, dict[str, Effect], float]:
    """(step, quantity -> what it is at that step, processor time); an error that nobody estimated is NaN."""
    (step, folder), started = job, time.process_time()
    found = {LOSS: loss_above_optimum(context, folder)}
    encoder, tokenizer = load_encoder(folder, attention="eager")
    device = device_of(context.interventions.machine)
    layers = [Layer(corpus, extract(encoder, tokenizer, corpus.sentences, lambda _, shape: np.empty(shape, np.float32),
                                    max_tokens=BATCH_TOKENS, device=device)[context.best_layer])
              for corpus in (context.train, context.test)]
    probe = context.interventions.probes()[LINEAR]
    tasks = {TREE: (tree_task(TREES), SENTENCE_F1)}
    tasks |= {f"{MARGINALS} {SPAN_WIDTH(width)}": (span_task(width), "pearson") for width in context.widths}
    for quantity, (task, metric) in tasks.items():
        result = run_task(task, probe, layers[0], {TREEBANK.name: layers[1]}, (context.interventions.seed,))
        score = next(s for s in result.scores if s.metric == metric)
        found[quantity] = Effect(score.value, float("nan"), len(context.test))
    distances, _ = attended_distances(encoder, tokenizer, context.test.sentences[:context.n_attention],
                                      max_tokens=BATCH_TOKENS, device=device)
    found[DISTANCE] = Effect(float(distances.mean()), float("nan"), context.n_attention)
    outcome = _outcome(context.interventions, folder, middle_layer(encoder.config.num_hidden_layers), {LINEAR: probe})
    for quantity, way in ((SLOPE, LINEAR), (RANDOM_SLOPE, RANDOM)):
        seen = outcome.observations[way]
        found[quantity] = seen.estimates(seen.is_elsewhere)["slope"]
    return step, found, time.process_time() - started


def loss_above_optimum(context: CheckpointContext, folder: Path) -> Effect:
    """Nats per masked word, on the same words as the exact prediction."""
    model, _ = load_masked_lm(folder)
    model.to(device_of(context.interventions.machine))
    index, excess = [], []
    for s, said in predictions(model, context.masked, BATCH_TOKENS):
        sentence = context.masked[s]
        gap = Gap.between(said, context.exact[s], sentence.words[sentence.positions])
        index.append(np.full(len(sentence.positions), s))
        excess.append(gap.model - gap.exact)
    return mean_over_sentences(np.concatenate(index), np.concatenate(excess))


def curve_unit(quantity: str) -> str:
    return {LOSS: "nats", TREE: "percent", DISTANCE: "tokens"}.get(quantity, "fraction")

