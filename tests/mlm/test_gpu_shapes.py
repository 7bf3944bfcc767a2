"""What training does on GPUs alone, tried on the CPU: a padded vocabulary, and layers that are compiled."""

import pytest
import torch

from pcfg_artifact.mlm import forward
from pcfg_artifact.mlm.forward import FlatInputs, MaskedLoss, one_layer, padded_scores
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.system import machine


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("n_tokens", [5, 64, 101])
def test_a_padded_vocabulary_gives_the_scores_and_gradients_of_the_vocabulary(n_tokens, has_bias):
    torch.manual_seed(0)
    decoder = torch.nn.Linear(16, n_tokens, bias=has_bias, dtype=torch.float64)
    hidden, targets = torch.randn(7, 16, dtype=torch.float64), torch.arange(7) % n_tokens
    gradients = []
    for scores in (decoder(hidden), padded_scores(decoder, hidden)):
        assert scores.shape == (7, n_tokens)
        forward.summed_loss(scores, targets).backward()
        gradients.append([p.grad.clone() for p in decoder.parameters()])
        decoder.zero_grad()
    torch.testing.assert_close(padded_scores(decoder, hidden), decoder(hidden), rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("layer_norm", ["pre", "post"])
def test_a_layer_compiles_as_one_graph_once_for_all_layers(layer_norm, monkeypatch):
    """fullgraph: a break, which would make every layer slow, is an error."""
    torch.manual_seed(0)
    graphs = []

    def note(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = build_model(build_config(parse_shape("A2L3"), n_words=20, width=16, max_length=10, dropout=0.0,
                                     layer_norm=layer_norm), 0).train()
    ids = torch.arange(12) % 9
    inputs = FlatInputs(ids, torch.arange(12) % 6 + 2, ((2, 6),), (None,))
    arguments = (inputs, torch.tensor([1, 7]), torch.tensor([3, 4]))
    expected = MaskedLoss(model)(*arguments)
    monkeypatch.setattr(forward, "one_layer", torch.compile(one_layer, backend=note, dynamic=False, fullgraph=True))
    found = MaskedLoss(model)(*arguments)
    torch.testing.assert_close(found, expected)
    assert len(graphs) == 1
    found.backward()
    assert all(p.grad is not None for p in model.base_model.encoder.parameters())


@pytest.mark.parametrize(("has_triton", "compiler", "has_headers", "expected"), [
    (True, "/usr/bin/cc", True, True), (True, None, True, False), (False, "/usr/bin/cc", True, False),
    (True, "/usr/bin/cc", False, False)])
def test_layers_are_compiled_where_triton_and_a_compiler_are(monkeypatch, tmp_path, has_triton, compiler, has_headers,
                                                             expected):
    (tmp_path / ("Python.h" if has_headers else "other.h")).touch()
    monkeypatch.setattr(machine.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(machine, "find_spec", lambda name: object() if has_triton else None)
    monkeypatch.setattr(machine.shutil, "which", lambda name: compiler)
    machine.can_compile.cache_clear()
    assert machine.can_compile() is expected
    machine.can_compile.cache_clear()
