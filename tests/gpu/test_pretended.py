"""The pretended GPU itself: what it must refuse, what it must count, and that it changes no number."""

import numpy as np
import pytest
import torch


def test_tensors_are_where_they_were_asked_to_be(gpus):
    a = torch.ones(3, device="cuda")
    assert str(a.device) == "cuda:0"
    assert str((a * 2)[1:].device) == "cuda:0"
    assert str(a.new_zeros(2).device) == "cuda:0"
    assert str(torch.zeros_like(a, device="cuda:1").device) == "cuda:1"
    assert str(torch.from_numpy(np.ones(2)).device) == "cpu"
    assert str(a.to("cuda:1").cpu().device) == "cpu"


def test_a_constant_left_on_the_cpu_is_refused(gpus):
    with pytest.raises(RuntimeError, match="same device: mul"):
        torch.ones(3, device="cuda") * torch.ones(3)


def test_a_single_number_may_come_from_the_cpu(gpus):
    assert (torch.ones(3, device="cuda") * torch.tensor(2.0)).cpu().tolist() == [2.0] * 3


def test_numpy_without_cpu_is_refused(gpus):
    on_gpu = torch.ones(3, device="cuda")
    with pytest.raises(TypeError, match="Use Tensor.cpu"):
        on_gpu.numpy()
    with pytest.raises(TypeError, match="Use Tensor.cpu"):
        np.asarray(on_gpu)
    assert on_gpu.cpu().numpy().tolist() == [1.0] * 3


def test_an_index_on_another_gpu_is_refused_and_one_on_the_cpu_is_a_wait(gpus):
    values = torch.arange(4, device="cuda:0")
    with pytest.raises(RuntimeError, match="indices should be on cpu or cuda:0, found cuda:1"):
        values[torch.tensor([1], device="cuda:1")]
    assert not gpus.waits
    assert values[torch.tensor([1])].shape == (1,)
    assert gpus.waits.total() == 1


@pytest.mark.parametrize("read", [lambda t: t.sum().item(), lambda t: t.tolist(), lambda t: t.cpu(), torch.nonzero,
                                  lambda t: bool(t.any()), lambda t: float(t[0]), lambda t: t[t > 0]])
def test_every_way_to_read_is_a_wait(gpus, read):
    on_gpu = torch.ones(3, device="cuda")
    on_gpu.sum().sqrt()
    assert not gpus.waits
    read(on_gpu)
    assert gpus.waits.total() == 1
    read(torch.ones(3))
    assert gpus.waits.total() == 1


def test_gradients_are_where_their_parameters_are(gpus):
    weight = torch.ones(3, device="cuda:1", requires_grad=True)
    (weight * torch.arange(3.0, device="cuda:1")).sum().backward()
    assert str(weight.grad.device) == "cuda:1"
    assert not gpus.waits


def test_the_device_of_freed_memory_is_forgotten(gpus):
    for _ in range(100):
        torch.ones(50, device="cuda")
        assert str((torch.ones(50) + 1).device) == "cpu"
