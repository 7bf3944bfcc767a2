"""Running from a layer on, against the model's own forward pass; and a model that is made to use a span."""

import numpy as np
import pytest
import torch

from pcfg_artifact.interventions.run_from_layer import layer_states, log_probs_above
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.evaluation import predictions
from pcfg_artifact.mlm.exact_comparison import MaskedSentence
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape

N_WORDS = 11


def some_sentences(rng) -> list[MaskedSentence]:
    found = []
    for s, length in enumerate((5, 8, 5, 2, 8)):
        words = rng.integers(N_WORDS, size=length)
        seen = words.copy()
        seen[length // 2] = -1
        found.append(MaskedSentence(s, words, seen, np.array([length // 2])))
    return found


@pytest.fixture(scope="module", params=["pre", "post"])
def model(request):
    shape = build_config(parse_shape("A2L3"), n_words=N_WORDS, width=16, max_length=20, dropout=0.1, initial_scale=0.3,
                         layer_norm=request.param)
    return build_model(shape, seed=0).eval()


def test_states_of_every_layer_are_those_of_transformers(model):
    sentences = some_sentences(np.random.default_rng(0))
    by_layer = [layer_states(model, sentences, layer) for layer in range(4)]
    for s, one in enumerate(sentences):
        ids = np.concatenate([[tokens.BEGIN], tokens.of_words(one.seen), [tokens.END]])
        with torch.no_grad():
            own = model.base_model(torch.from_numpy(ids)[None], output_hidden_states=True).hidden_states
        assert all(states[s].shape == (len(one.words) + 2, 16) for states in by_layer)
        for layer in range(3):  # the last is normed there
            np.testing.assert_allclose(by_layer[layer][s], own[layer][0], atol=1e-5)


def test_unchanged_states_give_what_the_model_says(model):
    sentences = some_sentences(np.random.default_rng(1))
    own = dict(predictions(model, sentences, 200))
    for layer in range(4):
        for s, states in enumerate(layer_states(model, sentences, layer)):
            said = log_probs_above(model, layer, np.repeat(states[None], 70, axis=0), sentences[s].positions)
            assert said.shape == (70, 1, N_WORDS)
            np.testing.assert_allclose(said, np.repeat(own[s][None], 70, axis=0), atol=1e-5)


def test_after_the_last_layer_a_moved_state_reaches_no_other_word(model):
    one = some_sentences(np.random.default_rng(2))[1]
    for layer, is_heard in ((2, True), (3, False)):
        states = layer_states(model, [one], layer)[0][None]
        moved = states.copy()
        moved[0, 1] = -moved[0, 1]
        change = log_probs_above(model, layer, moved, one.positions) - log_probs_above(
            model, layer, states, one.positions)
        assert (np.abs(change).max() > 1e-4) == is_heard
