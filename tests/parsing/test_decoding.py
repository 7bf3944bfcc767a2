"""Trees: Labelled Recall and Viterbi against all trees, baselines, and sentences without probability."""

import numpy as np
import pytest

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.parsing.decoding import (
    balanced,
    best_binary_tree,
    labelled_recall,
    labelled_tree,
    left_branching,
    parses,
    random_branching,
    right_branching,
    viterbi,
)
from pcfg_artifact.parsing.engine import inside_outside


def all_binary_trees(i: int, j: int):
    if j - i == 1:
        yield [(i, j)]
    for k in range(i + 1, j):
        for left in all_binary_trees(i, k):
            for right in all_binary_trees(k, j):
                yield [(i, j), *left, *right]


@pytest.mark.parametrize("seed", range(5))
def test_the_best_binary_tree_has_the_largest_sum_of_scores(seed):
    scores = np.random.default_rng(seed).random((8, 8))
    found = best_binary_tree(scores)
    assert found in list(all_binary_trees(0, 7))
    assert sum(scores[i, j] for i, j in found) == pytest.approx(
        max(sum(scores[i, j] for i, j in spans) for spans in all_binary_trees(0, 7)))


def test_equal_scores_give_the_right_branching_tree():
    for length in range(6):
        assert best_binary_tree(np.zeros((length + 1, length + 1))) == right_branching(length)


@pytest.mark.parametrize("length", [0, 1, 2, 5, 8])
def test_baselines_are_binary_trees(length):
    rng = np.random.default_rng(0)
    for spans in (right_branching(length), left_branching(length), balanced(length), random_branching(length, rng)):
        assert len(spans) == max(2 * length - 1, 0)
        assert spans in list(all_binary_trees(0, length)) or length == 0
    assert balanced(5)[:3] == [(0, 5), (0, 3), (0, 2)]


GRAMMAR = PCFG.from_rules(
    root={"S": 1.0}, binary=[("S", "S", "S", 0.3), ("S", "A", "B", 0.3), ("S", "S", "B", 0.1), ("S", "A", "S", 0.3)],
    lexical=[("A", "x", 0.6), ("A", "y", 0.4), ("B", "x", 0.1), ("B", "y", 0.9)])


def log_prob_of(tree) -> float:
    rules = {tuple(r): p for r, p in zip(GRAMMAR.binary.tolist(), GRAMMAR.binary_prob, strict=True)}
    words = {tuple(r): p for r, p in zip(GRAMMAR.lexical.tolist(), GRAMMAR.lexical_prob, strict=True)}
    index = GRAMMAR.nonterminal_index
    return sum(np.log(words[index[n.label], GRAMMAR.word_index[n.word]] if n.is_preterminal else
                      rules[index[n.label], index[n.children[0].label], index[n.children[1].label]])
               for n in tree.preorder())


def test_viterbi_finds_the_most_probable_of_many_sampled_trees():
    by_sentence: dict[tuple, set] = {}
    for tree in sample_trees(GRAMMAR, 3000, seed=0, max_length=7):
        by_sentence.setdefault(tuple(tree.words()), set()).add(tree)
    for words, trees in by_sentence.items():
        log_prob, best = viterbi(GRAMMAR, list(words))
        assert best.words() == list(words)
        assert log_prob_of(best) == pytest.approx(log_prob)
        assert log_prob >= max(map(log_prob_of, trees)) - 1e-12
        assert log_prob <= inside_outside(GRAMMAR, [list(words)])[0].log_prob + 1e-12


def test_viterbi_of_impossible_and_of_single_words():
    assert viterbi(GRAMMAR, ["x"]) == (-np.inf, None)
    assert viterbi(GRAMMAR, []) == (-np.inf, None)
    assert viterbi(GRAMMAR, ["z", "z"]) == (-np.inf, None)
    leaf = PCFG.from_rules(root={"A": 1.0}, binary=[], lexical=[("A", "x", 0.5), ("A", "y", 0.5)])
    log_prob, tree = viterbi(leaf, ["y"])
    assert (np.exp(log_prob), str(tree)) == (0.5, "(A y)")


def test_labels_of_a_labelled_recall_tree():
    chart = inside_outside(GRAMMAR, [["x", "y", "x", "y"]])[0]
    tree = labelled_tree(GRAMMAR, chart, ["x", "y", "x", "y"])
    assert str(tree) == "(S (S (A x) (B y)) (S (A x) (B y)))"
    assert sorted(tree.spans()) == sorted(labelled_recall(chart))
    nothing = inside_outside(GRAMMAR, [["z", "z"]])[0]
    assert str(labelled_tree(GRAMMAR, nothing, ["z", "z"])) == "(X (X z) (X z))"


def test_a_sentence_without_probability_is_tried_again_and_then_right_branching():
    """`rare` cannot stand where it does; as an unknown word it can.  Nothing helps two B in a row at the start."""
    grammar = PCFG.from_rules(
        root={"S": 1.0}, binary=[("S", "A", "B", 1.0)],
        lexical=[("A", "common", 0.5), ("A", "UNK-LC", 0.5), ("B", "rare", 1.0)],
        word_counts={"common": 500, "UNK-LC": 500, "rare": 7})
    sentences = [["common", "rare"], ["rare", "rare"], ["rare", "common"], []]
    found = list(parses(grammar, sentences))
    assert [parse.n_attempts for parse in found] == [1, 3, 3, 3]
    assert found[1].spans == right_branching(2)
    grammar = PCFG.from_rules(
        root={"S": 1.0}, binary=[("S", "A", "B", 1.0)],
        lexical=[("A", "common", 0.5), ("A", "UNK-LC", 0.5), ("B", "rare", 0.5), ("B", "UNK-LC", 0.5)],
        word_counts={"common": 500, "UNK-LC": 500, "rare": 7})
    assert [parse.n_attempts for parse in parses(grammar, [["rare", "rare"], ["common", "zzz"]])] == [2, 1]
