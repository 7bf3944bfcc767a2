"""Started by torchrun from test_mlm_equivalence.py: train the small model in this world and save what came out."""

import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from pcfg_artifact.mlm.data import MaskedCorpus
from pcfg_artifact.mlm.evaluation import mean_loss
from pcfg_artifact.mlm.model import Shape, build_config, build_model
from pcfg_artifact.mlm.training import Place, Recipe, train
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.ragged import Ragged

N_WORDS, STEPS, BATCH = 60, 20, 16


def small_corpus(batch_tokens: int) -> MaskedCorpus:
    rng = np.random.default_rng(0)
    rows = [rng.random(rng.integers(3, 20)) ** 3 * N_WORDS for _ in range(200)]  # low numbers are frequent
    sentences = Ragged.from_rows(rows, np.uint16)
    return MaskedCorpus(sentences, n_words=N_WORDS, masking=Masking(0.15), seed=1, batch_size=BATCH,
                        batch_tokens=batch_tokens, max_length=20)


def train_small(precision: str, batch_tokens: int, place: Place = Place()):  # noqa: B008
    """(loss of every step with the validation loss last, all weights in one vector)."""
    torch.set_num_threads(1)
    config = build_config(Shape(2, 2), n_words=N_WORDS, width=32, max_length=20, dropout=0.0)
    model = build_model(config, 0).to(getattr(torch, precision))
    place = Place(place.rank, place.world_size, "cpu", precision)
    corpus = small_corpus(batch_tokens)
    recipe = Recipe(steps=STEPS, schedule_steps=40, warmup_steps=5, learning_rate=2e-3, weight_decay=0.01, clip=1.0)
    progress = train(model, corpus, recipe, seed=0, place=place, validate=lambda network: mean_loss(
        network, corpus.in_order("validation", place.rank, place.world_size), place))
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    return np.array([*progress.losses, progress.validation[-1][1]]), weights


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    here = Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    for name in ("float64", "float32"):
        losses, weights = train_small(name, 10_000, here)
        np.savez(Path(sys.argv[1]) / f"{name}-{here.rank}.npz", losses=losses, weights=weights)
    distributed.destroy_process_group()
