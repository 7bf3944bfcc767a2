import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.rulefile import from_text, to_text


def test_text_round_trip_is_exact(tiny_grammar):
    again = from_text(to_text(tiny_grammar))
    assert again.nonterminals == tiny_grammar.nonterminals
    assert again.words == tiny_grammar.words
    np.testing.assert_array_equal(again.binary_prob, tiny_grammar.binary_prob)
    np.testing.assert_array_equal(again.lexical_prob, tiny_grammar.lexical_prob)


@pytest.mark.parametrize("word", ["'", "''", "don't", "\\", "a b", "#", "->", "0.5", "'x'"])
def test_awkward_words_survive(word):
    grammar = PCFG.from_rules({"A": 1.0}, [], [("A", word, 1.0)])
    assert from_text(to_text(grammar)).words == (word,)


NAMES = (st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
         | st.text("'\"#\\->ROTxu0 \t", min_size=1, max_size=8))


@settings(max_examples=200, deadline=None)
@given(st.lists(NAMES, min_size=3, max_size=3, unique=True), NAMES)
@example(["''", "'", "#"], "'")
@example(["ROOT", "->", "0.5"], "0.5")
@example(["\ufeffS", "\u2028", '"'], "\r\n")
def test_every_name_of_a_symbol_or_word_survives(symbols, word):
    parent, left, right = symbols
    grammar = PCFG.from_rules({parent: 1.0}, [(parent, left, right, 1.0)], [(left, word, 1.0), (right, word, 1.0)])
    again = from_text(to_text(grammar))
    assert (again.interminals, again.preterminals, again.words) == ((parent,), (left, right), (word,))


def test_comments_and_blank_lines_are_passed_over():
    assert from_text("# mine\n\nROOT -> A 1\nA -> 'x' 1.0\n").words == ("x",)


@pytest.mark.parametrize("line", ["A B C", "A -> B", "'A' -> B 0.5", "A -> 'x' half", "->", "A -> B C D 2"])
def test_a_line_that_is_no_rule_is_named(line):
    with pytest.raises(GrammarError, match="mine.txt, line 2"):
        from_text(f"ROOT -> A 1.0\n{line}\n", "mine.txt")


def test_a_refusal_is_one_line_whatever_symbols_are_called():
    with pytest.raises(GrammarError) as refused:  # a unary rule, so that it is read as a written grammar
        from_text('ROOT -> S 1.0\nS -> "\\u2028" "\\nX" 1.0\n"\\u2028" -> T 1.0\nT -> \'a\' 1.0\n', "f.txt")
    assert str(refused.value).startswith("f.txt, line 2: '\\nX' in the rule `S -> '\\u2028' '\\nX'` heads no rule")
