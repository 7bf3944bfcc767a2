"""Part of stage 6: how far the trained models are from the exact optimum of their grammar, and where."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence

import numpy as np
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer
from transformers.utils import logging

from pcfg_artifact import cells
from pcfg_artifact.approximation.scores import unigram_probabilities
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.config import PretrainConfig
from pcfg_artifact.grammar import PCFG
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.mlm import optimum
from pcfg_artifact.mlm.evaluation import predictions
from pcfg_artifact.mlm.optimum import NAMED_MASKS, Gap
from pcfg_artifact.mlm.tokenizer import check_vocabulary
from pcfg_artifact.progress import progress


def against_optimum(cfg: PretrainConfig, grammar: PCFG, inputs: Inputs, out: StageDir,
                    machine: Machine) -> list[Metric]:
    """Every model beside the exact masked-word distribution and the unigram one, under the same named masks."""
    torch.set_num_threads(machine.n_workers)
    logging.disable_progress_bar()
    sentences, trees = inputs.sentences("validation"), inputs.sampled_trees("validation")
    models = {}
    for name in cfg.models:
        folder = out.path(f"models/{name}")
        check_vocabulary(AutoTokenizer.from_pretrained(folder), grammar.words, str(folder))
        models[name] = AutoModelForMaskedLM.from_pretrained(folder).to(machine.device)
    metrics = []
    for masks, masking in NAMED_MASKS.items():
        masked = optimum.masked_sentences(grammar, sentences, masking, seed=cfg.seed, n=cfg.n_exact,
                                          max_length=min(cfg.exact_max_length, cfg.max_length))
        targets = [s.words[s.positions] for s in masked]
        exact = exact_rows(grammar, masked, masks, out, machine)
        depths = [optimum.word_depths(trees[s.number].spans(), len(s.words)) for s in masked]
        known = optimum.circumstances(masked, depths)
        unigram = float(-np.log(unigram_probabilities(grammar, targets)).mean())
        for name, model in models.items():
            gaps = {s: Gap.between(said, exact[s], targets[s])
                    for s, said in predictions(model, masked, cfg.batch_tokens)}
            gap = Gap.join([gaps[s] for s in range(len(masked))])
            metrics += gap_metrics(gap, unigram, name, masks, cfg.seed)
            if masks == next(iter(NAMED_MASKS)):
                metrics += [Metric(*cells.optimum_gap(name, group, column), cfg.seed,
                                   float(values[chosen].mean()), int(chosen.sum()), "nats")
                            for group, chosen in optimum.groups(gap, known) if chosen.any()
                            for column, values in (("kl", gap.divergence), ("excess", gap.model - gap.exact))]
                out.write_array(f"gap/{name}", np.stack([gap.model, gap.exact, gap.divergence, gap.entropy], axis=1))
    shutil.rmtree(out.path("exact"))  # large, and of no use to anybody else
    return metrics


def exact_rows(grammar: PCFG, masked: Sequence[optimum.MaskedSentence], masks: str, out: StageDir,
               machine: Machine) -> list[np.ndarray]:
    """Exact distributions, one (masked, n_words) array per sentence; kept on disk, they do not depend on models."""
    name = f"exact/{masks.replace(' ', '_')}"
    if not out.has(f"{name}.npy"):
        found = optimum.exact_predictions(grammar, masked, NAMED_MASKS[masks], device=machine.device,
                                          n_threads=machine.n_workers)
        rows = list(progress(found, total=len(masked), desc=f"exact, {masks}"))
        out.write_array(name, np.concatenate(rows).astype(np.float32))
    ends = np.cumsum([len(s.positions) for s in masked])
    return np.split(out.array(name, memory_map=True), ends[:-1])


def gap_metrics(gap: Gap, unigram: float, model: str, masks: str, seed: int) -> list[Metric]:
    n, (excess, error) = len(gap.model), gap.excess()
    perplexities = {"model": gap.model.mean(), "exact": gap.exact.mean(), "unigram": unigram}
    nats = {"kl": gap.divergence.mean(), "excess": excess, "excess_standard_error": error}
    return [*(Metric(*cells.against_optimum(model, masks, column), seed, math.exp(value), n, "perplexity")
              for column, value in perplexities.items()),
            *(Metric(*cells.against_optimum(model, masks, column), seed, float(value), n, "nats")
              for column, value in nats.items())]
