import numpy as np
import pytest

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.treebank.brackets import parse_trees


def trees(*lines):
    return parse_trees("\n".join(lines), "test")[0]


def probabilities(grammar):
    names = grammar.nonterminals
    rules = {(names[a], names[b], names[c]): p
             for (a, b, c), p in zip(grammar.binary, grammar.binary_prob, strict=True)}
    return rules | {(names[a], grammar.words[w]): p
                    for (a, w), p in zip(grammar.lexical, grammar.lexical_prob, strict=True)}


def test_rules_are_relative_frequencies_of_the_binarised_trees():
    grammar = learn_pcfg(trees("(S (NP (D the) (N cat)) (V runs))", "(S (NP (D the) (N dog)) (V runs))",
                               "(S (P she) (V runs))", "(NP (D the) (N cat))"), variant="novm", cutoff=0)
    expected = {("S", "NP", "V"): 2 / 3, ("S", "P", "V"): 1 / 3, ("NP", "D", "N"): 1.0, ("D", "the"): 1.0,
                ("N", "cat"): 2 / 3, ("N", "dog"): 1 / 3, ("V", "runs"): 1.0, ("P", "she"): 1.0}
    assert probabilities(grammar) == pytest.approx(expected)
    assert dict(zip(grammar.nonterminals, grammar.root, strict=True))["S"] == 0.75


def test_parent_annotation_tells_positions_apart():
    grammar = learn_pcfg(trees("(S (NP (D the) (N cat)) (VP (V saw) (NP (D a) (N dog))))"), variant="vm", cutoff=0)
    assert set(grammar.interminals) == {"S", "NP^S", "VP^S", "NP^VP"}
    assert set(grammar.preterminals) == {"D^NP", "N^NP", "V^VP"}


def test_rare_words_become_signatures_and_counts_are_kept():
    grammar = learn_pcfg(trees("(S (N cats) (V run))", "(S (N cats) (V jumped))"), variant="novm", cutoff=1)
    assert dict(zip(grammar.words, grammar.word_counts, strict=True)) == {"cats": 2, "UNK-LC": 1, "UNK-LC-ed": 1}
    assert dict(zip(grammar.nonterminals, grammar.symbol_counts, strict=True)) == {"S": 2, "N": 2, "V": 2}


def test_symbols_and_words_are_numbered_by_falling_frequency():
    grammar = learn_pcfg(trees("(S (N a) (VP (V b) (N a)))", "(S (N c) (V b))"), variant="novm", cutoff=0)
    assert grammar.interminals == ("S", "VP")
    assert grammar.preterminals == ("N", "V")
    assert grammar.words == ("a", "b", "c")


def test_no_trees_is_an_error():
    with pytest.raises(GrammarError, match="no tree to learn from"):
        learn_pcfg([])


def test_a_one_word_tree_is_learned():
    grammar = learn_pcfg(trees("(FRAG (NN Abstract))"), cutoff=0)
    assert grammar.preterminals == ("FRAG+NN",)
    np.testing.assert_array_equal(grammar.root, [1.0])
