"""The k best trees: against all trees of random sentences, in order, and against Viterbi's time on CRAFT."""

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.best_trees import each_kbest, kbest
from pcfg_artifact.parsing.decoding import viterbi
from pcfg_artifact.parsing.leaves import sentence_leaves
from pcfg_artifact.treebank.tree import Tree

TIGHT = 1e-11  # of log probabilities: sums of the same logarithms in another order
DISTINCT = 1e-9  # trees whose log probabilities are closer are equals, whose order means nothing
MOST_TREES = 3000  # of a sentence that is enumerated


def labelled(tree: Tree) -> frozenset[tuple[str, int, int]]:
    return frozenset(tree.labelled_spans())


def by_probability(grammar, trees):
    """(log probability, labelled spans) of enumerated trees, most probable first."""
    names = grammar.nonterminals
    found = [(float(np.log(weight)), frozenset((names[a], i, j) for a, i, j in nodes)) for weight, nodes in trees]
    return sorted(found, key=lambda tree: -tree[0])


def check_against(expected, found, k):
    """The k best of all trees, in order; among equals any order, and any of those that share the last place."""
    assert len(found) == min(k, len(expected))
    np.testing.assert_allclose([log for log, _ in found], [log for log, _ in expected[:k]], atol=TIGHT, rtol=0)
    assert all(a >= b for (a, _), (b, _) in pairwise(found))
    weight_of = {spans: log for log, spans in expected}
    assert len(weight_of) == len(expected)
    spans = [labelled(tree) for _, tree in found]
    assert len(set(spans)) == len(spans)
    for (log, _), tree in zip(found, spans, strict=True):
        assert weight_of[tree] == pytest.approx(log, abs=TIGHT)
    last = found[-1][0] if found else 0.0
    assert {spans for log, spans in expected if log > last + DISTINCT} <= set(spans)


def coarse(grammar: PCFG) -> PCFG:
    """The same rules with equal probabilities under every head: many trees are equally probable."""
    def even(heads, prob):
        return (prob > 0) / np.bincount(heads, prob > 0, minlength=grammar.n_nonterminals)[heads]

    return replace(grammar, binary_prob=even(grammar.binary[:, 0], grammar.binary_prob),
                   lexical_prob=even(grammar.lexical[:, 0], grammar.lexical_prob),
                   root=(grammar.root > 0) / (grammar.root > 0).sum())


def test_kbest_of_a_thousand_random_sentences_equals_enumeration_in_order(random_grammar, all_trees):
    n_sentences, n_ambiguous, n_tied, seed = 0, 0, 0, 0
    while n_sentences < 1000:
        seed += 1
        rng = np.random.default_rng(seed)
        grammar = random_grammar(seed, *rng.integers(1, 4, size=3), density=rng.choice([0.15, 0.25, 0.45]))
        grammar = coarse(grammar) if seed % 3 == 0 else grammar
        for length in (2, 3, 4, 5 if seed % 4 else 1):
            words = rng.integers(grammar.n_words, size=length)
            expected = by_probability(grammar, all_trees(grammar, sentence_leaves(grammar, words)))
            if len(expected) > MOST_TREES:
                continue
            k = int(rng.choice([1, 2, 7, 30, len(expected) + 1]))
            check_against(expected, kbest(grammar, [words], k)[0], k)
            n_sentences += 1
            n_ambiguous += len(expected) > 1
            n_tied += len(expected) > 1 and bool((np.diff([log for log, _ in expected[:k]]) > -DISTINCT).any())
    assert n_ambiguous > 250
    assert n_tied > 50


def test_the_order_of_two_trees_can_be_computed_by_hand():
    grammar = PCFG.from_rules({"S": 1.0}, [("S", "S", "S", 0.2), ("S", "A", "S", 0.3), ("S", "A", "A", 0.5)],
                              [("A", "1", 1.0)])
    (best, tree), (second, other) = kbest(grammar, [["1"] * 4], 5)[0]
    assert str(tree) == "(S (S (A 1) (A 1)) (S (A 1) (A 1)))"
    assert best == pytest.approx(np.log(0.2 * 0.5 * 0.5))
    assert str(other) == "(S (A 1) (S (A 1) (S (A 1) (A 1))))"
    assert second == pytest.approx(np.log(0.3 * 0.3 * 0.5))


def test_equals_come_in_the_same_order_each_time_and_k_only_cuts(random_grammar):
    grammar = coarse(random_grammar(4, 3, 3, 2, density=0.9))
    words = [0, 1, 1, 0, 1, 0]
    many = kbest(grammar, [words], 60)[0]
    assert many == kbest(grammar, [words], 60)[0]
    assert [log for log, _ in kbest(grammar, [words], 10)[0]] == pytest.approx([log for log, _ in many[:10]], abs=TIGHT)
    assert many[0][0] == pytest.approx(viterbi(grammar, words)[0], abs=TIGHT)


@pytest.mark.parametrize("seed", range(4))
def test_constrained_trees_are_the_best_of_those_that_keep_the_constraints(random_grammar, all_trees, seed):
    grammar = random_grammar(seed, density=0.35)
    words = np.random.default_rng(seed).integers(grammar.n_words, size=5)
    constraints = {(1, 3): True, (0, 4): False, (0, 5, grammar.interminals[seed % 3]): seed % 2 == 0}
    expected = [(log, spans) for log, spans in by_probability(grammar, all_trees(grammar, sentence_leaves(grammar,
                                                                                                          words)))
                if all((any(span[1:] == key[:2] and (len(key) == 2 or span[0] == key[2]) for span in spans)) == is_in
                       for key, is_in in constraints.items())]
    check_against(expected, kbest(grammar, [words], 40, [constraints])[0], 40)


def test_what_has_no_tree_has_no_best_ones(tiny_grammar):
    assert kbest(tiny_grammar, [["eats"], [], ["she", "unknown", "fish"]], 3) == [[], [], []]
    with pytest.raises(UsageError, match="k is 0"):
        next(each_kbest(tiny_grammar, [["she"]], 0))


@pytest.mark.craft
def test_a_hundred_trees_of_25_words_cost_at_most_five_times_viterbi(craft_treebank, craft_grammar):
    sentences = [tree.words() for tree in craft_treebank.trees if len(tree.words()) == 25][:12]

    def seconds(work):
        best = []
        for _ in range(5):
            begin = time.process_time()
            work()
            best.append(time.process_time() - begin)
        return min(best)

    kbest(craft_grammar, sentences[:1], 2)
    one = sum(seconds(lambda words=words: viterbi(craft_grammar, words)) for words in sentences)
    many = sum(seconds(lambda words=words: kbest(craft_grammar, [words], 100)) for words in sentences)
    assert many <= 5 * one, f"{many:.3f} s against {one:.3f} s"
