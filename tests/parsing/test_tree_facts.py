"""What can be known of a tree word by word: against all trees of a finite grammar, and against real trees."""

from itertools import product

import numpy as np
import pytest

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.leaves import sentence_leaves
from pcfg_artifact.parsing.prefix.tree_facts import (
    facts_of_spans,
    facts_of_tree,
    facts_so_far,
    incremental_facts,
    settling,
)

TIGHT = 1e-9
FINITE = PCFG.from_rules(  # 2 to 7 words, ambiguous, with chains of left corners and a rule of 0
    root={"S": 0.9, "N": 0.1},
    binary=[("S", "NP", "VP", 0.7), ("S", "N", "VP", 0.3), ("NP", "D", "N", 0.5), ("NP", "N", "N", 0.2),
            ("NP", "Q", "N", 0.3), ("Q", "N", "D", 0.6), ("Q", "D", "D", 0.4), ("VP", "V", "N", 0.5),
            ("VP", "V", "NP", 0.3), ("VP", "V", "D", 0.0), ("VP", "X", "N", 0.2), ("X", "V", "N", 1.0)],
    lexical=[("N", "a", 0.6), ("N", "b", 0.4), ("V", "a", 0.3), ("V", "c", 0.7), ("D", "b", 1.0)])
RECURSIVE = PCFG.from_rules(
    root={"S": 1.0},
    binary=[("S", "NP", "VP", 0.8), ("S", "S", "VP", 0.2), ("NP", "D", "N", 0.6), ("NP", "NP", "PP", 0.4),
            ("PP", "P", "NP", 1.0), ("VP", "V", "NP", 0.7), ("VP", "VP", "PP", 0.3)],
    lexical=[("D", "the", 1.0), ("N", "dog", 0.5), ("N", "saw", 0.5), ("P", "with", 1.0), ("V", "saw", 1.0)])


@pytest.fixture(scope="module")
def finite_trees(all_trees):
    """Every tree of FINITE: sentence, weight, spans."""
    found = []
    for length in range(1, 8):
        for ids in product(range(FINITE.n_words), repeat=length):
            leaves = sentence_leaves(FINITE, np.array(ids))
            found += [(ids, weight, [(i, j) for _, i, j in nodes]) for weight, nodes in all_trees(FINITE, leaves)]
    assert sum(weight for _, weight, _ in found) == pytest.approx(1.0)
    return found


def expected_facts(trees, length, what):
    """The mean of a fact over trees that may be longer than the words read."""
    total = sum(weight for _, weight, _ in trees)
    return sum(weight / total * what(facts_of_tree(spans, len(ids)))[:length] for ids, weight, spans in trees)


def test_expectations_are_those_over_all_trees_that_begin_so(finite_trees):
    sentences = sorted({ids for ids, _, _ in finite_trees})[::7]
    assert len(sentences) > 20
    for sentence in sentences:
        found = incremental_facts(FINITE, sentence, delays=2)
        for t in range(1, len(sentence) + 1):
            same = [tree for tree in finite_trees if tree[0][:t] == sentence[:t]]
            n_open = expected_facts(same, t, lambda fact: fact.n_open)[t - 1]
            relative = expected_facts(same, t, lambda fact: fact.relative_depth)[t - 1]
            assert found.now.n_open[t - 1] == pytest.approx(n_open, abs=TIGHT)
            assert found.now.relative_depth[t - 1] == pytest.approx(relative, abs=TIGHT)
            total = sum(weight for _, weight, _ in same)
            for k in range(min(3, t)):
                for i in range(t - k):
                    wanted = sum(weight for _, weight, spans in same if (i, t - k) in spans) / total
                    assert found.later[k, i, t - k] == pytest.approx(wanted, abs=TIGHT)
        whole = [tree for tree in finite_trees if tree[0] == sentence]
        total = sum(weight for _, weight, _ in whole)
        np.testing.assert_allclose(found.whole.n_open, sum(
            weight / total * facts_of_tree(spans, len(sentence)).n_open for _, weight, spans in whole), atol=TIGHT)


def test_log_space_says_the_same(monkeypatch):
    from pcfg_artifact.parsing.cpu_kernels import semiring

    sentence = list(sample_trees(RECURSIVE, 3, seed=2, max_length=15).tokens.row(2))
    linear = facts_so_far(RECURSIVE, sentence)
    monkeypatch.setattr(semiring, "SMALLEST_RULE", 2.0)  # every grammar is then read with logarithms
    logarithms = facts_so_far(RECURSIVE, sentence)
    for name in ("spans", "n_open", "relative_depth"):
        np.testing.assert_allclose(getattr(logarithms, name), getattr(linear, name), atol=TIGHT)


def test_the_whole_sentence_is_inside_outside():
    for ids in sample_trees(RECURSIVE, 10, seed=0, max_length=14).tokens.rows():
        chart = inside_outside(RECURSIVE, [ids])[0]
        wanted = facts_of_spans(chart.marginals.sum(axis=-1))
        found = incremental_facts(RECURSIVE, ids, delays=0).whole
        np.testing.assert_allclose(found.spans, wanted.spans, atol=TIGHT)
        np.testing.assert_allclose(found.relative_depth, wanted.relative_depth, atol=TIGHT)


def test_facts_of_a_tree_are_counted_and_give_the_papers_relative_depths():
    from pcfg_artifact.probing.targets import relative_depths

    for tree in sample_trees(RECURSIVE, 20, seed=1, max_length=20):
        length = len(tree.words())
        facts = facts_of_tree(tree.spans(), length)
        for t in range(1, length + 1):
            assert facts.n_open[t - 1] == sum(i < t < j for i, j in tree.spans())
        assert facts.n_open[-1] == 0
        paper = relative_depths(tree)
        ours = facts.relative_depth[:-1].copy()
        if length > 1:
            ours[0] -= 1
        assert np.array_equal(ours, paper)


def test_a_tree_settles_as_it_is_read_and_more_evidence_never_loses_on_average():
    trees = sample_trees(RECURSIVE, 200, seed=5)  # of any length: a choice by length would know the end beforehand
    truth = [facts_of_tree(tree.spans(), len(tree.words())) for tree in trees]
    read = [incremental_facts(RECURSIVE, ids, delays=2) for ids in trees.tokens.rows()]
    found = list(settling(truth, read))
    assert len(found) == 4
    assert len({one.n for one in found}) == 1  # the same spans every time
    assert (np.diff([one.probability for one in found]) > -TIGHT).all()
    assert (np.diff([one.bits for one in found]) < TIGHT).all()
    assert found[0].bits > found[1].bits + 0.1
    assert all(0 < one.share <= 1 for one in found)
