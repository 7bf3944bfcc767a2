"""The approximate models against textbook recursions with the same symbols, transforms and sign rule."""

from dataclasses import replace

import numpy as np
import pytest

from pcfg_artifact.approximation.low_rank import approximate_charts
from pcfg_artifact.constructions.approximate_relative import ApproximateInsideOutside
from pcfg_artifact.errors import UsageError

TOLERANCE = 1e-12  # relative, every entry, no projection; measured 4e-16
SPANWISE = 1e-11  # per span, norm against norm; measured 8e-16 here, 5e-15 at 1,274 dimensions
L = 6
K, P = 3, 4  # |I~|, |P~|


@pytest.fixture
def grammar_with_counts(random_grammar):
    def draw(seed: int, **options):
        grammar = random_grammar(seed, n_interminals=5, n_preterminals=6, **options)
        counts = np.random.default_rng(seed).permutation(grammar.n_nonterminals) + 1
        return replace(grammar, symbol_counts=counts)
    return draw


@pytest.mark.parametrize("backend", ["dense", "structured"])
@pytest.mark.parametrize("root", ["single", "distribution"])
def test_few_nonterminals_equal_the_restricted_recursion(
        grammar_with_counts, textbook_approximate, random_sentence, relative_error, root, backend):
    for seed in range(3):
        grammar = grammar_with_counts(seed, root=root)
        model = ApproximateInsideOutside(grammar, L, K, P, rank=None, backend=backend)
        sentences = [random_sentence(grammar, n, seed) for n in range(1, L + 1)]
        for sentence, charts in zip(sentences, model.read_charts(model(sentences)), strict=True):
            oracle = textbook_approximate(grammar, sentence, model.interminals, model.preterminals)
            for found, expected in zip(charts, oracle, strict=True):
                assert relative_error(found, expected) <= TOLERANCE


@pytest.mark.parametrize("backend", ["dense", "structured"])
@pytest.mark.parametrize("rule", ["clip", "literal", "signed"])
def test_low_rank_equals_the_projected_recursion_of_the_same_sign_rule(
        grammar_with_counts, textbook_approximate, random_sentence, random_transforms, spanwise_error, rule, backend):
    n_negative = 0
    for seed in range(3):
        grammar = grammar_with_counts(seed, root="distribution")
        transforms = random_transforms(seed, 2, K, range(2, L))  # the widest spans use the transform of width L - 1
        model = ApproximateInsideOutside(grammar, L, K, P, 2, rule, transforms, backend=backend)
        sentences = [random_sentence(grammar, n, seed) for n in range(1, L + 1)]
        for sentence, charts in zip(sentences, model.read_charts(model(sentences)), strict=True):
            oracle = textbook_approximate(grammar, sentence, model.interminals, model.preterminals, transforms, rule)
            engine = approximate_charts(grammar, sentence, model.interminals, model.preterminals, transforms, rule)
            engine[0][..., np.setdiff1d(np.arange(5, 11), model.plan.leaf_symbols)] = 0  # the engine keeps every leaf
            for found, expected, fast in zip(charts, oracle, engine, strict=True):
                assert spanwise_error(found, expected) <= SPANWISE
                assert spanwise_error(found, fast) <= SPANWISE
            n_negative += int((oracle[0] < 0).sum())
    assert (n_negative > 0) == (rule != "clip")  # the rules were put to the test


def test_the_literal_model_is_not_the_unclipped_recursion(
        grammar_with_counts, textbook_approximate, random_sentence, random_transforms, spanwise_error):
    worst = 0.0
    for seed in range(3):
        grammar, transforms = grammar_with_counts(seed), random_transforms(seed, 2, K, range(2, L + 1))
        model = ApproximateInsideOutside(grammar, L, K, P, 2, "literal", transforms)
        sentence = random_sentence(grammar, L, seed)
        inside, _ = model.read_charts(model(sentence))
        unclipped, _ = textbook_approximate(grammar, sentence, model.interminals, model.preterminals, transforms,
                                            "signed")
        worst = max(worst, spanwise_error(inside, unclipped))
    assert worst > 1e-3


@pytest.mark.parametrize(("rank", "rule", "n_heads"), [(None, "clip", 3), (2, "clip", 2), (2, "literal", 2),
                                                       (2, "signed", 4)])
def test_sizes_are_those_verified_for_the_paper(grammar_with_counts, random_transforms, rank, rule, n_heads):
    grammar = grammar_with_counts(1)
    transforms = None if rank is None else random_transforms(1, rank, K, [2])
    model = ApproximateInsideOutside(grammar, L, K, P, rank, rule, transforms, backend="dense")
    kept = grammar.binary[np.isin(grammar.binary[:, 0], model.interminals), 1:]
    n_leaves = len(set(kept[kept >= grammar.n_interminals].tolist()))
    assert model.embedding_dim == n_leaves + 2 * (L - 1) * K + P + 1
    assert model.n_layers == 2 * L - 2 + -(-P // (rank or K))
    assert model.n_heads == max(sum(len(h.query) for h in layer.heads) for layer in model.layers) == n_heads
    assert all(h.query.shape[1:] == (model.embedding_dim,) * 2 for layer in model.layers for h in layer.heads)


def test_full_rank_is_no_projection(grammar_with_counts, random_sentence):
    grammar = grammar_with_counts(2)
    sentence = random_sentence(grammar, L)
    few = ApproximateInsideOutside(grammar, L, K, P, rank=None)
    full = ApproximateInsideOutside(grammar, L, K, P, rank=K)
    for a, b in zip(few.read_charts(few(sentence)), full.read_charts(full(sentence)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_without_transforms_they_are_learned_from_the_grammars_own_sentences(tiny_grammar):
    model = ApproximateInsideOutside(tiny_grammar, 5, 2, 2, rank=1)
    assert model.n_heads == 2  # the root layer has two, every other one
    assert np.isfinite(model.read_charts(model(["she", "eats", "fish"]))[0]).all()


@pytest.mark.parametrize(("options", "message"), [
    ({"rank": 4}, "rank 4 does not fit 3 in-terminals"),
    ({"rank": 2, "transforms": {2: np.eye(3)}}, "the transform of width 2 has shape \\(3, 3\\), expected \\(2, 3\\)"),
    ({"rank": 2, "sign_rule": "abs", "transforms": {2: np.eye(3)[:2]}}, "expected one of clip, literal, signed"),
    ({"n_interminals": 0}, "0 symbols were asked for")])
def test_what_does_not_fit_is_refused(grammar_with_counts, options, message):
    with pytest.raises(UsageError, match=message):
        ApproximateInsideOutside(grammar_with_counts(0), L, **{"n_interminals": K, "n_preterminals": P, **options})
