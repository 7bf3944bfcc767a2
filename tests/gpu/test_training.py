"""Training on a pretended GPU: everything is where it belongs, resumed too, and the CPU hardly ever waits for it.

Faults are planted one by one: each must be found.
"""

import numpy as np
import pytest
import torch

from pcfg_artifact.mlm import forward, training
from pcfg_artifact.mlm.data import MaskedCorpus
from pcfg_artifact.mlm.evaluation import mean_loss
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.mlm.training import Callbacks, Rank, Recipe, train
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.system.ragged import Ragged

N_WORDS, STEPS = 20, 6
RECIPE = Recipe(steps=STEPS, schedule_steps=10, warmup_steps=2, learning_rate=1e-2, weight_decay=0.01, clip=1.0)
GPU = Rank(device="cuda:0")
PADDED = 1e-5  # the padded vocabulary of GPUs sums in another order


def small_corpus() -> MaskedCorpus:
    """Two micro-batches a step, with padding."""
    rng = np.random.default_rng(0)
    sentences = Ragged.from_rows([rng.integers(0, N_WORDS, rng.integers(3, 25)) for _ in range(80)], np.uint16)
    return MaskedCorpus(sentences, n_words=N_WORDS, masking=Masking(0.3), seed=1, batch_size=24, batch_tokens=256,
                        max_length=25)


def run(rank: Rank, start=None, **callbacks):
    config = build_config(parse_shape("A2L1"), n_words=N_WORDS, width=16, max_length=25, dropout=0.1)
    model = build_model(config, 0)
    progress = train(model, small_corpus(), RECIPE, seed=0, rank=rank, start=start, callbacks=Callbacks(**callbacks))
    return model, progress


@pytest.fixture(scope="module")
def on_cpu():
    torch.set_num_threads(1)
    saved = []
    model, progress = run(Rank(), save=saved.append, save_every=3)
    return progress.losses, [p.detach().clone() for p in model.parameters()], saved[0]


def test_micro_batches_have_padding():
    batches = small_corpus().step(0).batches
    assert len(batches) > 1
    assert any(mask is not None for batch in batches for mask in batch.is_token)


def test_the_numbers_are_those_of_the_cpu_and_everything_is_on_the_gpu(on_cpu, gpus):
    model, progress = run(GPU)
    assert progress.losses == pytest.approx(on_cpu[0], abs=PADDED)
    for found, expected in zip(model.parameters(), on_cpu[1], strict=True):
        assert str(found.device) == "cuda:0"
        torch.testing.assert_close(found.detach().cpu(), expected, rtol=0, atol=PADDED)


def test_a_step_of_training_waits_for_nothing(gpus):
    """All losses are read at once at the end: one wait for six steps, each of several micro-batches."""
    run(GPU)
    assert sum(gpus.waits.values()) == 1, gpus.waits
    assert "tolist in training.py" in next(iter(gpus.waits))


def test_a_loss_that_is_read_in_every_step_is_found_as_waits(gpus, monkeypatch):
    monkeypatch.setattr(training, "READ_EVERY", 1)
    run(GPU)
    assert sum(gpus.waits.values()) == STEPS


def test_resumed_on_a_gpu_it_ends_where_the_unbroken_run_ends(on_cpu, gpus):
    _, progress = run(GPU, start=on_cpu[2])
    assert progress.losses == pytest.approx(on_cpu[0], abs=PADDED)


def test_a_checkpoint_taken_on_a_gpu_is_on_the_cpu(gpus):
    saved = []
    run(GPU, save=saved.append, save_every=3)
    assert {str(tensor.device) for tensor in saved[0].tensors.values()} == {"cpu"}


def test_moments_left_on_the_cpu_after_resuming_are_refused(on_cpu, gpus, monkeypatch):
    def restore(model, optimisers, scaler, progress):
        restored(model, optimisers, scaler, progress)
        for state in optimisers[0].state.values():
            state["exp_avg"] = state["exp_avg"].cpu()

    restored = training.restore
    monkeypatch.setattr(training, "restore", restore)
    with pytest.raises(RuntimeError, match="same device: _fused_adamw_"):
        run(GPU, start=on_cpu[2])


def test_an_attention_mask_built_on_the_cpu_is_refused(gpus, monkeypatch):
    def to_device(batch, device):
        inputs, where, targets = moved(batch, device)
        masks = [None if mask is None else mask.cpu() for mask in inputs.is_token]
        return inputs._replace(is_token=masks), where, targets

    moved = forward.to_device
    monkeypatch.setattr(training, "to_device", to_device)
    with pytest.raises(RuntimeError, match="same device"):
        run(GPU)


def test_validation_waits_once(on_cpu, gpus):
    model, _ = run(GPU)
    gpus.waits.clear()
    loss = mean_loss(model, small_corpus().in_order("validation"), GPU)
    assert loss > 0
    assert sum(gpus.waits.values()) == 1, gpus.waits
