"""A structured start: neighbours tell words apart, near positions are alike, attention prefers what is alike."""

import numpy as np
import pytest
import torch

from pcfg_artifact.mlm import initialisation, neighbours
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.system.ragged import Ragged

SENTENCES = Ragged.from_rows([np.array(row) for row in ([0, 1, 2], [2], [], [1, 2])], np.uint16)


def grammar_like(n=4000):
    """Sentences `determiner noun verb`: words 0-3, 4-9 and 10-15."""
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, 4, n), rng.integers(4, 10, n), rng.integers(10, 16, n)], axis=1)
    return Ragged.from_rows(list(rows), np.uint16)


def test_neighbours_are_counted_with_the_edges_of_sentences():
    counts = neighbours.neighbour_counts(SENTENCES, 3).toarray()
    expected = np.zeros((3, 8), int)  # left: 0, 1, 2, edge; right: 0, 1, 2, edge
    for row in ([0, 1, 2], [2], [1, 2]):
        for word, left, right in zip(row, [3, *row[:-1]], [*row[1:], 3], strict=True):
            expected[word, left] += 1
            expected[word, 4 + right] += 1
    assert np.array_equal(counts, expected)
    assert neighbours.word_counts(SENTENCES, 3).tolist() == [1, 2, 3]


def test_pmi_is_that_of_the_table_of_counts():
    counts = neighbours.neighbour_counts(SENTENCES, 3)[:, :4]
    dense = counts.toarray()
    shares = dense / dense.sum()
    independent = shares.sum(axis=1, keepdims=True) * shares.sum(axis=0)
    pmi = np.log(np.divide(shares, independent, out=np.ones_like(shares), where=shares > 0))
    np.testing.assert_allclose(neighbours.positive_pmi(counts).toarray(), np.maximum(pmi, 0))
    assert (pmi < 0).any()


def test_words_of_one_class_have_like_vectors():
    vectors = neighbours.neighbour_vectors(grammar_like(), 16, 8, np.random.default_rng(0))
    assert (vectors**2).mean() == pytest.approx(1)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    kind = np.repeat([0, 1, 2], [4, 6, 6])
    same = kind[:, None] == kind
    assert (unit @ unit.T)[same].min() > 0.7
    assert (unit @ unit.T)[~same].max() < 0.1


def test_a_rotation_keeps_lengths_and_angles():
    rotation = neighbours.random_rotation(9, np.random.default_rng(1))
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(9), atol=1e-12)


def test_near_positions_are_more_alike_than_far_ones():
    waves = initialisation.sinusoids(60, 32)
    alike = waves @ waves[30]
    assert (np.diff(alike[30:36]) < 0).all()
    assert (waves**2).mean() == pytest.approx(0.5)
    assert initialisation.sinusoids(5, 7).shape == (5, 7)


def test_factors_have_the_product_that_was_asked_for():
    a, b = initialisation.factors((0.3, -0.4), 24, 24, np.random.default_rng(0))
    product = 0.3 * np.random.default_rng(0).standard_normal((24, 24)) / np.sqrt(24) - 0.4 * np.eye(24)
    np.testing.assert_allclose(a @ b.T, product, atol=1e-12)
    a, b = initialisation.factors((0.3, 0.9), 24, 6, np.random.default_rng(0))
    assert a.shape == b.shape == (24, 6)
    assert np.trace(a @ b.T) > 3


@pytest.mark.parametrize("layer_norm", ["pre", "post"])
def test_a_structured_start_depends_on_seed_and_sentences_and_keeps_the_rest(layer_norm):
    config = build_config(parse_shape("A2L2"), n_words=16, width=32, max_length=10, dropout=0.0, layer_norm=layer_norm)

    def started(seed, sentences):
        model = build_model(config, 0)
        initialisation.start_structured(model, sentences, seed)
        return dict(model.named_parameters())

    sentences = grammar_like()
    random = dict(build_model(config, 0).named_parameters())
    one, again, other_seed = (started(seed, sentences) for seed in (0, 0, 1))
    other_sentences = started(0, grammar_like(300))
    changed = {name for name in one if not torch.equal(one[name], random[name])}
    parts = ("word_embeddings", "position_embeddings", "query.weight", "key.weight", "value.weight",
             "attention.output.dense.weight", "lm_head.bias")
    assert changed == {name for name in one if any(part in name for part in parts)}
    assert all(torch.equal(one[name], again[name]) for name in one)
    words = next(name for name in one if "word_embeddings" in name)
    assert not torch.equal(one[words], other_seed[words])
    assert not torch.equal(one[words], other_sentences[words])
    assert torch.equal(one[words][:tokens.FIRST_WORD], random[words][:tokens.FIRST_WORD])


def test_an_untrained_model_says_the_unigram_distribution_where_nothing_is_known():
    shares = np.exp(initialisation.log_unigram(np.array([6, 3, 0])))
    assert shares[tokens.FIRST_WORD:tokens.FIRST_WORD + 2].tolist() == pytest.approx([6 / 9, 3 / 9])
    assert shares[:tokens.FIRST_WORD].tolist() == pytest.approx([0.5 / 9] * tokens.FIRST_WORD)
