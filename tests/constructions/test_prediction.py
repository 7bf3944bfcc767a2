"""Theorem 3.3: masked words read from the last embeddings, against the probabilities of all strings of a length."""

from itertools import product

import numpy as np
import pytest
import torch

from pcfg_artifact.constructions.approximate_relative import ApproximateInsideOutside
from pcfg_artifact.constructions.hard import HardAttentionInsideOutside
from pcfg_artifact.constructions.relative import RelativeInsideOutside
from pcfg_artifact.parsing.decoding import best_binary_tree, labelled_recall
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.masking import masked_word_distribution

TOLERANCE = 1e-12  # absolute, on probabilities; measured 2e-16
LENGTH, N_WORDS = 5, 3
MODELS = (HardAttentionInsideOutside, RelativeInsideOutside)


@pytest.fixture
def language(random_grammar, textbook):
    """A grammar over three words, and the probability of every string of five words."""
    grammar = random_grammar(7, n_interminals=3, n_preterminals=4, n_words=N_WORDS, root="distribution")
    table = np.zeros((N_WORDS,) * LENGTH)
    for string in product(range(N_WORDS), repeat=LENGTH):
        inside, _ = textbook(grammar, [grammar.words[w] for w in string])
        table[string] = inside[0, LENGTH] @ grammar.root
    return grammar, table


def conditional(table, string, hidden, position):
    """Pr[word at position | the words that are not hidden], by adding up strings."""
    seen = tuple(slice(None) if i in hidden else w for i, w in enumerate(string))
    kept = sorted(hidden)
    marginal = table[seen].sum(axis=tuple(a for a, i in enumerate(kept) if i != position))
    return marginal / marginal.sum() if marginal.sum() > 0 else np.zeros(N_WORDS)


@pytest.mark.parametrize("model_class", MODELS)
def test_one_pass_predicts_every_word_from_the_others(language, model_class):
    grammar, table = language
    model = model_class(grammar, LENGTH)
    for string in list(product(range(N_WORDS), repeat=LENGTH))[::17]:
        found = model.word_distributions(model(np.array(string)))
        for i in range(LENGTH):
            assert np.abs(found[i] - conditional(table, string, {i}, i)).max() <= TOLERANCE


@pytest.mark.parametrize("model_class", MODELS)
def test_any_set_of_masks_gives_the_exact_conditional(language, model_class):
    grammar, table = language
    model = model_class(grammar, LENGTH + 1)
    string = (2, 0, 1, 1, 0)
    for n_masks in range(1, LENGTH + 1):
        for hidden in list(product(range(LENGTH), repeat=n_masks))[::5 ** n_masks // 7 + 1]:
            hidden = sorted(set(hidden))
            found = model.word_distributions(model(np.array(string), masked=hidden))
            engine = masked_word_distribution(grammar, np.array(string), hidden)
            for row, i in enumerate(hidden):
                assert np.abs(found[i] - conditional(table, string, set(hidden), i)).max() <= TOLERANCE
                assert np.abs(found[i] - engine[row]).max() <= TOLERANCE


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_corrupted_words_are_predicted_exactly_from_leaves_of_the_channel(language, rate):
    grammar, table = language
    model = RelativeInsideOutside(grammar, LENGTH)
    mask = N_WORDS
    # channel[v, o]: what is seen (a word or [MASK]) given the original; chosen: the same where a position is picked
    channel = np.vstack([(1 - 0.9 * rate) * np.eye(N_WORDS) + 0.1 * rate / N_WORDS, np.full(N_WORDS, 0.8 * rate)])
    chosen = np.vstack([0.1 * np.eye(N_WORDS) + 0.1 / N_WORDS, np.full(N_WORDS, 0.8)])
    emission = model.emission.numpy()
    for visible in ((0, mask, 2, 1, mask), (1, 1, 0, 2, 0), (mask,) * LENGTH):
        *_, last = model.steps_from_leaves([torch.from_numpy(channel[list(visible)] @ emission)])
        _, outside = model.read_charts(last[0])
        for i in range(LENGTH):
            weights = chosen[visible[i]] * (emission @ outside[i, i + 1, grammar.n_interminals:])
            joint = table.copy()
            for k in range(LENGTH):
                seen = chosen[visible[k]] if k == i else channel[visible[k]]
                joint = joint * seen.reshape([-1 if axis == k else 1 for axis in range(LENGTH)])
            exact = joint.sum(axis=tuple(k for k in range(LENGTH) if k != i))
            assert np.abs(weights / weights.sum() - exact / exact.sum()).max() <= TOLERANCE


def test_a_sum_over_all_nonterminals_in_the_denominator_is_wrong(language):
    grammar, table = language
    model = RelativeInsideOutside(grammar, LENGTH, typed=False)
    string = (2, 0, 1, 1, 0)
    _, outside = model.read_charts(model(np.array(string)))
    emission, n_i = model.emission.numpy(), grammar.n_interminals
    worst = max(np.abs(emission @ outside[i, i + 1, n_i:] / outside[i, i + 1].sum()
                       - conditional(table, string, {i}, i)).max() for i in range(LENGTH))
    assert worst > 1e-2
    right = model.word_distributions(model(np.array(string)))  # reads pre-terminals alone, also from formal charts
    assert all(np.abs(right[i] - conditional(table, string, {i}, i)).max() <= TOLERANCE for i in range(LENGTH))


def test_an_impossible_context_predicts_nothing(tiny_grammar):
    model = RelativeInsideOutside(tiny_grammar, 4)
    found = model.word_distributions(model(["eats", "eats", "she"]))
    assert found.shape == (3, tiny_grammar.n_words)
    np.testing.assert_allclose(found[0].sum(), 1.0)  # she|fish eats she
    assert (found[1:] == 0).all()


@pytest.mark.parametrize("model_class", [*MODELS, ApproximateInsideOutside])
def test_the_transformer_parses_as_inside_outside_does(random_grammar, random_sentence, model_class):
    """Few non-terminals with nothing left out is exact, so all three must agree with the engine."""
    grammar = random_grammar(3)
    options = {"n_interminals": 4, "n_preterminals": 5, "rank": None} if model_class is ApproximateInsideOutside else {}
    model = model_class(grammar, 6, **options)
    for n in range(2, 7):
        sentence = random_sentence(grammar, n)
        chart = inside_outside(grammar, [sentence], backend="reference")[0]
        marginals = model.read_marginals(model(sentence))
        np.testing.assert_allclose(marginals, chart.marginals, rtol=1e-11, atol=1e-15)
        assert best_binary_tree(marginals.max(axis=-1)) == labelled_recall(chart)
