"""Draws of trees given a sentence, or given a length: chi-square tests against all trees."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.leaves import sentence_leaves
from pcfg_artifact.parsing.tree_draws import log_length_probabilities, sample_trees

N = 20_000
LEAST_EXPECTED = 10  # rarer trees are counted together
ALPHA = 1e-4  # seeds are fixed, so that this fails once in 10,000 changes of a stream

AMBIGUOUS = PCFG.from_rules(
    {"S": 0.7, "T": 0.3, "1": 0.0},
    [("S", "S", "S", 0.3), ("S", "T", "1", 0.2), ("S", "1", "2", 0.5), ("T", "1", "S", 0.25), ("T", "2", "2", 0.0),
     ("T", "1", "1", 0.75)],
    [("1", "1", 0.6), ("1", "2", 0.4), ("2", "2", 1.0), ("2", "3", 0.0)])
RARE = PCFG.from_rules({"S": 1.0}, [("S", "S", "S", 0.3), ("S", "A", "S", 0.3), ("S", "A", "A", 0.4)],
                       [("A", "w", 1e-300), ("A", "x", 1.0)])  # so that charts are done in log space


def trees_of(all_trees, grammar, words):
    """Probability of every tree of a sentence, by the labelled spans and the words."""
    names, found = grammar.nonterminals, {}
    for weight, nodes in all_trees(grammar, sentence_leaves(grammar, words)):
        if weight > 0:
            found[tuple(words), frozenset((names[a], i, j) for a, i, j in nodes)] = weight
    return found


def chi_square_p(drawn, probability):
    """p-value of draws of trees; each of them must be possible."""
    total = sum(probability.values())
    counts = dict.fromkeys(probability, 0)
    for tree in drawn:
        counts[tuple(tree.words()), frozenset(tree.labelled_spans())] += 1
    observed = np.array(list(counts.values()))
    expected = len(drawn) * np.array([p / total for p in probability.values()])
    large = expected >= LEAST_EXPECTED
    if not large.all():
        observed = np.append(observed[large], observed[~large].sum())
        expected = np.append(expected[large], expected[~large].sum())
    assert len(expected) > 1
    return chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1)


@pytest.mark.parametrize(("grammar", "words"), [
    (AMBIGUOUS, "11212"), (AMBIGUOUS, "221212"), (RARE, "xwxxx")])
def test_trees_given_a_sentence_pass_a_chi_square_test(all_trees, grammar, words):
    words = list(words)
    drawn = sample_trees(grammar, N, seed=5, given=words)
    assert chi_square_p(drawn, trees_of(all_trees, grammar, words)) > ALPHA


@pytest.mark.parametrize("seed", range(4))
def test_trees_of_random_grammars_given_a_sentence_pass_a_chi_square_test(random_grammar, all_trees, seed):
    for other in range(seed, 1000, 4):  # until a sentence is ambiguous
        grammar = random_grammar(other, density=0.5)
        words = [grammar.words[w] for w in np.random.default_rng(other).integers(grammar.n_words, size=4)]
        probability = trees_of(all_trees, grammar, words)
        if len(probability) > 1:
            break
    assert chi_square_p(sample_trees(grammar, 5_000, seed=seed, given=words), probability) > ALPHA


@pytest.mark.parametrize(("grammar", "length"), [(AMBIGUOUS, 4), (AMBIGUOUS, (2, 4)), (RARE, (3, 5))])
def test_draws_of_a_length_follow_the_exact_conditional_distribution(all_trees, grammar, length):
    low, high = (length, length) if isinstance(length, int) else length
    probability = {}
    for n in range(low, high + 1):
        for words in product(grammar.words, repeat=n):
            probability |= trees_of(all_trees, grammar, words)
    drawn = sample_trees(grammar, N, seed=3, length=length)
    assert chi_square_p(drawn, probability) > ALPHA
    assert set(drawn.tokens.lengths.tolist()) == set(range(low, high + 1))
    total = np.logaddexp.reduce(np.logaddexp.reduce(
        np.log(np.maximum(grammar.root, 1e-320)) + log_length_probabilities(grammar, high)[low:]))
    assert total == pytest.approx(np.log(sum(probability.values())), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_lengths_of_random_grammars_have_the_probability_of_all_their_sentences(random_grammar, all_trees, seed):
    grammar = random_grammar(seed, n_words=2, density=0.3)
    log_yield = log_length_probabilities(grammar, 4)
    for n in range(1, 5):
        by_root = np.zeros(grammar.n_nonterminals)
        for words in product(range(grammar.n_words), repeat=n):
            for weight, nodes in all_trees(grammar, sentence_leaves(grammar, np.array(words))):
                by_root[nodes[0][0]] += weight
        np.testing.assert_allclose(grammar.root * np.exp(log_yield[n]), by_root, rtol=1e-12, atol=1e-300)


def test_lengths_that_are_very_rare_are_drawn_too():
    grammar = PCFG.from_rules({"S": 1.0}, [("S", "A", "S", 1e-6), ("S", "A", "A", 1 - 1e-6)], [("A", "x", 1.0)])
    assert log_length_probabilities(grammar, 400)[400, 0] == pytest.approx(398 * np.log(1e-6), rel=1e-9)
    (tree,) = sample_trees(grammar, 1, length=400)
    assert len(tree.words()) == 400


def test_a_grammar_whose_sentences_never_end_still_has_sentences_of_a_length(all_trees):
    endless = PCFG.from_rules({"S": 1.0}, [("S", "S", "S", 0.6), ("S", "A", "A", 0.4)], [("A", "x", 1.0)])
    assert chi_square_p(sample_trees(endless, 3_000, length=8), trees_of(all_trees, endless, ["x"] * 8)) > ALPHA


@pytest.mark.parametrize("how", [{"given": ["1", "1", "2", "1", "2"]}, {"length": (2, 6)}])
def test_any_block_drawn_alone_is_the_same(how):
    many, few = sample_trees(AMBIGUOUS, 60, seed=9, **how), sample_trees(AMBIGUOUS, 20, seed=9, **how)
    assert list(many)[:20] == list(few)
    assert list(many) != list(sample_trees(AMBIGUOUS, 60, seed=10, **how))
    tokens = many.tokens
    assert [tree.words() for tree in many] == [[AMBIGUOUS.words[w] for w in tokens.row(s)] for s in range(60)]


def test_what_cannot_be_drawn_is_refused():
    for how, message in (({"given": ["3"]}, "no probability"), ({"given": []}, "no probability"),
                         ({"length": 1}, "no sentence of the grammar has 1 words"), ({"length": (3, 2)}, "3 to 2"),
                         ({"length": 3, "max_length": 3}, "choose one"), ({"length": 10**9}, "GB")):
        with pytest.raises(UsageError, match=message):
            sample_trees(AMBIGUOUS, 1, **how)
