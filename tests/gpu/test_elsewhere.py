"""All else that uses a GPU, on a pretended one: the numbers of the CPU, and nothing on the wrong device."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import RobertaConfig, RobertaForMaskedLM

from pcfg_artifact.constructions.relative import RelativeInsideOutside
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.interventions.counterfactuals import build
from pcfg_artifact.interventions.experiment import layer_metrics
from pcfg_artifact.interventions.run_from_layer import layer_states, log_probs_above
from pcfg_artifact.mlm.evaluation import predictions
from pcfg_artifact.mlm.exact_comparison import masked_sentences
from pcfg_artifact.mlm.gpt2 import build_causal_config, build_causal_model
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.mlm.next_word_comparison import next_word_predictions
from pcfg_artifact.mlm.tokenizer import build_tokenizer
from pcfg_artifact.parsing.engine import EngineOptions, inside_outside
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.probing.attention_heads import head_statistics
from pcfg_artifact.probing.linear_probe import LinearProbe
from pcfg_artifact.probing.probes import build_probes
from pcfg_artifact.probing.representations import extract
from pcfg_artifact.probing.two_layer_probe import TwoLayerProbe
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.workers import model_jobs

CUDA = "cuda:1"
WORDS = ("she", "eats", "fish", "now")
SENTENCES = [["she", "eats", "fish"], ["fish", "eats", "eats", "she", "now"], ["she"], ["eats", "fish"]]


@pytest.fixture(scope="module")
def grammar() -> PCFG:
    """Every kind of rule: two leaves, a leaf on either side, two inner children; one of probability zero."""
    return PCFG.from_rules(
        root={"S": 1.0},
        binary=[("S", "N", "VP", 0.5), ("S", "S", "S", 0.2), ("S", "S", "N", 0.1), ("S", "N", "V", 0.2),
                ("VP", "V", "N", 0.75), ("VP", "VP", "N", 0.25), ("VP", "V", "VP", 0.0)],
        lexical=[("N", "she", 0.5), ("N", "fish", 0.5), ("V", "eats", 0.6), ("V", "fish", 0.4)])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return RobertaForMaskedLM(RobertaConfig(
        vocab_size=5 + len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=14, pad_token_id=1, type_vocab_size=1, attn_implementation="eager"))


def test_the_engine(grammar, gpus):
    pytest.importorskip("triton")
    lines = ("she eats fish", "she fish", "she eats fish she fish fish she eats fish fish")
    sentences = [line.split() for line in lines]
    for options in ({"outside": "pruned"}, {"outside": "full"}):
        expected = inside_outside(grammar, sentences, backend="cpu", **options)
        found = inside_outside(grammar, sentences, backend="gpu", device=CUDA, **options)
        for one, other in zip(found, expected, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, rel=1e-12)
            assert np.allclose(one.marginals, other.marginals, atol=1e-12)
    assert gpus.waits


def test_fits_of_the_2_layer_probe(gpus):
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(50, 4)).astype(np.float32), rng.integers(0, 3, 50)
    probe = TwoLayerProbe(n_hidden=3, epochs=4, milestones=(2,), batch_size=20)
    for targets in (labels, labels.astype(np.float64)):
        found, expected = (probe.fit(x.copy(), targets, (0, 1), device=device) for device in (CUDA, "cpu"))
        assert str(found.weights.outer.device) == CUDA
        assert np.array_equal(found.predict(x), expected.predict(x))
        assert np.array_equal(found.losses, expected.losses)


def test_fits_of_the_linear_probe(gpus):
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(50, 4)).astype(np.float32), rng.integers(0, 3, 50)
    for targets in (labels, labels.astype(np.float64)):
        found, expected = (LinearProbe().fit(x.copy(), targets, device=device) for device in (CUDA, "cpu"))
        assert np.array_equal(found.weights, expected.weights)
        assert np.array_equal(found.predict(x), expected.predict(x))
    assert gpus.n_operations


def test_hidden_states_and_attention(model, gpus):
    tokenizer = build_tokenizer(WORDS, 12)

    def states(device):
        return extract(model, tokenizer, SENTENCES, lambda _, shape: np.zeros(shape, np.float32), max_tokens=10,
                       device=device)

    for found, expected in zip(states(CUDA), states("cpu"), strict=True):
        assert np.array_equal(found, expected)
    found, expected = (head_statistics(model, tokenizer, SENTENCES, max_tokens=10, device=d) for d in (CUDA, "cpu"))
    assert torch.equal(found[0], expected[0])
    model.to("cpu")


def test_predictions_of_masked_words(model, grammar, gpus):
    rng = np.random.default_rng(0)
    sentences = Ragged.from_rows([rng.integers(0, 3, n) for n in (4, 7, 5, 9)], np.uint16)
    masked = masked_sentences(grammar, sentences, Masking(0.4), seed=0, n=4, max_length=10)
    found, expected = (dict(predictions(model.to(device), masked, 16)) for device in (CUDA, "cpu"))
    assert found.keys() == expected.keys()
    assert all(np.allclose(found[s], expected[s], rtol=0, atol=1e-5) for s in expected)


def test_interventions(model, grammar, gpus):
    """States of every layer, and the layers above changed ones."""
    sentences = Ragged.from_rows([np.array([0, 1, 2, 0]), np.array([2, 1, 1, 0, 1])], np.uint16)
    masked = masked_sentences(grammar, sentences, Masking(0.4, "mask"), seed=0, n=2, max_length=10)
    for layer in range(3):
        found, expected = (layer_states(model.to(device), masked, layer) for device in (CUDA, "cpu"))
        assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
    changed, where = expected[1][None] + np.float32(0.5), np.array([0, 3])
    found, expected = (log_probs_above(model.to(device), 1, changed, where) for device in (CUDA, "cpu"))
    assert np.array_equal(found, expected)


def test_the_probes_of_interventions_are_fitted_where_the_model_is(grammar, gpus, monkeypatch):
    model = build_model(build_config(parse_shape("A2L2"), n_words=3, width=8, max_length=12, dropout=0.0), 0)
    sentences = Ragged.from_rows([np.array([0, 1, 2, 0, 1]), np.array([2, 1, 0, 0, 1]), *[np.array([0, 1, 2])] * 6],
                                 np.uint16)
    data = build(grammar, sentences, sentences, mask_rate=0.4, max_length=10, n_train=8, n_test=8, widths=(2,),
                 n_questions=4, seed=0, options=EngineOptions())
    fitted_on = []
    for kind in (LinearProbe, TwoLayerProbe):
        def fit(self, x, targets, seeds, *, fit=kind.fit, device="cpu", **options):
            fitted_on.append(device)
            return fit(self, x, targets, seeds, device=device, **options)

        monkeypatch.setattr(kind, "fit", fit)
    probes = build_probes(("linear", "2-layer"), {"epochs": 2, "milestones": (1,)})
    monkeypatch.setattr(model_jobs, "load_masked_lm", lambda folder: (model, None))
    found, expected = (model_jobs.InterventionContext(data, probes, Machine(device, 1, n_gpus=1), 0).outcome(
        Path("a model"), 1) for device in ("cuda", "cpu"))
    assert fitted_on == ["cuda:0"] * (len(fitted_on) // 2) + ["cpu"] * (len(fitted_on) // 2)
    for one, other in zip(layer_metrics(found, True), layer_metrics(expected, True), strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-4), one


def test_predictions_of_next_words(gpus):
    config = build_causal_config(parse_shape("A2L2"), n_words=3, width=8, max_length=10, dropout=0.0)
    model, words = build_causal_model(config, 0), [np.array([0, 1, 2]), np.array([2, 1])]
    found, expected = (dict(next_word_predictions(model.to(device), words, 16)) for device in (CUDA, "cpu"))
    assert all(np.allclose(found[s], expected[s], rtol=0, atol=1e-5) for s in (0, 1))


def test_a_constructed_transformer(grammar, gpus):
    sentence = ["she", "eats", "fish"]
    model = RelativeInsideOutside(grammar, max_length=5)
    expected = model.read_charts(model(sentence))
    found = model.to(CUDA).read_charts(model.to(CUDA)(sentence))
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
