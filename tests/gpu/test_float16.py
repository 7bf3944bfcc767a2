"""GPUs without bfloat16 train in float16 with a loss scale: the same path on the CPU, where torch has float16 too."""

import pytest
import torch
from test_training import run

from pcfg_artifact.mlm.training import Rank, precision_of

HALF = Rank(precision="float16")


def test_the_loss_scale_is_part_of_a_checkpoint_and_a_resumed_run_ends_the_same():
    saved = []
    _, unbroken = run(HALF, save=saved.append, save_every=3)
    assert saved[0].loss_scale["scale"] > 1
    _, resumed = run(HALF, start=saved[0])
    assert resumed.losses == unbroken.losses


def test_float16_is_near_float32():
    (_, half), (_, single) = run(HALF), run(Rank())
    assert half.losses != single.losses
    assert half.losses == pytest.approx(single.losses, rel=0.02)


def test_gradients_that_overflow_skip_the_update_and_lower_the_scale():
    saved = []
    run(HALF, save=saved.append, save_every=3)
    saved[0].loss_scale["scale"] = 2.0**60
    after = []
    run(HALF, start=saved[0], save=after.append, save_every=4)
    assert after[0].loss_scale["scale"] == 2.0**59
    assert all(torch.equal(after[0].tensors[name], tensor) for name, tensor in saved[0].tensors.items()
               if name.startswith("weight."))


def test_a_gpu_without_bfloat16_gets_float16(monkeypatch):
    for has_it, expected in ((True, "bfloat16"), (False, "float16")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, found=has_it: found)
        assert precision_of("auto", "cuda:0") == expected
    assert precision_of("auto", "cpu") == "float32"
