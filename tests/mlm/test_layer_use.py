"""Which layers a model uses: what is changed, and that a change is worth what the changed model predicts."""

import numpy as np
import pytest
import torch

from pcfg_artifact.mlm.evaluation import predictions
from pcfg_artifact.mlm.exact_comparison import masked_sentences
from pcfg_artifact.mlm.layer_use import layer_use, with_uniform_attention, without_layer
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.system.ragged import Ragged


@pytest.fixture(params=["pre", "post"])
def model(request, tiny_grammar):
    config = build_config(parse_shape("A2L3"), n_words=tiny_grammar.n_words, width=16, max_length=10, dropout=0.0,
                          initial_scale=0.5, layer_norm=request.param)
    return build_model(config, 0).eval()


@pytest.fixture
def masked(tiny_grammar):
    rng = np.random.default_rng(0)
    sentences = Ragged.from_rows([rng.integers(0, tiny_grammar.n_words, n) for n in (4, 7, 1, 9, 5)], np.uint16)
    return masked_sentences(tiny_grammar, sentences, Masking(0.4), seed=0, n=5, max_length=10)


def hidden_and_attention(model):
    ids = torch.tensor([[0, 5, 6, 7, 5, 2]])
    model.set_attn_implementation("eager")
    output = model(ids, output_hidden_states=True, output_attentions=True)
    return output.hidden_states, output.attentions


def test_uniform_attention_is_that_of_one_layer_alone(model):
    before, after = (hidden_and_attention(m)[1] for m in (model, with_uniform_attention(model, 2)))
    assert torch.equal(before[0], after[0])
    torch.testing.assert_close(after[1], torch.full_like(after[1], 1 / 6))
    assert not torch.allclose(before[1], after[1], atol=1e-3)


def test_what_a_layer_that_is_left_out_would_have_read_the_next_one_reads(model):
    whole, without = hidden_and_attention(model)[0], hidden_and_attention(without_layer(model, 3))[0]
    if model.config.model_type == "roberta":  # with layer norm first, what is shown of the last layer is normalised
        torch.testing.assert_close(without[2], whole[2])
    assert len(model.base_model.encoder.layer) == 3
    assert len(without_layer(model, 1).base_model.encoder.layer) == 2


def test_what_is_lost_is_the_loss_of_the_changed_model(model, masked):
    targets = [s.words[s.positions] for s in masked]

    def loss(changed):
        found = dict(predictions(changed, masked, 16))
        return np.concatenate([-found[s][np.arange(len(t)), t] for s, t in enumerate(targets)]).mean()

    share, *lost = layer_use(model, masked, 3.0, 1.0, 16, model="A2L3", seed=4)
    assert (share.metric, share.layer, share.n) == ("share_of_way", None, sum(map(len, targets)))
    assert share.value == pytest.approx(100 * (3.0 - loss(model)) / 2)
    assert [(one.layer, one.group) for one in lost] == [
        (layer, name) for layer in (1, 2, 3) for name in ("uniform attention", "left out")]
    for one in lost:
        change = with_uniform_attention if one.group == "uniform attention" else without_layer
        assert one.value == pytest.approx(50 * (loss(change(model, one.layer)) - loss(model)), abs=1e-9)
    assert all(one.model == "A2L3" and one.seed == 4 for one in lost)
