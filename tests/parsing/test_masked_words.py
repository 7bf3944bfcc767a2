"""Masked-word prediction against enumeration of all strings, and against ratios of sentence probabilities."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.engine import EngineOptions, inside_outside
from pcfg_artifact.parsing.masking import (
    hidden_words,
    masked_log_probs,
    masked_word_distribution,
    one_mask_log_probs,
    perplexity,
    word_distributions,
)
from pcfg_artifact.parsing.masks import KEPT_SHARE, MASK_SHARE, RANDOM_SHARE, Masking

EXACT = 1e-12  # sums of a few hundred products in float64
LENGTH = 4


def string_probabilities(grammar: PCFG, length: int) -> dict[tuple[int, ...], float]:
    """Probability of every string of one length."""
    strings = list(product(range(grammar.n_words), repeat=length))
    charts = inside_outside(grammar, [np.array(string) for string in strings], backend="reference")
    return {string: np.exp(chart.log_prob) for string, chart in zip(strings, charts, strict=True)}


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), masked=st.sets(st.integers(0, LENGTH - 1), min_size=1))
def test_any_set_of_masks_equals_enumeration_of_all_strings(random_grammar, is_left_out, engine, seed, masked):
    if is_left_out(engine, seed):
        return
    grammar = random_grammar(seed, 2, 2, 3, 0.5)
    strings = string_probabilities(grammar, LENGTH)
    words = np.random.default_rng(seed).integers(grammar.n_words, size=LENGTH)
    masked = sorted(masked)
    expected = np.zeros((len(masked), grammar.n_words))
    for string, probability in strings.items():
        if all(string[t] == words[t] for t in range(LENGTH) if t not in masked):
            for row, t in enumerate(masked):
                expected[row, string[t]] += probability
    total = expected.sum(axis=1, keepdims=True)
    expected = np.divide(expected, total, out=np.zeros_like(expected), where=total > 0)
    found = masked_word_distribution(grammar, words, masked, EngineOptions(backend=engine))
    np.testing.assert_allclose(found, expected, rtol=0, atol=EXACT)
    if total.all():
        np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=EXACT)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_one_pass_predicts_every_word_from_the_others(random_grammar, is_left_out, engine, seed):
    if is_left_out(engine, seed):
        return
    grammar = random_grammar(seed, 3, 3, 3, 0.5)
    words = np.random.default_rng(seed).integers(grammar.n_words, size=6)
    options = EngineOptions(backend=engine)
    alone = np.concatenate([masked_word_distribution(grammar, words, [t], options) for t in range(6)])
    chart = inside_outside(grammar, [words], backend=engine, outside="full")[0]
    np.testing.assert_allclose(word_distributions(grammar, chart), alone, rtol=0, atol=EXACT)
    with np.errstate(divide="ignore"):
        expected = np.log(alone[np.arange(6), words])
    np.testing.assert_allclose(next(one_mask_log_probs(grammar, [words], options)), expected, rtol=0, atol=1e-9)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 1000), rate=st.sampled_from([0.3, 0.9]), corruption=st.sampled_from(["mask", "80/10/10"]))
def test_corrupted_sentences_equal_bayes_rule_over_all_strings(random_grammar, seed, rate, corruption):
    """P(word t | what is seen, t was selected) by summing over every string that could have been there."""
    grammar, masking = random_grammar(seed, 2, 2, 3, 0.7), Masking(rate, corruption)
    strings = string_probabilities(grammar, LENGTH)
    assume(max(strings.values()) > 0)  # some grammars have no string of this length: nothing to condition on
    sentence = np.array(max(strings, key=strings.get))
    words, seen, positions = hidden_words(grammar, sentence, masking, seed, index=0)
    uniform, kept = (RANDOM_SHARE / grammar.n_words, KEPT_SHARE) if corruption != "mask" else (0.0, 0.0)
    hidden = MASK_SHARE if corruption != "mask" else 1.0

    def selected(shown: int, word: int) -> float:
        return hidden if shown < 0 else uniform + kept * (shown == word)

    def channel(shown: int, word: int) -> float:
        return rate * selected(shown, word) + (1 - rate) * (shown == word)

    found = next(masked_log_probs(grammar, [sentence], masking, seed))
    assert len(found) == len(positions)
    for t, log_prob in zip(positions, found, strict=True):
        weight = np.zeros(grammar.n_words)
        for string, probability in strings.items():
            others = np.prod([channel(seen[u], string[u]) for u in range(LENGTH) if u != t])
            weight[string[t]] += probability * others * selected(seen[t], string[t])
        assert np.exp(log_prob) == pytest.approx(weight[words[t]] / weight.sum(), rel=1e-9)


def test_an_impossible_context_gives_zeros(tiny_grammar):
    assert not masked_word_distribution(tiny_grammar, ["eats", "x", "eats"], [1]).any()
    assert not masked_word_distribution(tiny_grammar, ["she", "nowhere", "x"], [2]).any()
    assert masked_word_distribution(tiny_grammar, ["she", "eats", "x"], []).shape == (0, tiny_grammar.n_words)


def test_the_word_under_the_mask_is_ignored(tiny_grammar):
    found = [masked_word_distribution(tiny_grammar, ["she", word, "fish"], [1]) for word in ("eats", "she", "nowhere")]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert dict(zip(tiny_grammar.words, found[0][0], strict=True)) == pytest.approx(
        {"she": 0.0, "fish": 0.4, "eats": 0.6})


def test_positions_outside_the_sentence_are_refused(tiny_grammar):
    with pytest.raises(UsageError, match="masked position 3 is outside the sentence; expected 0 to 2"):
        masked_word_distribution(tiny_grammar, ["she", "eats", "fish"], [3])
    with pytest.raises(UsageError, match="masked position -1"):
        masked_word_distribution(tiny_grammar, ["she", "eats", "fish"], [-1])


def test_perplexity_averages_over_words_not_over_sentences():
    assert perplexity([np.log([0.5]), np.log([0.125, 0.125])]) == pytest.approx(2 ** (7 / 3))
    assert np.isnan(perplexity([]))
    assert perplexity([np.array([-np.inf])]) == np.inf


def test_masks_depend_on_seed_and_number_of_the_sentence_only(random_grammar):
    grammar, masking = random_grammar(1, 2, 2, 3), Masking(0.5)
    words = np.zeros(40, int)
    first = hidden_words(grammar, words, masking, 0, 7)[2]
    np.testing.assert_array_equal(first, hidden_words(grammar, words, masking, 0, 7)[2])
    assert not np.array_equal(first, hidden_words(grammar, words, masking, 0, 8)[2])
    assert not np.array_equal(first, hidden_words(grammar, words, masking, 1, 7)[2])
    chosen = list(masked_log_probs(grammar, [words[:5]], masking, 0, indices=[7]))
    assert len(chosen[0]) == (first < 5).sum()


@pytest.mark.craft
def test_one_mask_equals_the_ratio_of_sentence_probabilities_on_craft(craft_grammar, craft_treebank):
    from pcfg_artifact.treebank.splits import split

    sentence = next(tree.words() for tree in split(craft_treebank).test if 8 <= len(tree.words()) <= 12)
    ids = craft_grammar.encode(sentence)
    found = word_distributions(craft_grammar, inside_outside(craft_grammar, [ids], outside="full")[0])
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    t = len(ids) // 2
    likely = np.argsort(-found[t])[:200]
    replaced = [np.concatenate([ids[:t], [word], ids[t + 1:]]) for word in likely]
    probabilities = np.exp([chart.log_prob for chart in inside_outside(craft_grammar, replaced)])
    np.testing.assert_allclose(probabilities / probabilities[0], found[t, likely] / found[t, likely[0]], rtol=1e-9)
