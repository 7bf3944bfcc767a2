"""Entropies and pairs of spans: against all trees of a sentence, and of a grammar."""

from itertools import product

import numpy as np
import pytest

from pcfg_artifact.errors import GrammarError, UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.engine import inside_outside, log_probabilities
from pcfg_artifact.parsing.forest import SpanEntropies, span_pairs, tree_entropy
from pcfg_artifact.parsing.leaves import sentence_leaves

TIGHT = 1e-10
SEEDS = range(12)


def world(random_grammar, all_trees, seed):
    """A grammar, a sentence, its trees with their probabilities given the sentence."""
    for other in range(seed, seed + 1000, 12):  # some grammars have no sentence of this length
        grammar = random_grammar(other, density=(0.2, 0.4, 0.6)[seed % 3])
        words = np.random.default_rng(other).integers(grammar.n_words, size=2 + seed % 4)
        trees = all_trees(grammar, sentence_leaves(grammar, words))
        if total := sum(weight for weight, _ in trees):
            return grammar, words, [(weight / total, nodes) for weight, nodes in trees if weight > 0]
    raise AssertionError("no sentence")


@pytest.mark.parametrize("seed", SEEDS)
def test_entropy_of_the_tree_of_a_sentence_equals_enumeration(random_grammar, all_trees, seed):
    grammar, words, trees = world(random_grammar, all_trees, seed)
    expected = -sum(p * np.log(p) for p, _ in trees)
    assert tree_entropy(grammar, words) == pytest.approx(expected, abs=TIGHT)


@pytest.mark.parametrize("seed", SEEDS)
def test_entropy_of_a_span_is_that_of_its_choice_where_it_is_a_node(random_grammar, all_trees, seed):
    grammar, words, trees = world(random_grammar, all_trees, seed)
    found = SpanEntropies.of(grammar, inside_outside(grammar, [words])[0])
    expected = np.zeros((len(words) + 1,) * 2)
    choices = {}  # node -> its children -> probability
    for p, nodes in trees:
        for node in (node for node in nodes if node[2] - node[1] > 1):
            children = [child for child in nodes if child[1] >= node[1] and child[2] <= node[2] and child != node]
            left = max((child for child in children if child[1] == node[1]), key=lambda child: child[2])
            right = min((child for child in children if child[2] == node[2]), key=lambda child: child[1])
            of_node = choices.setdefault(node, {})
            of_node[left, right] = of_node.get((left, right), 0.0) + p
    for (_, i, j), shares in choices.items():
        total = sum(shares.values())
        expected[i, j] -= sum(p * np.log(p / total) for p in shares.values())
    np.testing.assert_allclose(found.spans, expected, atol=TIGHT)


def test_entropy_of_a_sentence_without_probability_is_not_a_number(tiny_grammar):
    assert np.isnan([tree_entropy(tiny_grammar, ["eats"]), tree_entropy(tiny_grammar, [])]).all()


def test_entropy_of_a_grammar_equals_enumeration(all_trees):
    grammar = PCFG.from_rules(
        {"S": 0.8, "N": 0.2}, [("S", "NP", "V", 0.6), ("S", "N", "NP", 0.4), ("NP", "D", "N", 0.7),
                               ("NP", "N", "N", 0.3), ("NP", "D", "D", 0.0)],
        [("N", "1", 0.6), ("N", "2", 0.4), ("V", "1", 0.3), ("V", "3", 0.7), ("D", "2", 1.0)])
    probability = [weight for length in (1, 2, 3) for words in product(range(3), repeat=length)
                   for weight, _ in all_trees(grammar, sentence_leaves(grammar, np.array(words))) if weight > 0]
    assert sum(probability) == pytest.approx(1.0)
    assert tree_entropy(grammar) == pytest.approx(-sum(p * np.log(p) for p in probability), abs=TIGHT)


def test_entropy_of_an_endless_choice_has_a_closed_form(tiny_grammar):
    # S -> A S p | A A 1-p: the number of words less 2 is geometric; each word is fair, one bit.
    grammar = PCFG.from_rules({"S": 1.0}, [("S", "A", "S", 0.25), ("S", "A", "A", 0.75)],
                              [("A", "x", 0.5), ("A", "y", 0.5)])
    choice = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    assert tree_entropy(grammar) == pytest.approx(choice / 0.75 + (2 + 1 / 3) * np.log(2), abs=TIGHT)
    cut = PCFG.from_rules({"S": 1.0}, [("S", "A", "A", 0.75)], [("A", "x", 1.0)], is_proper=False)
    with pytest.raises(GrammarError, match="no entropy"):
        tree_entropy(cut)


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_of_spans_equal_enumeration(random_grammar, all_trees, seed):
    grammar, words, trees = world(random_grammar, all_trees, seed)
    joint = np.zeros((len(words) + 1,) * 4)
    for p, nodes in trees:
        for (_, i, j), (_, k, m) in product(nodes, nodes):
            joint[i, j, k, m] += p
    found = span_pairs(grammar, words)
    np.testing.assert_allclose(found.joint, joint, atol=TIGHT)
    np.testing.assert_allclose(found.joint, found.joint.transpose(2, 3, 0, 1), atol=TIGHT)
    spans = found.spans
    for (i, j), p in np.ndenumerate(spans):
        if p > 0:
            np.testing.assert_allclose(found.conditional[i, j], joint[i, j] / p, atol=TIGHT)
        else:
            assert np.isnan(found.conditional[i, j]).all()
            assert not joint[i, j].any()


def test_pairs_of_labelled_spans_are_probabilities_with_constraints(random_grammar, all_trees):
    grammar, words, trees = world(random_grammar, all_trees, 3)
    names = grammar.nonterminals
    expected = {}
    for p, nodes in trees:
        inner = [(i, j, names[a]) for a, i, j in nodes]
        for pair in product(inner, inner):
            expected[pair] = expected.get(pair, 0.0) + p
    pairs = [pair for pair in expected if pair[0] != pair[1]][::3]
    whole, *found = log_probabilities(grammar, [words] * (len(pairs) + 1),
                                      constraints=[{}, *({a: True, b: True} for a, b in pairs)])
    np.testing.assert_allclose(np.exp(np.array(found) - whole), [expected[pair] for pair in pairs], atol=TIGHT)


def test_pairs_of_a_sentence_without_probability_are_refused(tiny_grammar):
    with pytest.raises(UsageError, match="no probability"):
        span_pairs(tiny_grammar, ["eats"])
