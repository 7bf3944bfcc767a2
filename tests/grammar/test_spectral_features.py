"""Node tables and features, by hand on two small trees."""

import numpy as np
import pytest

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.spectral_features import NONE, collect_nodes, inside_features, outside_features
from pcfg_artifact.treebank.tree import Tree


def leaf(label: str, word: str) -> Tree:
    return Tree(label, word=word)


# Preorder: S(0) D(1) V(2) V(3) N(4) | S(5) D(6) N(7): in the first tree S -> D X, X -> V N is written as S -> D V'.
FIRST = Tree("S", (leaf("D", "The"), Tree("X", (leaf("V", "runs"), leaf("N", "Dog")))))
SECOND = Tree("S", (Tree("X", (leaf("V", "runs"), leaf("N", "cat"))), leaf("D", "the")))
THIRD = Tree("S", (leaf("D", "The"), Tree("X", (leaf("V", "sees"), leaf("N", "dog")))))


@pytest.fixture(scope="module")
def learned():
    trees = [FIRST, SECOND, THIRD]
    grammar = learn_pcfg(trees, "novm", cutoff=0)
    return grammar, collect_nodes(trees, grammar, "novm")


def test_nodes_are_linked_in_preorder(learned):
    grammar, nodes = learned
    assert [grammar.nonterminals[a] for a in nodes.symbol] == list("SDXVN") + list("SXVND") + list("SDXVN")
    assert nodes.parent.tolist() == [NONE, 0, 0, 2, 2, NONE, 5, 6, 6, 5, NONE, 10, 10, 12, 12]
    assert nodes.left[:5].tolist() == [1, NONE, 3, NONE, NONE]
    assert nodes.right[:5].tolist() == [2, NONE, 4, NONE, NONE]
    assert nodes.is_right[:5].tolist() == [False, False, True, False, True]
    assert np.flatnonzero(nodes.is_root).tolist() == [0, 5, 10]


def test_rules_of_nodes_are_those_of_the_grammar(learned):
    grammar, nodes = learned
    counts = np.bincount(nodes.rule, minlength=len(grammar.binary) + len(grammar.lexical))
    heads = np.concatenate([grammar.binary[:, 0], grammar.lexical[:, 0]])
    prob = np.concatenate([grammar.binary_prob, grammar.lexical_prob])
    np.testing.assert_allclose(counts / np.bincount(nodes.symbol)[heads], prob)


def test_inside_features_are_rule_and_rule_with_one_child_expanded(learned):
    grammar, nodes = learned
    features = inside_features(nodes, grammar)
    first, second, third = features[[0, 5, 10]]
    assert first[0] == third[0]
    assert first[0] != second[0]
    assert first[1] == third[1]  # D expands to the same lower-cased word
    assert first[2] == third[2]  # X expands to V N in both
    x_first, x_third = features[2], features[12]
    assert x_first[0] == x_third[0]
    assert x_first[1] != x_third[1]  # runs, sees
    assert x_first[2] == x_third[2]  # Dog, dog
    assert features[4].tolist() == features[14].tolist()
    assert (features[4, 1:] == NONE).all()


def test_outside_features_are_paths_of_rules_and_sides(learned):
    grammar, nodes = learned
    features = outside_features(nodes, grammar)
    assert (features[[0, 5, 10], 0] == features[0, 0]).all()  # TOP
    assert (features[[0, 5, 10], 1:] == NONE).all()
    assert features[2].tolist() == features[12].tolist()
    assert features[2, 0] != features[6, 0]  # X on the right of D, and on its left
    assert features[2, 2] == NONE  # the path ends at the root
    assert features[3, 0] == features[7, 0]  # V under X -> V N
    assert features[3, 1] != features[7, 1]  # ... under S -> D X, under S -> X D
    assert features[3, 0] != features[4, 0]  # left and right of one rule


def test_no_two_symbols_share_a_feature(learned):
    grammar, nodes = learned
    for features in (inside_features(nodes, grammar), outside_features(nodes, grammar)):
        for feature in np.unique(features[features != NONE]):
            rows, columns = np.nonzero(features == feature)
            assert len(set(nodes.symbol[rows])) == 1
            assert len(set(columns)) == 1


def test_trees_with_other_rules_than_the_grammar_are_refused(learned):
    grammar, _ = learned
    for tree in (Tree("S", (leaf("D", "the"), leaf("D", "the"))), Tree("S", (leaf("D", "the"), leaf("Z", "the"))),
                 Tree("S", (leaf("D", "The"), Tree("X", (leaf("V", "the"), leaf("N", "dog")))))):
        with pytest.raises(GrammarError, match="a rule that the grammar lacks"):
            collect_nodes([tree], grammar, "novm")
