"""Correlations and F1 against scipy and an independent computation on span sets."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pcfg_artifact.parsing.scoring import span_f1
from pcfg_artifact.probing.probe_scores import accuracy, pearson, scatter_plot, spearman
from pcfg_artifact.probing.targets import decode, relative_depths
from pcfg_artifact.treebank.binarise import binarise
from pcfg_artifact.treebank.tree import Tree

# Few distinct values, so that ranks tie.
values = st.lists(st.tuples(st.integers(-5, 5), st.floats(-3, 3, width=16)), min_size=3, max_size=40)


@given(values)
@settings(max_examples=80, deadline=None)
def test_pearson_and_spearman_equal_scipy(pairs):
    x, y = np.array(pairs, float).T
    is_constant = len(set(x)) == 1 or len(set(y)) == 1
    assert math.isnan(spearman(x, y)) == is_constant
    assume(not is_constant and np.std(y) >= 1e-6)
    assert pearson(x, y) == pytest.approx(scipy.stats.pearsonr(x, y).statistic, abs=1e-9)
    assert spearman(x, y) == pytest.approx(scipy.stats.spearmanr(x, y).statistic, abs=1e-9)


def test_the_line_of_a_scatter_plot_is_scipys_regression_line():
    rng = np.random.default_rng(0)
    x = rng.random(50)
    y = 0.3 * x + rng.normal(size=50)
    fit = scipy.stats.linregress(x, y)
    drawn = scatter_plot(x, y, 10, 0)
    assert (drawn["slope"], drawn["intercept"]) == pytest.approx((fit.slope, fit.intercept))


def test_accuracy_counts_answers():
    assert accuracy(np.array([1, 2, 3, 3]), np.array([1, 0, 3, 3])) == 0.75


leaves = st.sampled_from(["NN", "VB", ","]).map(lambda tag: Tree(tag, word=tag.lower()))
trees = st.recursive(leaves, lambda t: st.lists(t, min_size=2, max_size=4).map(lambda c: Tree("X", tuple(c))),
                     max_leaves=12)


@given(st.lists(st.tuples(trees, st.lists(st.integers(-2, 2), min_size=12, max_size=12)), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_f1_of_decoded_labels_equals_set_arithmetic(items):
    """PB written out by hand: binarised gold, all tokens, neither words nor the whole sentence."""
    by_sentence, total_both, total = [], 0, 0
    predictions = []
    for tree, noise in items:
        n = len(tree.words())
        predicted = decode(relative_depths(binarise(tree)) + np.array(noise[:n - 1], int))
        predictions.append(predicted)
        gold, guess = ({(i, j) for i, j in spans if j - i > 1 and (i, j) != (0, n)}
                       for spans in (binarise(tree).spans(), predicted))
        total_both += len(gold & guess)
        total += len(gold) + len(guess)
        if gold and guess:
            by_sentence.append(2 * len(gold & guess) / (len(gold) + len(guess)))
    found = span_f1([tree for tree, _ in items], predictions, "PB")
    if by_sentence:
        assert found.sentence == pytest.approx(100 * np.mean(by_sentence))
        assert found.corpus == pytest.approx(100 * 2 * total_both / total)
    else:
        assert math.isnan(found.sentence)
