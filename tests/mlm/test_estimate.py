"""Operations and memory of training by arithmetic, beside the training step itself on tensors that hold no data."""

import weakref

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop, sdpa_flop

from pcfg_artifact.mlm.estimate import (
    Batching,
    batch_tokens_that_fit,
    estimate,
    kept_bytes,
    step_operations,
    training_bytes,
)
from pcfg_artifact.mlm.forward import FlatInputs
from pcfg_artifact.mlm.objectives import config_of, objective_of
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.system.gpus import KNOWN, UNKNOWN, gpu_of

PAPER = load_profile("paper").pretrain
N_WORDS, BLOCK = 10_000, 128
MICRO = PAPER.batch_tokens
WITHIN = 0.1
ATEN = torch.ops.aten


class Memory(TorchDispatchMode):
    """Bytes of all storages that are alive, now and at most."""

    def __init__(self):
        super().__init__()
        self.alive, self.now, self.peak = set(), 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for storage in [t.untyped_storage() for t in tree_leaves(out) if isinstance(t, torch.Tensor)]:
            if storage._cdata not in self.alive:
                self.alive.add(storage._cdata)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.free, storage._cdata, storage.nbytes())
        return out

    def free(self, address, n_bytes):
        self.alive.discard(address)
        self.now -= n_bytes


def as_on_a_gpu(monkeypatch):
    """CUDA's attention has dropout of its own and CUDA's dropout keeps one byte a number: the CPU's do not."""
    attention = functional.scaled_dot_product_attention
    monkeypatch.setattr(functional, "scaled_dot_product_attention",
                        lambda q, k, v, mask=None, dropout_p=0.0, is_causal=False: attention(
                            q, k, v, mask, 0.0, is_causal))
    monkeypatch.setattr(functional, "dropout", lambda x, p=0.5, training=True, inplace=False:
                        torch.native_dropout(x, p, True)[0] if training and p else x)


def counted(name):
    """(operations of a micro-batch, bytes kept for its backward pass, most bytes) of the second step."""
    config, objective, recipe_rate = config_of(name, PAPER, N_WORDS), objective_of(name), 1e-3
    flops = FlopCounterMode(display=False, custom_mapping={
        ATEN._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *a, out_shape=None, **k2: sdpa_flop(q, k, v),
        ATEN._scaled_dot_product_flash_attention_for_cpu_backward:
            lambda g, q, k, v, *a, out_shape=None, **k2: sdpa_backward_flop(g, q, k, v)})
    with FakeTensorMode(allow_non_fake_inputs=True), Memory() as memory:
        network = objective.build(config, 0).train()
        optimiser = torch.optim.AdamW(network.parameters(), lr=recipe_rate, fused=True)
        loss = objective.loss(network)
        n_predicted = int(Batching(0, 0, BLOCK, PAPER.mask_rate).predicted(config, MICRO))
        ids, where = torch.zeros(MICRO, dtype=torch.long), torch.zeros(n_predicted, dtype=torch.long)
        for _ in range(2):
            memory.peak = before = memory.now
            with flops, torch.autocast("cpu", torch.bfloat16):
                value = loss(FlatInputs(ids, ids, [(MICRO // BLOCK, BLOCK)], [None]), where, where)
                kept = memory.now - before
                value.backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
    return flops.get_total_flops(), kept, memory.peak


@pytest.mark.parametrize("name", PAPER.all_models)
def test_the_arithmetic_is_within_ten_percent_of_what_is_counted(name, monkeypatch):
    as_on_a_gpu(monkeypatch)
    operations, kept, most = counted(name)
    config = config_of(name, PAPER, N_WORDS)
    batching = Batching(MICRO // BLOCK, MICRO, BLOCK, PAPER.mask_rate)
    assert step_operations(config, batching) == pytest.approx(operations, rel=WITHIN)
    assert kept_bytes(config, MICRO, batching.predicted(config, MICRO), is_half=True) == pytest.approx(kept, rel=WITHIN)
    assert training_bytes(config, batching, is_half=True) == pytest.approx(most, rel=WITHIN)


def test_the_papers_base_model_trains_on_eleven_gigabytes():
    batching = Batching(4096, MICRO, BLOCK, PAPER.mask_rate, 8)
    config = config_of("A12L12", PAPER, N_WORDS)
    assert kept_bytes(config, MICRO, batching.predicted(config, MICRO), is_half=True) == pytest.approx(6.65e9, rel=0.01)
    assert estimate(config, batching, gpu_of("NVIDIA GeForce RTX 2080 Ti")).megabytes < 11_000


def test_the_papers_models_take_less_than_two_hours_on_eight_a100():
    batching, gpu = Batching(4096, MICRO, BLOCK, PAPER.mask_rate, 8), gpu_of("NVIDIA A100-SXM4-40GB")
    seconds = {name: estimate(config_of(name, PAPER, N_WORDS), batching, gpu).seconds
               for name in (*PAPER.models, *PAPER.causal_models)}
    assert seconds["A12L12"] == pytest.approx(0.21, abs=0.02)
    assert sum(seconds.values()) * PAPER.steps < 2 * 3600


@pytest.mark.parametrize("megabytes", [2_000, 5_000, 8_000, 40_000])
def test_what_is_said_to_fit_fits_and_one_row_more_does_not(megabytes):
    config, batching = config_of("A12L12", PAPER, N_WORDS), Batching(4096, MICRO, BLOCK, PAPER.mask_rate, 8)

    def needed(tokens):
        return estimate(config, Batching(4096, tokens, BLOCK, PAPER.mask_rate, 8), KNOWN[0]).megabytes

    fitting = batch_tokens_that_fit(config, batching, megabytes)
    if fitting:
        assert needed(fitting) <= megabytes
    assert needed(fitting + BLOCK) > megabytes or fitting == 4096 // 8 * BLOCK
    assert fitting > 0 or megabytes == 2_000


@pytest.mark.parametrize(("name", "expected"), [
    ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"), ("Tesla T4", "T4"), ("Tesla V100-SXM2-32GB", "V100"),
    ("NVIDIA A10", "A10"), ("NVIDIA A10G", "A10"), ("NVIDIA A100-SXM4-80GB", "A100"), ("NVIDIA L40S", "L40S"),
    ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA GeForce GTX 1080", UNKNOWN.name)])
def test_gpus_are_known_by_the_names_that_torch_gives(name, expected):
    assert gpu_of(name).name == expected
