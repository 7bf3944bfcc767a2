"""Jobs on one model, each in a worker process: a layer (stage `intervene`) or a step of training (stage `dynamics`)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pcfg_artifact.interventions.counterfactuals import InterventionData
from pcfg_artifact.interventions.effects import mean_over_sentences
from pcfg_artifact.interventions.experiment import LINEAR, RANDOM, LayerOutcome, Masked, intervene
from pcfg_artifact.interventions.run_from_layer import layer_states
from pcfg_artifact.metrics.models import middle_layer
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm.encoders import load_causal_lm, load_encoder, load_masked_lm
from pcfg_artifact.mlm.evaluation import predictions
from pcfg_artifact.mlm.exact_comparison import Gap, MaskedSentence
from pcfg_artifact.mlm.next_word_comparison import next_word_predictions, with_end
from pcfg_artifact.probing.attention_heads import head_statistics
from pcfg_artifact.probing.corpus import Corpus, Layer
from pcfg_artifact.probing.probes import Probe
from pcfg_artifact.probing.representations import extract
from pcfg_artifact.probing.settings import EOS
from pcfg_artifact.probing.tasks import run_task, span_task, tree_task
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.workers.pool import device_of

BATCH_TOKENS = 4096  # of one forward pass: memory, not results


# ---- interventions on a layer ---------------------------------------------------------------------------------------


class LayerJob(NamedTuple):
    model: str
    folder: Path
    layer: int


@dataclass(frozen=True, eq=False)
class InterventionContext:
    """What all layers share; the linear probe is among the probes."""

    data: InterventionData
    probes: Mapping[str, Probe]
    machine: Machine
    seed: int

    def outcome(self, folder: Path, layer: int) -> LayerOutcome:
        """The interventions of all probes, and all controls, on one layer of the model in a folder."""
        device, data = device_of(self.machine), self.data
        model = load_masked_lm(folder)[0].to(device)
        train, test = (Masked(seen, marginals, layer_states(model, seen, layer), device) for seen, marginals in
                       ((data.train, data.train_marginals), (data.test, data.test_marginals)))
        return intervene(model, layer, train, test, data.questions, self.probes, self.seed)


def intervene_on_layer(context: InterventionContext, job: LayerJob) -> tuple[LayerJob, LayerOutcome, float]:
    """All methods and controls on one layer of one model, and the processor time."""
    started = time.process_time()
    return job, context.outcome(job.folder, job.layer), time.process_time() - started


# ---- a step of training ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MaskedWords:
    """What a masked model predicts; exact: (masked, n_words) of every sentence."""

    sentences: Sequence[MaskedSentence]
    exact: Sequence[np.ndarray]

    def loss_above_optimum(self, folder: Path, device: str) -> Metric:
        """Nats per masked word, on the same words as the exact prediction."""
        predicted = predictions(load_masked_lm(folder)[0].to(device), self.sentences, BATCH_TOKENS)
        return mean_excess(predicted, self.exact, [one.words[one.positions] for one in self.sentences])


@dataclass(frozen=True, eq=False)
class NextWordsAndEnd:
    """What a causal model predicts: sentences as word ids; exact: (L+1, n_words + 1) of each."""

    sentences: Sequence[np.ndarray]
    exact: Sequence[np.ndarray]

    def loss_above_optimum(self, folder: Path, device: str) -> Metric:
        """Nats per word and end."""
        predicted = next_word_predictions(load_causal_lm(folder)[0].to(device), self.sentences, BATCH_TOKENS)
        targets = [with_end(ids, exact.shape[1] - 1) for ids, exact in zip(self.sentences, self.exact, strict=True)]
        return mean_excess(predicted, self.exact, targets)


def mean_excess(predicted: Iterable[tuple[int, np.ndarray]], exact: Sequence[np.ndarray],
                targets: Sequence[np.ndarray]) -> Metric:
    """Mean loss of what a model predicts in sentence s, in any order, above that of the exact distribution."""
    sentence, excess = [], []
    for s, log_probs in predicted:
        gap = Gap.between(log_probs, exact[s], targets[s])
        sentence.append(np.full(len(targets[s]), s))
        excess.append(gap.model - gap.exact)
    return mean_over_sentences(np.concatenate(sentence), np.concatenate(excess), table="dynamics", metric="excess",
                               unit="nats")


@dataclass(frozen=True, eq=False)
class Followed:
    """A model that is followed through its training, and what it is measured on.

    train, test: sentences of one setting; their span scores are what the model could know at the span's last word:
    marginals given the sentence, or for a causal model given the words up to there.
    """

    predicted: MaskedWords | NextWordsAndEnd
    train: Corpus
    test: Corpus
    best_layer: int  # of the finished model, for trees
    interventions: InterventionContext | None  # on masked words, which a causal model does not predict


@dataclass(frozen=True, eq=False)
class CheckpointContext:
    """What all checkpoints share."""

    followed: Mapping[str, Followed]
    probe: Probe  # the linear one
    widths: Sequence[int]
    setting: str  # that the corpora belong to
    n_attention: int
    machine: Machine
    seed: int


class Checkpoint(NamedTuple):
    model: str
    step: int
    folder: Path


def measure_checkpoint(context: CheckpointContext, job: Checkpoint) -> tuple[Checkpoint, list[Metric], float]:
    """(job, what its model is at that step, processor time)."""
    started = time.process_time()
    followed, device = context.followed[job.model], device_of(context.machine)
    found = [followed.predicted.loss_above_optimum(job.folder, device)]
    encoder, tokenizer = load_encoder(job.folder, attention="eager")
    train, test = (Layer(corpus, extract(encoder, tokenizer, corpus.sentences,
                                         lambda _, shape: np.empty(shape, np.float32), max_tokens=BATCH_TOKENS,
                                         device=device, only=followed.best_layer)[0])
                   for corpus in (followed.train, followed.test))
    for task, convention, metric in ((tree_task(EOS), "PB", "sentence_f1"),
                                     *((span_task(width), "", "pearson") for width in context.widths)):
        scores = run_task(task, context.probe, train, {context.setting: test}, (context.seed,), device=device).scores
        found += [score.at(n=len(followed.test)) for score in scores
                  if (score.convention, score.metric) == (convention, metric)]
    heads = head_statistics(encoder, tokenizer, followed.test.sentences[:context.n_attention],
                            max_tokens=BATCH_TOKENS, device=device)
    found += [Metric(table="attention", layer=layer, setting=context.setting, metric="attended_distance", value=mean,
                     n=context.n_attention, unit="tokens")
              for layer, mean in enumerate(heads.distance.mean(dim=1).tolist(), start=1)]
    if followed.interventions is not None:
        outcome = followed.interventions.outcome(job.folder, middle_layer(encoder.config.num_hidden_layers))
        for probe in (LINEAR, RANDOM):
            seen = outcome.observations[probe]
            found += seen.estimates(seen.is_elsewhere, ("slope",), probe=probe)
    dimensions = {"table": "dynamics", "model": job.model, "step": job.step, "seed": context.seed}
    return job, [metric.at(**dimensions) for metric in found], time.process_time() - started
