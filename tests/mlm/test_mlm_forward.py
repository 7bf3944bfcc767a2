"""The flat forward pass against the model's own, in float64: states, loss and gradients, both places of the norm."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.data import MaskedCorpus
from pcfg_artifact.mlm.forward import MaskedLoss, encode, to_device
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.system.ragged import Ragged

N_WORDS, LONGEST = 40, 30


def make_model(layer_norm, dropout=0.0):
    config = build_config(parse_shape("A2L2"), n_words=N_WORDS, width=32, max_length=LONGEST, dropout=dropout,
                          layer_norm=layer_norm, initial_scale=0.2)
    return build_model(config, 0).double()


def make_corpus(batch_tokens, packing=None):
    rng = np.random.default_rng(0)
    sentences = Ragged.from_rows([rng.integers(0, N_WORDS, rng.integers(1, LONGEST)) for _ in range(80)], np.uint16)
    return MaskedCorpus(sentences, n_words=N_WORDS, masking=Masking(0.4), seed=3, batch_size=24,
                        batch_tokens=batch_tokens, max_length=LONGEST, packing=packing)


def rows_of(batch):
    """(padded input_ids (rows, longest), index of every real token in the flat array), row by row."""
    found, places, begin = [], [], 0
    for rows, width in batch.shapes:
        for row in range(rows):
            ids = batch.input_ids[begin + row * width:begin + (row + 1) * width]
            n = int((ids != tokens.PAD).sum())
            found.append(ids[:n])
            places.append(np.arange(n) + begin + row * width)
        begin += rows * width
    padded = np.full((len(found), max(map(len, found))), tokens.PAD)
    for row, ids in enumerate(found):
        padded[row, :len(ids)] = ids
    return torch.from_numpy(padded), np.concatenate(places)


@pytest.mark.parametrize("layer_norm", ["pre", "post"])
@pytest.mark.parametrize(("batch_tokens", "packing"), [(10_000, None), (400, None), (10_000, 16)])
def test_states_loss_and_gradients_are_the_models_own(layer_norm, batch_tokens, packing):
    model, twin = make_model(layer_norm).train(), make_model(layer_norm).train()
    for batch in make_corpus(batch_tokens, packing).step(0).batches:
        inputs, where, targets = to_device(batch, torch.device("cpu"))
        input_ids, places = rows_of(batch)
        is_token = input_ids != tokens.PAD
        hidden = twin.base_model(input_ids, attention_mask=is_token.long()).last_hidden_state[is_token]
        torch.testing.assert_close(encode(model, inputs)[places], hidden, rtol=1e-10, atol=1e-10)

        loss = MaskedLoss(model)(inputs, where, targets)
        labels = torch.full((len(batch.input_ids),), -100)
        labels[where] = targets
        expected = functional.cross_entropy(twin.lm_head(hidden), labels[places], reduction="sum")
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
        loss.backward()
        expected.backward()
    for (name, mine), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-10, msg=name)


def test_a_row_has_the_same_states_whatever_stands_beside_it():
    model = make_model("post").eval()
    batches = [make_corpus(batch_tokens).step(1).batches for batch_tokens in (40, 10_000)]
    states = []
    for some in batches:
        by_row = {}
        for batch in some:
            hidden, (_, places) = encode(model, to_device(batch, torch.device("cpu"))[0]), rows_of(batch)
            ids, hidden = batch.input_ids[places], hidden[places].detach()
            begins = np.flatnonzero(ids == tokens.BEGIN)
            by_row |= {tuple(row): h for row, h in zip(np.split(ids, begins[1:]), np.split(hidden.numpy(), begins[1:]),
                                                       strict=True)}
        states.append(by_row)
    assert len(batches[0]) > len(batches[1]) == 1
    assert states[0].keys() == states[1].keys()
    for row, hidden in states[0].items():
        np.testing.assert_allclose(hidden, states[1][row], rtol=1e-10, atol=1e-10)


def test_dropout_acts_in_training_alone():
    model = make_model("pre", dropout=0.3)
    (batch,) = make_corpus(10_000).step(0).batches
    inputs, _, _ = to_device(batch, torch.device("cpu"))
    model.train()
    assert not torch.equal(encode(model, inputs), encode(model, inputs))
    model.eval()
    assert torch.equal(encode(model, inputs), encode(model, inputs))
