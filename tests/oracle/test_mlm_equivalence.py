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

sys.path.insert(0, str(Path(__file__).parent))
import mlm_world

# (loss of every step absolute, weights absolute) in float64: rounding of sums in another order, times 20 updates.
LOSS_64, WEIGHTS_64 = 1e-9, 1e-8
RELATIVE_32 = 1e-5  # float32: relative, of the weights to the length of their vector
PRECISIONS = ("float64", "float32")


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
                         capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return {(precision, rank): np.load(folder / f"{precision}-{rank}.npz")
            for precision in PRECISIONS for rank in (0, 1)}


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
        run = two_processes[precision, rank]
        check_same(precision, alone[precision], run["losses"], run["weights"])
    assert np.array_equal(two_processes[precision, 0]["weights"], two_processes[precision, 1]["weights"])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("batch_tokens", "least"), [(200, 2), (90, 4)])
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
    from pcfg_artifact.mlm.model import Shape, build_config, build_model

    corpus = mlm_world.small_corpus(10_000)
    config = build_config(Shape(2, 2), n_words=mlm_world.N_WORDS, width=32, max_length=20, dropout=0.0)
    model = build_model(config, 0).double()
    groups = [{"params": [p for p in model.parameters() if (p.ndim > 1) == decays], "weight_decay": 0.01 * decays}
              for decays in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.98), eps=1e-6)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: (s + 1) / 5 if s < 5 else (40 - s) / 35)
    losses = []
    for step in range(mlm_world.STEPS):
        (batch,) = corpus.step(step).batches
        input_ids = torch.from_numpy(batch.input_ids)
        logits = model(input_ids, attention_mask=(input_ids != 1).long()).logits.flatten(0, 1)
        labels = torch.full((input_ids.numel(),), -100)
        labels[torch.from_numpy(batch.where)] = torch.from_numpy(batch.targets)
        loss = functional.cross_entropy(logits, labels)
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
