"""Profiles for a given grammar: shorter constituents, symbols that no sentence has, nearest lengths and widths."""

import numpy as np
import pytest

from pcfg_artifact.errors import ConfigError, GrammarError
from pcfg_artifact.grammar.expectation import expected_counts
from pcfg_artifact.grammar.rulefile import from_text
from pcfg_artifact.grammar.zoo_grammars import zoo
from pcfg_artifact.run.given_grammar import begun_lower, constituent_widths, grammar_of_run, nearest, yield_lengths


def test_begun_lower_is_the_distribution_of_the_highest_short_constituents():
    grammar = zoo("cfg3b")
    lower = begun_lower(grammar, 24, 0.05)
    level = [grammar.nonterminal_index[name] for name in ("13", "14", "15")]
    counts = expected_counts(grammar)[level]
    assert np.allclose([lower.root[lower.nonterminal_index[name]] for name in ("13", "14", "15")],
                       counts / counts.sum(), rtol=1e-12)
    assert not set(lower.nonterminals) & {"16", "19", "22"}
    assert (yield_lengths(lower, 24) @ lower.root).sum() >= 0.05


def test_recursive_grammars_begin_lower_by_hand():
    """S is long, and enters two NP and one VP; an NP has two words, a VP one NP and a verb."""
    grammar = from_text("ROOT -> S 1\nS -> NP NP VP NP NP NP NP 1\nNP -> 'a' 'b' 0.5\nNP -> 'c' 'd' 0.5\n"
                        "VP -> 'v' NP 1\n")
    lower = begun_lower(grammar, 3, 0.5)
    assert {name: lower.root[lower.nonterminal_index[name]] for name in ("NP", "VP")} \
        == pytest.approx({"NP": 6 / 7, "VP": 1 / 7})
    with pytest.raises(GrammarError, match="no constituent"):
        begun_lower(grammar, 1, 0.5)


def test_symbols_without_sentences_are_left_out(tmp_path):
    path = tmp_path / "rules.txt"
    path.write_text("ROOT -> S 1\nS -> A A 1\nA -> 'a' 1\nLOST -> A B 1\nB -> 'b' 1\n")
    grammar = grammar_of_run(str(path), None)
    assert set(grammar.nonterminals) == {"S", "A"}
    assert grammar.words == ("a",)


def test_widths_are_those_of_constituents_inside_longer_sentences():
    # odd: an opening bracket and what it holds
    for name, widest, widths in (("rhm", 20, [2, 4]), ("dyck", 6, [2, 3, 4, 5, 6])):
        grammar = zoo(name)
        assert constituent_widths(grammar, yield_lengths(grammar, widest)).tolist() == widths


def test_nearest_takes_the_smaller_of_two_and_each_once():
    assert nearest((4, 8, 12), np.array([5, 6, 11])) == (5, 6, 11)
    assert nearest((3, 5), np.array([2, 4])) == (2, 4)
    assert nearest((4, 8, 12), np.array([8])) == (8,)
    with pytest.raises(ConfigError, match="too short"):
        nearest((2,), np.array([], dtype=int))
