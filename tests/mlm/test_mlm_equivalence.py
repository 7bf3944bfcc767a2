"""The same numbers however a global batch is shared out: over processes, over accumulation steps, or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import pcfg_artifact
from pcfg_artifact.mlm import tokenizer as tokens

sys.path.insert(0, str(Path(__file__).parent))
import mlm_world

# (loss of every step absolute, weights absolute) in float64: rounding of sums in another order, times 20 updates.
LOSS_64, WEIGHTS_64 = 1e-9, 1e-8
RELATIVE_32 = 1e-5  # float32: relative, of the weights to the length of their vector
PRECISIONS = ("float64", "float32")
# The paper's recipe: relative, losses and weights.
RECIPE_TOLERANCE = {"float32": 1e-6, "float16": 1e-3}


@pytest.fixture(scope="module")
def alone():
    """One process, the global batch as one micro-batch."""
    return {precision: mlm_world.train_small(precision, 10_000) for precision in PRECISIONS}


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    root = str(Path(pcfg_artifact.__file__).parent.parent)
    run = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
                          mlm_world.__file__, str(folder)], env={**os.environ, "PYTHONPATH": root},
                         capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr
    return {path.stem: np.load(path) for path in folder.glob("*.npz")}


def check_same(precision, reference, losses, weights):
    expected_losses, expected_weights = reference
    if precision == "float64":
        assert np.abs(losses - expected_losses).max() < LOSS_64
        assert np.abs(weights - expected_weights).max() < WEIGHTS_64
    else:
        assert np.abs(losses / expected_losses - 1).max() < RELATIVE_32
        assert np.linalg.norm(weights - expected_weights) < RELATIVE_32 * np.linalg.norm(expected_weights)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_two_processes_give_the_numbers_of_one(alone, two_processes, precision):
    for rank in (0, 1):
        run = two_processes[f"{precision}-{rank}"]
        check_same(precision, alone[precision], run["losses"], run["weights"])
    assert np.array_equal(two_processes[f"{precision}-0"]["weights"], two_processes[f"{precision}-1"]["weights"])


def test_two_processes_train_the_causal_model_of_one(two_processes):
    alone = mlm_world.train_causal()
    for rank in (0, 1):
        run = two_processes[f"causal-{rank}"]
        check_same("float64", alone, run["losses"], run["weights"])
    assert alone[0][-1] < alone[0][0] - 0.05


@pytest.mark.parametrize("precision", mlm_world.RECIPE_STEPS)
def test_the_papers_recipe_gives_the_numbers_of_one_process_in_two(two_processes, precision):
    """Blocks of 128 tokens, layer norm first, 40% masks, no clipping, the schedule's first steps."""
    losses, weights = mlm_world.train_recipe(precision, dropout=0.0)
    tolerance = RECIPE_TOLERANCE[precision]
    for rank in (0, 1):
        run = two_processes[f"recipe-{precision}-{rank}"]
        assert np.abs(run["losses"] / losses - 1).max() < tolerance
        assert np.linalg.norm(run["weights"] - weights) < tolerance * np.linalg.norm(weights)


def test_with_dropout_two_processes_resume_to_the_same_bytes(two_processes):
    for rank in (0, 1):
        unbroken, resumed = (two_processes[f"{name}-{rank}"] for name in ("unbroken", "resumed"))
        assert np.array_equal(unbroken["losses"], resumed["losses"])
        assert np.array_equal(unbroken["weights"], resumed["weights"])
    without = two_processes["recipe-float32-0"]["losses"]
    assert not np.array_equal(two_processes["unbroken-0"]["losses"], without)  # dropout was on


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("batch_tokens", "least"), [(120, 2), (50, 4)])
def test_accumulation_gives_the_numbers_of_one_batch(alone, precision, batch_tokens, least):
    corpus = mlm_world.small_corpus(batch_tokens)
    assert min(len(corpus.step(step).batches) for step in range(mlm_world.STEPS)) >= least
    check_same(precision, alone[precision], *mlm_world.train_small(precision, batch_tokens))


def test_twenty_steps_learn_something(alone):
    losses, _ = alone["float64"]
    assert losses[0] == pytest.approx(np.log(mlm_world.N_WORDS + 5), abs=0.5)
    assert losses[-1] < losses[0] - 0.05


def test_the_loop_is_adamw_on_the_mean_loss(alone):
    """The slow obvious twin: whole batch at once, full vocabulary projection, torch's own optimiser and scheduler."""
    from pcfg_artifact.mlm.model import build_config, build_model, parse_shape

    corpus = mlm_world.small_corpus(10_000)
    config = build_config(parse_shape("A2L2"), n_words=mlm_world.N_WORDS, width=32, max_length=20, dropout=0.0)
    model = build_model(config, 0).double()
    groups = [{"params": [p for p in model.parameters() if (p.ndim > 1) == decays], "weight_decay": 0.01 * decays}
              for decays in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.98), eps=1e-6)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: (s + 1) / 5 if s < 5 else (40 - s) / 35)
    losses = []
    for step in range(mlm_world.STEPS):
        (batch,) = corpus.step(step).batches
        labels = np.full(len(batch.input_ids), -100)
        labels[batch.where] = batch.targets
        rows = np.split(np.arange(len(labels)), np.flatnonzero(batch.input_ids == tokens.BEGIN)[1:])
        input_ids, labels = (torch.from_numpy(np.stack([np.pad(part[row], (0, 30 - len(row)), constant_values=filler)
                                                        for row in rows]))
                             for part, filler in ((batch.input_ids, tokens.PAD), (labels, -100)))
        logits = model(input_ids[:, :22], attention_mask=(input_ids[:, :22] != tokens.PAD).long()).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), labels[:, :22].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    expected_losses, expected_weights = alone["float64"]
    assert np.abs(np.array(losses) - expected_losses[:-1]).max() < LOSS_64
    assert np.abs(weights - expected_weights).max() < WEIGHTS_64
