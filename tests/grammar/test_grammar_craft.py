"""The grammar of a real treebank: the properties that relative-frequency estimation must have."""

import numpy as np
import pytest

from pcfg_artifact.grammar.expectation import expected_counts, expected_length
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.treebank.binarise import binarise, unbinarise

pytestmark = pytest.mark.craft


@pytest.fixture(scope="module")
def grammar(craft_treebank):
    return learn_pcfg(craft_treebank.trees)


def test_every_cleaned_tree_survives_binarisation(craft_treebank):
    assert craft_treebank.n_trees == 30_830
    for tree in craft_treebank.trees:
        assert unbinarise(binarise(tree)) == tree


def test_rule_mass_is_one(grammar):
    assert np.abs(grammar.rule_mass() - 1).max() <= 1e-9
    assert abs(grammar.root.sum() - 1) <= 1e-9


def test_expected_length_is_the_mean_training_length(grammar, craft_treebank):
    mean = np.mean([len(tree.words()) for tree in craft_treebank.trees])
    assert expected_length(grammar) == pytest.approx(mean, rel=1e-6)


def test_expected_counts_are_the_training_counts(grammar, craft_treebank):
    np.testing.assert_allclose(expected_counts(grammar) * craft_treebank.n_trees, grammar.symbol_counts, rtol=1e-6)


def test_sizes_are_near_the_published_orientation(grammar):
    # From a random 29,327 of the 30,830 trees: 683 in-terminals, 454 pre-terminals, 8,328 words.
    assert 683 <= grammar.n_interminals <= 720
    assert 454 <= grammar.n_preterminals <= 475
    assert 8_328 <= grammar.n_words <= 8_900
