import numpy as np
import pytest

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.expectation import expected_counts, expected_length, frequencies, spectral_radius
from pcfg_artifact.grammar.pcfg import PCFG


def test_expected_counts_by_hand(tiny_grammar):
    # VP -> V VP with 1/4: a geometric number of VPs, 4/3 on average; one V each; NPs: one subject, one object.
    np.testing.assert_allclose(expected_counts(tiny_grammar), [1, 4 / 3, 2, 4 / 3], rtol=1e-14)
    assert expected_length(tiny_grammar) == pytest.approx(10 / 3, rel=1e-14)
    assert spectral_radius(tiny_grammar) == pytest.approx(0.25)


def test_a_grammar_whose_trees_do_not_end_is_refused():
    grammar = PCFG.from_rules({"S": 1.0}, [("S", "S", "S", 0.5), ("S", "A", "A", 0.5)], [("A", "x", 1.0)])
    assert spectral_radius(grammar) == pytest.approx(1.0)
    with pytest.raises(GrammarError, match="spectral radius"):
        expected_length(grammar)


def test_frequencies_are_training_counts_where_there_are_any(tiny_grammar):
    np.testing.assert_allclose(frequencies(tiny_grammar), expected_counts(tiny_grammar))
    counted = PCFG.from_rules({"A": 1.0}, [], [("A", "x", 1.0)], symbol_counts={"A": 7})
    assert frequencies(counted).tolist() == [7]
