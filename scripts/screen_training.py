"""Compare recipes of training by loss alone.

    ./run_all.sh --profile reduced --treebank TREEBANK --to marginals --out runs/screen
    .venv/bin/python scripts/screen_training.py runs/screen reduced candidates.txt results.csv

A line of candidates.txt is a model and settings of the stage `pretrain`, e.g. `A4L6 width=128 steps=2000 seed=1`.  A
candidate is one process on one core.  Its row in results.csv has the loss on all validation sentences under the masks
of training (`validation`), how much of the way from the unigram loss to that of the exact optimum it has gone under 15%
masks, in percent (`share`; a causal model: at next words), how that grew while it was trained, and its processor time.
Lines that have a row are passed over, and the file is read again after each candidate.
"""

from __future__ import annotations

import csv
import math
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pcfg_artifact.approximation.scores import unigram, unigram_probabilities
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.mlm import exact_comparison
from pcfg_artifact.mlm.evaluation import mean_loss, predictions
from pcfg_artifact.mlm.layer_use import share_of_way
from pcfg_artifact.mlm.next_word_comparison import next_word_predictions, unigram_next_word_loss, with_end
from pcfg_artifact.mlm.objectives import config_of, objective_of
from pcfg_artifact.mlm.training import Callbacks, Recipe, train
from pcfg_artifact.parsing.masks import NAMED_MASKS, Masking
from pcfg_artifact.parsing.prefix.left_to_right import next_words
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.sections import PretrainConfig, Profile
from pcfg_artifact.system.machine import single_thread

COLUMNS = ("candidate", "share", "validation", "seconds", "curve")
MASKS, N_NEXT_WORD, POINTS = "mask 0.15", 50, 10


class Exam:
    """Held-out words, and what the unigram model and the exact optimum lose on them."""

    def __init__(self, inputs: Inputs, profile: Profile, is_causal: bool) -> None:
        grammar, sentences, about = inputs.pcfg(), inputs.sentences("validation"), profile.marginals
        self.predict: Any = next_word_predictions if is_causal else predictions
        self.batch_tokens = profile.pretrain.read_tokens
        if is_causal:
            chosen = np.flatnonzero(sentences.lengths <= about.mask_max_length)[:N_NEXT_WORD]
            self.asked: Any = [np.asarray(sentences.row(int(s)), np.int64) for s in chosen]
            self.answers = [with_end(ids, grammar.n_words) for ids in self.asked]
            self.unigram = unigram_next_word_loss(grammar, unigram(grammar), self.asked)
            self.exact = -float(np.concatenate([np.log(next_words(grammar, ids).next_word[np.arange(len(right)), right])
                                                for ids, right in zip(self.asked, self.answers, strict=True)]).mean())
        else:  # the words of the optimum that the stage `marginals` has measured
            self.asked = exact_comparison.masked_sentences(grammar, sentences, NAMED_MASKS[MASKS], n=about.n_masked,
                                                           seed=about.seed, max_length=about.mask_max_length)
            self.answers = [s.words[s.positions] for s in self.asked]
            self.unigram = -float(np.log(unigram_probabilities(grammar, self.answers)).mean())
            optimum, = Numbers(inputs["marginals"].metrics()).select(
                {"table": "optimum", "model": "exact", "input": MASKS, "metric": "perplexity"})
            self.exact = math.log(optimum.value)

    def share(self, model: Any) -> float:
        said = self.predict(model, self.asked, self.batch_tokens)
        loss = np.concatenate([-rows[np.arange(len(rows)), self.answers[s]] for s, rows in said]).mean()
        return share_of_way(float(loss), self.unigram, self.exact)


def screen(inputs: Inputs, exam: Exam, name: str, cfg: PretrainConfig) -> dict[str, Any]:
    """Train one candidate and say how far it came."""
    objective, n_words = objective_of(name), inputs.pcfg().n_words
    network = objective.build(config_of(name, cfg, n_words), cfg.seed)
    corpus, held_out = (objective.corpus(
        inputs.sentences(split), masking=Masking(cfg.mask_rate, cfg.corruption, cfg.mask_any_token), seed=cfg.seed,
        n_words=n_words, batch_size=cfg.batch_size, batch_tokens=cfg.read_tokens, max_length=cfg.max_length,
        packing=cfg.packing)
        for split in ("pretraining", "validation"))
    recipe = Recipe(**{f.name: getattr(cfg, f.name) for f in fields(Recipe) if hasattr(cfg, f.name)})
    spent, began = 0.0, time.process_time()

    def validate(model: Any) -> float:
        nonlocal spent
        before = time.process_time()
        share = exam.share(model)
        spent += time.process_time() - before
        return share

    reached = train(network, corpus, recipe, seed=cfg.seed, loss_of=objective.loss, callbacks=Callbacks(
        validate=validate, validate_every=max(1, cfg.steps // POINTS)))
    seconds = time.process_time() - began - spent
    loss = mean_loss(network, held_out.in_order("validation"), loss_of=objective.loss)
    return {"share": round(reached.validation[-1][1], 2), "validation": round(loss, 4), "seconds": round(seconds),
            "curve": " ".join(f"{step}:{share:.1f}" for step, share in reached.validation)}


def main(folder: str, profile: str, candidates: str, results: str) -> None:
    torch.set_num_threads(1)
    inputs = Inputs({stage: Path(folder) / stage for stage in ("grammar", "sample", "marginals")}, "")
    exams: dict[bool, Exam] = {}
    found = Path(results)
    if not found.exists():
        found.write_text(",".join(COLUMNS) + "\n")
    while waiting := [line for line in filter(None, map(str.strip, Path(candidates).read_text().splitlines()))
                      if line not in {row["candidate"] for row in csv.DictReader(found.open())}]:
        name, *settings = waiting[0].split()
        changed = load_profile(profile, [f"pretrain.{setting}" for setting in settings])
        if (is_causal := name.startswith("C")) not in exams:
            exams[is_causal] = Exam(inputs, load_profile(profile), is_causal)
        row = {"candidate": waiting[0], **screen(inputs, exams[is_causal], name, changed.pretrain)}
        with found.open("a") as file:
            csv.DictWriter(file, COLUMNS).writerow(row)
        print(row, flush=True)


if __name__ == "__main__":
    with single_thread():
        main(*sys.argv[1:])
