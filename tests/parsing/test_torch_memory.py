"""What the torch engine does where a device has no memory for a batch."""

import numpy as np
import pytest
import torch

from pcfg_artifact.errors import StageError
from pcfg_artifact.parsing import torch_engine
from pcfg_artifact.parsing.torch_engine import TorchEngine


def limited(n_most):
    """Work that a device with room for `n_most` words can do."""
    def work(batch):
        lengths = [len(leaves) for leaves, _ in batch]
        if sum(lengths) > n_most:
            raise torch.OutOfMemoryError("no room")
        return lengths
    return work


def test_a_batch_that_does_not_fit_is_done_in_halves_and_in_order(tiny_grammar):
    engine, lengths = TorchEngine(tiny_grammar), [3, 1, 4, 1, 5, 2, 6]
    leaves = [np.ones((length, 2)) for length in lengths]
    assert list(engine._each(limited(7), leaves, ())) == lengths


def test_a_sentence_that_does_not_fit_alone_is_an_error_that_names_its_length(tiny_grammar):
    engine = TorchEngine(tiny_grammar)
    with pytest.raises(StageError, match="a sentence of 9 words needs more memory than cpu has .*use the engine `cpu`"):
        list(engine._each(limited(7), [np.ones((9, 2)), np.ones((2, 2))], ()))


def test_a_gpu_takes_as_many_long_sentences_at_once_as_half_its_free_memory_holds(tiny_grammar, monkeypatch):
    engine = TorchEngine(tiny_grammar)
    engine.device = torch.device("cuda")
    monkeypatch.setattr(torch_engine, "free_gpu_memory", lambda device: 2 * 5 * engine._bytes(126))
    monkeypatch.setattr(torch_engine, "MEMORY_BUDGET", 0)
    assert [len(batch) for batch in engine._batches([126] * 12)] == [5, 5, 2]
