"""Stage `pretrain`: train language models on sampled sentences, and compare the masked ones with the exact optimum.

Causal models are trained beside them; the stage `incremental` measures them.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pcfg_artifact.approximation.scores import unigram, unigram_probabilities
from pcfg_artifact.errors import StageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm import exact_comparison
from pcfg_artifact.mlm.control_texts import BigramModel, shuffled
from pcfg_artifact.mlm.encoders import load_causal_lm, load_masked_lm
from pcfg_artifact.mlm.evaluation import predictions
from pcfg_artifact.mlm.exact_comparison import Gap, distance_metrics, masked_word_groups, window_predictions
from pcfg_artifact.mlm.layer_use import layer_use, share_metric
from pcfg_artifact.mlm.model_card import masked_distance, model_card, next_word_distance
from pcfg_artifact.mlm.next_word_comparison import next_word_gaps, unigram_next_word_loss
from pcfg_artifact.mlm.objectives import config_of
from pcfg_artifact.mlm.tokenizer import check_vocabulary
from pcfg_artifact.parsing.gpu.arithmetic import stage_options
from pcfg_artifact.parsing.masks import NAMED_MASKS, Masking
from pcfg_artifact.run.inputs import Inputs, kept_folders
from pcfg_artifact.run.sections import PretrainConfig
from pcfg_artifact.run.stage_folder import RaggedWriter, StageDir
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import progress
from pcfg_artifact.system.random_streams import stream
from pcfg_artifact.workers.jobs import CARD, read_finished, train_models, write_jobs
from pcfg_artifact.workers.trainer import FACTS

GROUPED_MASKS = "mask 0.15"  # those whose masked words are also looked at by circumstance
N_NEXT_WORD = 100  # validation sentences of the cards of causal models
TEXTS, BLOCK = "texts", 20_000  # of control models; sentences made at once
N_CURVE_POINTS = 50  # of the training curve, as metric rows; every step is in training.json


def run(cfg: PretrainConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    grammar = inputs.pcfg()
    check_shards(grammar, inputs)
    check_shapes(cfg, grammar)
    shards = {split: inputs["sample"].path(f"{split}/tokens") for split in ("pretraining", "validation")}
    write_jobs(cfg, grammar.words, shards, out, machine, write_control_texts(cfg, grammar, inputs, out))
    train_models(cfg, out, machine)
    metrics = []
    for name in cfg.all_models:
        result = read_finished(cfg, out, name)
        if name in cfg.models:
            metrics += curve_metrics(name, result, cfg)
        facts = out.path(f"scratch/{name}/{FACTS}")  # speed and memory, of no use to any number: may be lost
        out.facts[name] = {**(storage.read_json(facts) if facts.is_file() else {}),
                           "sentences_left_out": result["n_left_out"]}
    metrics += against_optimum(cfg, grammar, inputs, out, machine)
    write_cards(cfg, grammar, inputs, metrics, out, machine)
    shutil.rmtree(out.path(TEXTS), ignore_errors=True)  # large, and easily made again
    out.write_metrics(metrics)


def write_control_texts(cfg: PretrainConfig, grammar: PCFG, inputs: Inputs, out: StageDir
                        ) -> dict[str, dict[str, Path]]:
    """As many sentences of each control text as were sampled; the folder and stem of its shards, by text and split."""
    found: dict[str, dict[str, Path]] = {}
    for text in cfg.control_texts:
        make = shuffled if text == "shuffled" else BigramModel.of(grammar).in_place_of
        found[text] = {split: out.path(f"{TEXTS}/{text}/{split}/tokens") for split in ("pretraining", "validation")}
        for split, place in found[text].items():
            sentences = inputs.sentences(split)
            place.parent.mkdir(parents=True, exist_ok=True)
            with RaggedWriter(place, sentences.values.dtype) as writer:
                for first in progress(range(0, sentences.n_rows, BLOCK), desc=f"{text} text, {split}"):
                    block, rng = sentences.block(first, BLOCK), stream(cfg.seed, "control text", text, split, first)
                    writer.append(make(block, rng))
    return found


def write_cards(cfg: PretrainConfig, grammar: PCFG, inputs: Inputs, metrics: Sequence[Metric], out: StageDir,
                machine: Machine) -> None:
    """A card beside every saved model, those before the end of training included."""
    distances = {name: masked_distance(name, cfg.n_exact, metrics, tuple(NAMED_MASKS)) for name in cfg.masked_models}
    distances |= next_word_distances(cfg, grammar, inputs, out, machine)
    card = partial(model_card, grammar=grammar, n_sentences=inputs.sentences("pretraining").n_rows,
                   settings=asdict(cfg))
    for name in cfg.all_models:
        for step, folder in kept_folders(out, name).items():
            distance = distances[name] if step == cfg.steps else None
            storage.write_text(folder / CARD, card(name, step=step, distance=distance))


def next_word_distances(cfg: PretrainConfig, grammar: PCFG, inputs: Inputs, out: StageDir,
                        machine: Machine) -> dict[str, str]:
    """What the card of every causal model says; the stage `incremental` measures them on more sentences, in detail."""
    if not cfg.causal_models:
        return {}
    sentences = inputs.sentences("validation")
    chosen = np.flatnonzero(sentences.lengths <= min(cfg.exact_max_length, cfg.max_length))[:N_NEXT_WORD]
    words = [np.asarray(sentences.row(int(s)), np.int64) for s in chosen]
    models = {name: load_causal_lm(out.path(f"models/{name}"))[0].to(machine.device) for name in cfg.causal_models}
    loss = unigram_next_word_loss(grammar, unigram(grammar), words)
    gaps = next_word_gaps(grammar, models, words, cfg.read_tokens, progress)
    return {name: next_word_distance(len(words), distance_metrics(gap, loss, table="next_words", model=name))
            for name, gap in gaps.items()}


def check_shards(grammar: PCFG, inputs: Inputs) -> None:
    """Refuse sentences that were drawn from another grammar."""
    for split in ("pretraining", "validation"):
        largest = int(inputs.sentences(split).values.max())
        if largest >= grammar.n_words:
            raise StageError(f"the vocabulary of {inputs['sample'].path(split)} does not match the grammar: it holds "
                             f"word {largest}, expected 0 to {grammar.n_words - 1}; run `--from sample --force`")


def check_shapes(cfg: PretrainConfig, grammar: PCFG) -> None:
    """An impossible shape is refused before anything is trained, or removed."""
    for name in cfg.all_models:
        config_of(name, cfg, grammar.n_words)


def curve_metrics(name: str, result: dict[str, Any], cfg: PretrainConfig) -> list[Metric]:
    """Perplexities of Table 3, and the curve: training over the steps since the last point, validation where taken."""
    n = result["n_validation"]
    ends = np.unique(np.linspace(0, len(result["losses"]), N_CURVE_POINTS + 1).astype(int))
    curve = [*(("training", int(end), float(np.mean(result["losses"][begin:end])), int(end - begin) * cfg.batch_size)
               for begin, end in pairwise(ends)),
             *(("validation", step, loss, min(n, cfg.n_curve)) for step, loss in result["validation"])]
    return [*(Metric(table="perplexity", model=name, group=split, metric="perplexity", seed=cfg.seed,
                     value=math.exp(result[f"{split}_loss"]), n=n, unit="perplexity")
              for split in ("training", "validation")),
            *(Metric(table="loss_curve", model=name, group=split, step=step, metric="loss", seed=cfg.seed, value=loss,
                     n=n_rows, unit="nats") for split, step, loss, n_rows in curve)]


# ---- against the exact optimum --------------------------------------------------------------------------------------


def against_optimum(cfg: PretrainConfig, grammar: PCFG, inputs: Inputs, out: StageDir,
                    machine: Machine) -> list[Metric]:
    """Every model beside the exact masked-word distribution and the unigram one, under the same named masks."""
    torch.set_num_threads(machine.n_workers)
    sentences, trees = inputs.sentences("validation"), inputs.sampled_trees("validation")
    models = {}
    for name in cfg.masked_models:
        folder = out.path(f"models/{name}")
        model, tokenizer = load_masked_lm(folder)
        check_vocabulary(tokenizer, grammar.words, str(folder))
        models[name] = model.to(machine.device)
    metrics = []
    for masks, masking in NAMED_MASKS.items():
        masked = exact_comparison.masked_sentences(grammar, sentences, masking, seed=cfg.seed, n=cfg.n_exact,
                                                   max_length=min(cfg.exact_max_length, cfg.max_length))
        targets = [s.words[s.positions] for s in masked]
        exact = exact_rows(grammar, masked, masks, out, machine)
        depths = [exact_comparison.word_depths(trees[s.index].spans(), len(s.words)) for s in masked]
        known = exact_comparison.circumstances(masked, depths)
        unigram_loss = float(-np.log(unigram_probabilities(grammar, targets)).mean())
        exact_loss = float(np.concatenate([-np.log(rows[np.arange(len(words)), words])
                                           for rows, words in zip(exact, targets, strict=True)]).mean())
        n_masked = sum(map(len, targets))
        floors = {"exact": exact_loss}
        for window in cfg.windows:
            gap = window_gap(grammar, masked, masking, window, exact, targets, machine)
            named: dict[str, Any] = {"model": f"window_{window}", "input": masks, "seed": cfg.seed}
            metrics += distance_metrics(gap, unigram_loss, table="masked_words", **named)
            floors[f"window_{window}"] = float(gap.model.mean())
            if cfg.layer_use and masks == GROUPED_MASKS:
                metrics.append(share_metric(floors[f"window_{window}"], unigram_loss, exact_loss, n_masked, **named))
        if masking == Masking(cfg.mask_rate, cfg.corruption, cfg.mask_any_token):
            metrics += [Metric(table="loss_curve", model=name, group="validation", metric="loss", seed=cfg.seed,
                               value=loss, n=n_masked, unit="nats") for name, loss in floors.items()]
        for name, model in models.items():
            gaps = {s: Gap.between(predicted, exact[s], targets[s])
                    for s, predicted in predictions(model, masked, cfg.read_tokens)}
            gap = Gap.join([gaps[s] for s in range(len(masked))])
            named = {"model": name, "input": masks, "seed": cfg.seed}
            metrics += distance_metrics(gap, unigram_loss, table="masked_words", **named)
            if masks == GROUPED_MASKS:
                metrics += masked_word_groups(gap, known, table="masked_words", **named)
                out.write_array(f"gap/{name}", np.stack([gap.model, gap.exact, gap.divergence, gap.entropy], axis=1))
                if cfg.layer_use:
                    metrics += layer_use(model, masked, unigram_loss, exact_loss, cfg.read_tokens, **named)
    shutil.rmtree(out.path("exact"))  # large, and of no use to anybody else
    return metrics


def window_gap(grammar: PCFG, masked: Sequence[exact_comparison.MaskedSentence], masking: Masking, window: int,
               exact: Sequence[np.ndarray], targets: Sequence[np.ndarray], machine: Machine) -> Gap:
    """The best prediction from the words within a window beside the best from the whole sentence."""
    found = window_predictions(grammar, masked, masking, window, machine.n_workers)
    with np.errstate(divide="ignore"):  # a word that cannot stand there
        return Gap.join([Gap.between(np.log(rows), exact[s], targets[s]) for s, rows in enumerate(
            progress(found, total=len(masked), desc=f"best prediction from {window} word(s) on each side"))])


def exact_rows(grammar: PCFG, masked: Sequence[exact_comparison.MaskedSentence], masks: str, out: StageDir,
               machine: Machine) -> list[np.ndarray]:
    """Exact distributions, one (masked, n_words) array per sentence; kept on disk, they do not depend on models."""
    name = f"exact/{masks.replace(' ', '_')}"
    if not out.has(f"{name}.npy"):
        found = exact_comparison.exact_predictions(grammar, masked, NAMED_MASKS[masks],
                                                   stage_options(grammar, [len(s.words) for s in masked],
                                                                 machine.device, machine.n_workers))
        rows = list(progress(found, total=len(masked), desc=f"exact, {masks}"))
        out.write_array(name, np.concatenate(rows).astype(np.float32))
    ends = np.cumsum([len(s.positions) for s in masked])
    return np.split(out.array(name, memory_map=True), ends[:-1])
