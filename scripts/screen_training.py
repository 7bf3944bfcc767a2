"""Compare recipes of training by loss alone: docs/dev/training.md is written from what this prints.

    ./run_all.sh --profile reduced --treebank TREEBANK --to marginals --out runs/screen
    .venv/bin/python scripts/screen_training.py runs/screen reduced candidates.txt results.csv

A line of candidates.txt is a model and settings of the stage `pretrain`, e.g. `A4L6 width=128 steps=2000 seed=1`.  A
candidate is one process on one core.  Its row in results.csv says how much of the way from the unigram loss to that of
the exact optimum it has gone, in percent, on the same masked words as in the stage (15% masks; a causal model: next
words), how that grew while it was trained, and its processor time.  Lines that have a row are passed over, and the file
is read again after each candidate.
"""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pcfg_artifact.approximation.scores import unigram, unigram_probabilities
from pcfg_artifact.mlm import exact_comparison
from pcfg_artifact.mlm.evaluation import predictions
from pcfg_artifact.mlm.next_word_comparison import next_word_predictions, unigram_next_word_loss, with_end
from pcfg_artifact.mlm.objectives import config_of, objective_of
from pcfg_artifact.mlm.training import Callbacks, Recipe, train
from pcfg_artifact.parsing.masks import NAMED_MASKS, Masking
from pcfg_artifact.parsing.prefix.left_to_right import next_words
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.sections import PretrainConfig
from pcfg_artifact.system.machine import single_thread

COLUMNS = ("candidate", "percent", "loss", "unigram", "exact", "seconds", "curve")
MASKS, N_NEXT_WORD, POINTS = "mask 0.15", 100, 10


class Exam:
    """Held-out words, with what the exact optimum and the unigram model lose on them; made when first asked for."""

    def __init__(self, inputs: Inputs, cfg: PretrainConfig) -> None:
        self.grammar, self.sentences, self.cfg = inputs.pcfg(), inputs.sentences("validation"), cfg
        self._made: dict[bool, tuple[Any, list[np.ndarray], float, float]] = {}

    def questions(self, is_causal: bool) -> tuple[Any, list[np.ndarray], float, float]:
        """(what is read, answers, loss of the unigram model, loss of the optimum)"""
        if is_causal not in self._made:
            self._made[is_causal] = self._next_words() if is_causal else self._masked_words()
        return self._made[is_causal]

    def _masked_words(self) -> tuple[Any, list[np.ndarray], float, float]:
        masked = exact_comparison.masked_sentences(self.grammar, self.sentences, NAMED_MASKS[MASKS], seed=self.cfg.seed,
                                                   n=self.cfg.n_exact, max_length=self.cfg.exact_max_length)
        answers = [s.words[s.positions] for s in masked]
        exact = exact_comparison.exact_predictions(self.grammar, masked, NAMED_MASKS[MASKS])
        return (masked, answers, float(-np.log(unigram_probabilities(self.grammar, answers)).mean()),
                float(np.concatenate([-np.log(rows[np.arange(len(words)), words])
                                      for rows, words in zip(exact, answers, strict=True)]).mean()))

    def _next_words(self) -> tuple[Any, list[np.ndarray], float, float]:
        chosen = np.flatnonzero(self.sentences.lengths <= self.cfg.exact_max_length)[:N_NEXT_WORD]
        words = [np.asarray(self.sentences.row(int(s)), np.int64) for s in chosen]
        answers = [with_end(ids, self.grammar.n_words) for ids in words]
        exact = [-np.log(next_words(self.grammar, ids).next_word[np.arange(len(ids) + 1), right])
                 for ids, right in zip(words, answers, strict=True)]
        return (words, answers, unigram_next_word_loss(self.grammar, unigram(self.grammar), words),
                float(np.concatenate(exact).mean()))

    def loss(self, model: Any, is_causal: bool) -> float:
        asked, answers, _, _ = self.questions(is_causal)
        said = (next_word_predictions if is_causal else predictions)(model, asked, self.cfg.read_tokens)
        return float(np.concatenate([-rows[np.arange(len(rows)), answers[s]] for s, rows in said]).mean())


def screen(inputs: Inputs, exam: Exam, name: str, cfg: PretrainConfig) -> dict[str, Any]:
    """Train one candidate and say how far it came."""
    objective, is_causal = objective_of(name), name.startswith("C")
    _, _, unigram_loss, exact_loss = exam.questions(is_causal)

    def percent(loss: float) -> float:
        return 100 * (unigram_loss - loss) / (unigram_loss - exact_loss)

    network = objective.build(config_of(name, cfg, exam.grammar.n_words), cfg.seed)
    corpus = objective.corpus(
        inputs.sentences("pretraining"), masking=Masking(cfg.mask_rate, cfg.corruption), seed=cfg.seed,
        batch_size=cfg.batch_size, batch_tokens=cfg.read_tokens, n_words=exam.grammar.n_words,
        max_length=cfg.max_length, packing=cfg.packing)
    recipe = Recipe(**{f.name: getattr(cfg, f.name) for f in fields(Recipe) if hasattr(cfg, f.name)})
    spent = 0.0

    def validate(model: Any) -> float:
        nonlocal spent
        began = time.process_time()
        loss = exam.loss(model, is_causal)
        spent += time.process_time() - began
        return loss

    began = time.process_time()
    reached = train(network, corpus, recipe, seed=cfg.seed, loss_of=objective.loss, callbacks=Callbacks(
        validate=validate, validate_every=max(1, cfg.steps // POINTS)))
    seconds = time.process_time() - began - spent
    loss = reached.validation[-1][1]
    return {"percent": round(percent(loss), 2), "loss": round(loss, 4), "unigram": round(unigram_loss, 4),
            "exact": round(exact_loss, 4), "seconds": round(seconds),
            "curve": " ".join(f"{step}:{percent(at):.1f}" for step, at in reached.validation)}


def main(folder: Path, profile: str, candidates: Path, results: Path) -> None:
    torch.set_num_threads(1)
    inputs = Inputs({stage: folder / stage for stage in ("grammar", "sample")}, "")
    exam = Exam(inputs, load_profile(profile).pretrain)
    if not results.exists():
        results.write_text(",".join(COLUMNS) + "\n")
    while waiting := [line for line in filter(None, map(str.strip, candidates.read_text().splitlines()))
                      if line not in {row["candidate"] for row in csv.DictReader(results.open())}]:
        name, *settings = waiting[0].split()
        cfg = load_profile(profile, [f"pretrain.{setting}" for setting in settings]).pretrain
        row = {"candidate": waiting[0], **screen(inputs, exam, name, cfg)}
        with results.open("a") as file:
            csv.DictWriter(file, COLUMNS).writerow(row)
        print(row, flush=True)


if __name__ == "__main__":
    with single_thread():
        main(*(Path(argument) if k != 1 else argument for k, argument in enumerate(sys.argv[1:])))  # type: ignore
