"""Muon and AdamW side by side: every weight has one of them, and a resumed run ends with the same bytes."""

import numpy as np
import pytest
import torch

from pcfg_artifact.errors import StageError
from pcfg_artifact.mlm.data import MaskedCorpus
from pcfg_artifact.mlm.model import parse_shape
from pcfg_artifact.mlm.objectives import objective_of
from pcfg_artifact.mlm.optimisers import optimisers_of
from pcfg_artifact.mlm.training import Callbacks, Recipe, train
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.system.ragged import Ragged

N_WORDS, STEPS = 30, 6


def network(name="A2L2"):
    objective = objective_of(name)
    config = objective.config(parse_shape(name), n_words=N_WORDS, width=16, max_length=12, dropout=0.0,
                              initial_scale=0.05, layer_norm="pre")
    return objective.build(config, 0)


def corpus():
    rng = np.random.default_rng(0)
    sentences = Ragged.from_rows([rng.random(rng.integers(3, 12)) ** 3 * N_WORDS for _ in range(60)], np.uint16)
    return MaskedCorpus(sentences, n_words=N_WORDS, masking=Masking(0.40), seed=1, batch_size=8, batch_tokens=200,
                        max_length=12)


def trained(optimiser, start=None, **callbacks):
    model = network()
    recipe = Recipe(STEPS, STEPS, 1, 3e-3, 0.01, 1.0, optimiser=optimiser)
    progress = train(model, corpus(), recipe, seed=0, start=start, callbacks=Callbacks(**callbacks))
    return progress.losses, torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("name", ["A2L2", "C2L2"])
@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_every_weight_is_updated_by_exactly_one(name, optimiser):
    model = network(name)
    found = optimisers_of(model, optimiser, 1e-3, 0.01, (0.9, 0.98), 1e-6)
    updated = [p for o in found for group in o.param_groups for p in group["params"]]
    assert sorted(map(id, updated)) == sorted(map(id, model.parameters()))
    assert [type(o).__name__ for o in found] == {"adamw": ["AdamW"], "muon": ["AdamW", "Muon"]}[optimiser]


def test_biases_and_norms_decay_only_where_all_parameters_do():
    for decay_all in (False, True):
        [adamw] = optimisers_of(network(), "adamw", 1e-3, 0.01, (0.9, 0.98), 1e-6, decay_all)
        decays = {p.ndim > 1: group["weight_decay"] for group in adamw.param_groups for p in group["params"]}
        assert decays == {True: 0.01, False: 0.01 if decay_all else 0.0}


@pytest.mark.parametrize("name", ["A2L2", "C2L2"])
def test_muon_has_the_matrices_of_the_layers_and_no_embedding(name):
    model = network(name)
    muon = optimisers_of(model, "muon", 1e-3, 0.01, (0.9, 0.98), 1e-6)[1]
    updated = [p for group in muon.param_groups for p in group["params"]]
    chosen = {path for path, p in model.named_parameters() if any(p is q for q in updated)}
    assert len(chosen) == 2 * {"A2L2": 6, "C2L2": 4}[name]  # GPT-2 has query, key and value in one
    assert all("embed" not in path and "wte" not in path and "wpe" not in path for path in chosen)


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_a_resumed_run_ends_with_the_same_bytes(optimiser):
    saved = []
    losses, weights = trained(optimiser, save=saved.append, save_every=STEPS // 2)
    again, resumed = trained(optimiser, start=saved[0])
    assert again == losses
    assert torch.equal(weights, resumed)


def test_they_end_at_different_weights():
    assert not torch.equal(trained("adamw")[1], trained("muon")[1])


def test_a_checkpoint_of_the_other_optimiser_is_refused():
    saved = []
    trained("adamw", save=saved.append, save_every=STEPS // 2)
    with pytest.raises(StageError, match="of another model"):
        trained("muon", start=saved[0])
