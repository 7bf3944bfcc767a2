"""Causal models: the flat forward pass against GPT-2's own, next words as targets, and one process against two."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.data import NextWordCorpus
from pcfg_artifact.mlm.forward import to_device
from pcfg_artifact.mlm.gpt2 import NextWordLoss, build_causal_config, build_causal_model, causal_states
from pcfg_artifact.mlm.model import count_parameters, parse_shape
from pcfg_artifact.system.ragged import Ragged

N_WORDS, LONGEST = 40, 30


def make_model(dropout=0.0):
    config = build_causal_config(parse_shape("C2L2"), n_words=N_WORDS, width=32, max_length=LONGEST, dropout=dropout,
                                 initial_scale=0.2)
    return build_causal_model(config, 0).double()


def make_corpus(batch_tokens, packing=None):
    rng = np.random.default_rng(0)
    sentences = Ragged.from_rows([rng.integers(0, N_WORDS, rng.integers(1, LONGEST)) for _ in range(80)], np.uint16)
    return NextWordCorpus(sentences, seed=3, batch_size=24, batch_tokens=batch_tokens, max_length=LONGEST,
                          packing=packing)


def rows_of(batch):
    """Flat indices of the tokens of every row, padding left out."""
    begins = np.flatnonzero(batch.input_ids == tokens.BEGIN)
    parts = np.split(np.arange(len(batch.input_ids)), begins[1:])
    return [part[batch.input_ids[part] != tokens.PAD] for part in parts]


@pytest.mark.parametrize(("batch_tokens", "packing"), [(10_000, None), (400, None), (10_000, 16)])
def test_states_loss_and_gradients_are_the_models_own(batch_tokens, packing):
    """The twin reads one row at a time, without padding, and predicts each token from the one before."""
    model, twin = make_model().train(), make_model().train()
    for batch in make_corpus(batch_tokens, packing).step(0).batches:
        inputs, where, targets = to_device(batch, torch.device("cpu"))
        states = causal_states(model, inputs)
        expected = torch.zeros((), dtype=torch.float64)
        for row in rows_of(batch):
            ids = torch.from_numpy(batch.input_ids[row])[None]
            expected = expected + functional.cross_entropy(twin(ids).logits[0, :-1], ids[0, 1:], reduction="sum")
            torch.testing.assert_close(states[row], twin.transformer(ids).last_hidden_state[0], rtol=1e-10, atol=1e-10)
        loss = NextWordLoss(model)(inputs, where, targets)
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
        loss.backward()
        expected.backward()
    for (name, mine), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-10, msg=name)


def test_no_word_sees_what_comes_after_it():
    model = make_model().eval()
    ids = torch.tensor([[tokens.BEGIN, 7, 9, 11, tokens.END]])
    other = ids.clone()
    other[0, 3] = 20
    difference = (model(ids).logits - model(other).logits).abs().amax(dim=-1)[0]
    assert (difference[:3] == 0).all()
    assert (difference[3:] > 0).all()


@pytest.mark.parametrize("packing", [None, 16])
def test_every_word_and_every_end_is_predicted_once_an_epoch(packing):
    corpus = make_corpus(400, packing)
    batches = list(corpus.in_order("validation"))
    targets = np.concatenate([batch.targets for batch in batches])
    sentences = corpus.sentences
    assert np.bincount(targets, minlength=tokens.FIRST_WORD + N_WORDS).tolist() == np.bincount(
        np.concatenate([tokens.of_words(sentences.values.astype(int)), np.full(sentences.n_rows, tokens.END)]),
        minlength=tokens.FIRST_WORD + N_WORDS).tolist()
    for batch in batches:  # what is predicted stands one place after where it is predicted
        assert np.array_equal(batch.input_ids[batch.where + 1], batch.targets)


@pytest.mark.parametrize("world_size", [2, 5])
def test_processes_share_the_rows_of_a_step(world_size):
    corpus = make_corpus(400)
    alone = corpus.step(3)
    shares = [corpus.step(3, rank, world_size) for rank in range(world_size)]
    assert sum(share.n_predicted for share in shares) == alone.n_predicted

    def targets(batches):
        return sorted(target for batch in batches for target in batch.targets)

    assert targets(alone.batches) == targets(batch for share in shares for batch in share.batches)
    assert alone.n_predicted == len(targets(alone.batches))


def test_causal_and_masked_training_see_the_same_sentences_in_the_same_order():
    from pcfg_artifact.mlm.data import MaskedCorpus
    from pcfg_artifact.parsing.masks import Masking

    causal = make_corpus(400)
    masked = MaskedCorpus(causal.sentences, n_words=N_WORDS, masking=Masking(0.4), seed=3, batch_size=24,
                          batch_tokens=400, max_length=LONGEST)
    for step in (0, 5):
        assert np.array_equal(causal.rows_of(step)[0], masked.rows_of(step)[0])


def test_parameters_are_counted():
    model = make_model()
    assert count_parameters(model.config)[1] == sum(p.numel() for p in model.parameters())


def test_dropout_acts_in_training_alone():
    model = make_model(dropout=0.3)
    (batch,) = make_corpus(10_000).step(0).batches
    inputs, where, targets = to_device(batch, torch.device("cpu"))
    loss = NextWordLoss(model)
    model.train()
    assert loss(inputs, where, targets) != loss(inputs, where, targets)
    model.eval()
    assert loss(inputs, where, targets) == loss(inputs, where, targets)
    logits = model.lm_head(causal_states(model, inputs))[where]
    assert functional.cross_entropy(logits, targets, reduction="sum") == loss(inputs, where, targets)
