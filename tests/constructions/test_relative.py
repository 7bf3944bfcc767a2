"""Theorem 3.2, and what Theorem 3.1 shares with it, against textbook Inside-Outside."""

import numpy as np
import pytest
import torch

from pcfg_artifact.constructions.hard import HardAttentionInsideOutside
from pcfg_artifact.constructions.relative import RelativeInsideOutside
from pcfg_artifact.errors import UsageError

TOLERANCE = 1e-12  # relative, every entry: sums of positive products in float64, measured 6e-16
L = 6
BACKENDS = ("dense", "structured")
of_both_theorems = pytest.mark.parametrize("theorem", [HardAttentionInsideOutside, RelativeInsideOutside])


@of_both_theorems
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("root", ["single", "distribution"])
def test_every_inside_and_outside_probability_of_every_length(
        random_grammar, textbook, random_sentence, relative_error, root, typed, backend, theorem):
    for seed in range(2):
        grammar = random_grammar(seed, root=root)
        model = theorem(grammar, L, typed=typed, backend=backend)
        sentences = [random_sentence(grammar, n, seed) for n in range(1, L + 1)]
        in_batch = model.read_charts(model(sentences))  # one instance, mixed lengths, padded
        for sentence, charts in zip(sentences, in_batch, strict=True):
            for found, alone, expected in zip(charts, model.read_charts(model(sentence)),
                                              textbook(grammar, sentence, typed=typed), strict=True):
                assert found.shape == (len(sentence) + 1, len(sentence) + 1, grammar.n_nonterminals)
                assert relative_error(found, expected) <= TOLERANCE
                assert relative_error(alone, expected) <= TOLERANCE


@pytest.mark.parametrize("bound", [1.0, 2.0**100])
def test_any_bound_above_all_probabilities_gives_the_same_charts(random_grammar, random_sentence, bound):
    grammar = random_grammar(5, root="distribution")
    sentence = random_sentence(grammar, L)
    expected = RelativeInsideOutside(grammar, L, bound=7.0)(sentence)
    assert torch.equal(RelativeInsideOutside(grammar, L, bound=bound)(sentence), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("theorem", "bound"), [(HardAttentionInsideOutside, 0.0), (RelativeInsideOutside, 1e-3)])
def test_a_bound_below_the_probabilities_opens_what_should_be_closed(
        random_grammar, random_sentence, textbook, relative_error, backend, theorem, bound):
    grammar = random_grammar(4)
    sentence = random_sentence(grammar, L)
    model = theorem(grammar, L, bound=bound, backend=backend)
    inside, _ = model.read_charts(model(sentence))
    assert relative_error(inside, textbook(grammar, sentence)[0]) > 1e-3


@of_both_theorems
@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_padding_stay_zero_and_change_nothing(random_grammar, random_sentence, backend, theorem):
    grammar = random_grammar(2)
    model = theorem(grammar, L, backend=backend)
    short, long = random_sentence(grammar, 3), random_sentence(grammar, L)
    batch, alone = model([short, long]), model(short)
    assert (batch[0, len(alone):] == 0).all()
    assert float((batch[0, :len(alone)] - alone).abs().max()) <= 1e-14
    assert float((batch[1] - model(long)).abs().max()) <= 1e-14


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [(4, 5), (6, 3), (1, 4)])
def test_sizes_are_those_of_the_theorem(random_grammar, seed, shape):
    n_interminals, n_preterminals = shape
    grammar = random_grammar(seed, n_interminals=n_interminals, n_preterminals=n_preterminals)
    n = n_interminals + n_preterminals
    for typed, n_heads in ((True, max(*shape, 2)), (False, n)):
        model = RelativeInsideOutside(grammar, L, typed=typed, backend="dense")
        assert model.n_layers == len(model.layers) == 2 * L - 1
        assert model.n_heads == max(sum(len(h.query) for h in layer.heads) for layer in model.layers) == n_heads
        assert model.embedding_dim == 2 * n * L + 1
        for layer in model.layers:
            for heads in layer.heads:
                assert heads.key.shape == (model.embedding_dim,) * 2
                assert heads.query.shape[1:] == heads.value.shape[1:] == (model.embedding_dim,) * 2
                assert heads.gate.shape[0] == 2 * L + 1
        in_offset_order = [layer.computes for layer in model.plan.layers]
        assert in_offset_order == [*(("inside", w) for w in range(2, L + 1)), ("root", None),
                                   *(("outside", w) for w in range(L - 1, 0, -1))]


def test_layers_are_functions_of_embeddings_alone(random_grammar, random_sentence):
    grammar = random_grammar(3)
    model = RelativeInsideOutside(grammar, L, backend="dense")
    *steps, last = model.steps(random_sentence(grammar, L))
    e = steps[0]
    for layer in model.layers:
        e = layer(e[None])[0]
    assert torch.equal(e, last)


def test_weights_are_buffers_and_no_parameter(random_grammar):
    model = RelativeInsideOutside(random_grammar(0), 4, backend="dense")
    assert not list(model.parameters())
    assert {b.dtype for b in model.buffers()} == {torch.float64}


def test_max_length_of_one_word(random_grammar, textbook):
    grammar = random_grammar(0, root="distribution")
    model = RelativeInsideOutside(grammar, 1)
    inside, outside = model.read_charts(model(["w1"]))
    expected = textbook(grammar, ["w1"])
    np.testing.assert_array_equal(inside, expected[0])
    np.testing.assert_array_equal(outside, expected[1])
    assert model.n_layers == 1


def test_a_word_that_nothing_emits_gives_no_probability(random_grammar):
    model = RelativeInsideOutside(random_grammar(0), L)
    embeddings = model(["w1", "never-seen", "w2"])
    inside, _ = model.read_charts(embeddings)
    assert (inside[0, 3] == 0).all()
    assert (model.read_marginals(embeddings) == 0).all()


@pytest.mark.parametrize(("sentence", "masked", "message"), [
    (["w0"] * (L + 1), None, "7 words was given to a construction for 1 to 6 words"),
    ([], None, "0 words"),
    (["w0", "w1"], [2], "masked positions \\[2\\] lie outside the sentence; expected 0 to 1")])
def test_what_does_not_fit_is_refused(random_grammar, sentence, masked, message):
    with pytest.raises(UsageError, match=message):
        RelativeInsideOutside(random_grammar(0), L)(sentence, masked)


def test_an_unknown_backend_is_refused(random_grammar):
    with pytest.raises(UsageError, match="expected one of auto, dense, structured"):
        RelativeInsideOutside(random_grammar(0), L, backend="sparse")
