"""Started by torchrun from test_mlm_equivalence.py: train the small model in this world and save what came out."""

import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from pcfg_artifact.mlm.data import MaskedCorpus
from pcfg_artifact.mlm.evaluation import mean_loss
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.mlm.objectives import objective_of
from pcfg_artifact.mlm.training import Callbacks, Rank, Recipe, train
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.system.ragged import Ragged

N_WORDS, STEPS, BATCH = 60, 20, 16
RECIPE_STEPS = {"float32": STEPS, "float16": 5}  # most processors only imitate float16, at a sixth of the speed


def small_corpus(batch_tokens: int) -> MaskedCorpus:
    rng = np.random.default_rng(0)
    rows = [rng.random(rng.integers(3, 20)) ** 3 * N_WORDS for _ in range(200)]  # low numbers are frequent
    sentences = Ragged.from_rows(rows, np.uint16)
    return MaskedCorpus(sentences, n_words=N_WORDS, masking=Masking(0.15), seed=1, batch_size=BATCH,
                        batch_tokens=batch_tokens, max_length=20)


def train_small(precision: str, batch_tokens: int, rank: Rank = Rank()):  # noqa: B008
    """(loss of every step with the validation loss last, all weights in one vector)."""
    torch.set_num_threads(1)
    config = build_config(parse_shape("A2L2"), n_words=N_WORDS, width=32, max_length=20, dropout=0.0)
    model = build_model(config, 0).to(getattr(torch, precision))
    rank = Rank(rank.index, rank.world_size, "cpu", precision)
    corpus = small_corpus(batch_tokens)
    recipe = Recipe(steps=STEPS, schedule_steps=40, warmup_steps=5, learning_rate=2e-3, weight_decay=0.01, clip=1.0)
    progress = train(model, corpus, recipe, seed=0, rank=rank, callbacks=Callbacks(validate=lambda network: mean_loss(
        network, corpus.in_order("validation", rank.index, rank.world_size), rank)))
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    return np.array([*progress.losses, progress.validation[-1][1]]), weights


def train_causal(rank: Rank = Rank()):  # noqa: B008
    """The same sentences and steps for a causal model, in float64."""
    torch.set_num_threads(1)
    objective = objective_of("C2L2")
    config = objective.config(parse_shape("C2L2"), n_words=N_WORDS, width=32, max_length=20, dropout=0.0,
                              initial_scale=0.02, layer_norm="pre")
    model = objective.build(config, 0).double()
    masked = small_corpus(10_000)
    corpus = objective.corpus(masked.sentences, n_words=N_WORDS, masking=masked.masking, seed=1, batch_size=BATCH,
                              batch_tokens=10_000, max_length=20)
    recipe = Recipe(steps=STEPS, schedule_steps=40, warmup_steps=5, learning_rate=2e-3, weight_decay=0.01, clip=1.0)
    rank = Rank(rank.index, rank.world_size, "cpu", "float64")
    progress = train(model, corpus, recipe, seed=0, loss_of=objective.loss, rank=rank)
    return np.array(progress.losses), torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()


def train_recipe(precision: str, dropout: float, rank: Rank = Rank(), start=None, save=None):  # noqa: B008
    """The paper's recipe, narrow: 32 blocks of 128 tokens a step.  (loss of every step, all weights in one vector)."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    sentences = Ragged.from_rows([rng.random(rng.integers(3, 60)) ** 3 * N_WORDS for _ in range(1500)], np.uint16)
    corpus = MaskedCorpus(sentences, n_words=N_WORDS, masking=Masking(0.40), seed=1, batch_size=32, batch_tokens=1024,
                          max_length=126, packing=128)
    config = build_config(parse_shape("A4L1"), n_words=N_WORDS, width=64, max_length=126, dropout=dropout,
                          layer_norm="pre")
    model = build_model(config, 0)
    rank = Rank(rank.index, rank.world_size, "cpu", precision)
    recipe = Recipe(steps=RECIPE_STEPS[precision], schedule_steps=23_000, warmup_steps=1_380, learning_rate=2e-3,
                    weight_decay=0.01, clip=None)
    progress = train(model, corpus, recipe, seed=0, rank=rank, start=start,
                     callbacks=Callbacks(save=save, save_every=STEPS // 2))
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    return np.array(progress.losses), weights


def train_and_resume(rank: Rank):
    """Twice with dropout: unbroken, and from the checkpoint that the first run left half way."""
    saved: list = []
    yield "unbroken", train_recipe("float32", 0.1, rank, save=saved.append)
    half_way = saved[:1] if rank.index == 0 else [None]
    distributed.broadcast_object_list(half_way)  # only process 0 saves
    yield "resumed", train_recipe("float32", 0.1, rank, start=half_way[0])


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    here = Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    found = {name: train_small(name, 10_000, here) for name in ("float64", "float32")}
    found |= {f"recipe-{name}": train_recipe(name, 0.0, here) for name in RECIPE_STEPS}
    found |= dict(train_and_resume(here))
    found["causal"] = train_causal(here)
    for name, (losses, weights) in found.items():
        np.savez(Path(sys.argv[1]) / f"{name}-{here.index}.npz", losses=losses, weights=weights)
    distributed.destroy_process_group()
