"""What each part of a structured start brings: the same model and sentences, trained briefly from different weights.

A row says how much of the way from the unigram loss to that of the exact optimum the model has gone, in percent, on the
same masked words (15% masks).
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from pcfg_artifact.approximation.scores import unigram_probabilities
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.mlm import exact_comparison
from pcfg_artifact.mlm.data import MaskedCorpus
from pcfg_artifact.mlm.evaluation import predictions
from pcfg_artifact.mlm.initialisation import PARTS, start_structured
from pcfg_artifact.mlm.model import LayerNorm, MaskedLM, build_config, build_model, parse_shape
from pcfg_artifact.mlm.training import Recipe, train
from pcfg_artifact.parsing.masks import NAMED_MASKS, Masking
from pcfg_artifact.system.machine import single_thread
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.tools.arguments import load_treebank
from pcfg_artifact.treebank.splits import split

# As in the profile `reduced`, but for the number of steps.
SHAPE, WIDTH, SCALE, BATCH, BATCH_TOKENS, LONGEST = parse_shape("A4L6"), 64, 0.07, 32, 2_048, 126
CUTOFF, N_TRAINING, N_EXACT, EXACT_LONGEST = 50, 100_000, 200, 60
STEPS, WARMUP, LEARNING_RATE = 300, 15, 2e-3
STARTS: dict[str, tuple[str, ...]] = {
    "random": (), "bias": ("bias",), "words": ("bias", "words"), "words, positions": ("bias", "words", "positions"),
    "words, attention": ("bias", "words", "attention"), "positions, attention": ("bias", "positions", "attention"),
    "all": PARTS}


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    with single_thread():
        torch.set_num_threads(1)
        grammar = learn_pcfg(split(load_treebank(args)).train, cutoff=CUTOFF)
        training, held_out = (sample_trees(grammar, n, seed, LONGEST).tokens
                              for seed, n in enumerate((N_TRAINING, 2 * N_EXACT)))
        exam = Exam(grammar, held_out)
        rows = [row(exam, training, name, "pre") for name in STARTS]
        return [*rows, row(exam, training, "all", "post")]


class Exam:
    """Masked words, with what the exact optimum and the unigram model lose on them."""

    def __init__(self, grammar: PCFG, held_out: Ragged) -> None:
        masking = NAMED_MASKS["mask 0.15"]
        self.n_words = grammar.n_words
        self.masked = exact_comparison.masked_sentences(grammar, held_out, masking, seed=0, n=N_EXACT,
                                                        max_length=EXACT_LONGEST)
        self.targets = [s.words[s.positions] for s in self.masked]
        exact = exact_comparison.exact_predictions(grammar, self.masked, masking)
        self.exact = float(np.concatenate([-np.log(rows[np.arange(len(words)), words])
                                           for rows, words in zip(exact, self.targets, strict=True)]).mean())
        self.unigram = float(-np.log(unigram_probabilities(grammar, self.targets)).mean())

    def share(self, model: MaskedLM) -> float:
        losses = [-log_probs[np.arange(len(log_probs)), self.targets[s]]
                  for s, log_probs in predictions(model, self.masked, BATCH_TOKENS)]
        return 100 * (self.unigram - float(np.concatenate(losses).mean())) / (self.unigram - self.exact)


def row(exam: Exam, training: Ragged, name: str, layer_norm: LayerNorm) -> dict[str, Any]:
    config = build_config(SHAPE, n_words=exam.n_words, width=WIDTH, max_length=LONGEST, dropout=0.0,
                          initial_scale=SCALE, layer_norm=layer_norm)
    model = build_model(config, 0)
    start_structured(model, training, 0, STARTS[name])
    corpus = MaskedCorpus(training, n_words=exam.n_words, masking=Masking(0.40), seed=0, batch_size=BATCH,
                          batch_tokens=BATCH_TOKENS, max_length=LONGEST)
    began = time.process_time()
    train(model, corpus, Recipe(STEPS, STEPS, WARMUP, LEARNING_RATE, 0.01, 1.0), seed=0)
    return {"start": name, "layer norm": layer_norm, "words": exam.n_words, "steps": STEPS,
            "percent of the way": exam.share(model), "processor seconds": round(time.process_time() - began)}
