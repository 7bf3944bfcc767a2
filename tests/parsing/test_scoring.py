"""Unlabelled F1 by hand."""

import math

import pytest

from pcfg_artifact.errors import UsageError
from pcfg_artifact.parsing.scoring import CONVENTIONS, gold_spans, span_f1
from pcfg_artifact.treebank.binarise import binarise
from pcfg_artifact.treebank.brackets import parse_trees

# ( a b c ) (d) .    with a unary chain over d
TREE = "(S (NP (DT a) (JJ b) (NN c)) (VP (VB d)) (. .))"


def tree(text: str):
    return parse_trees(text, "test")[0][0]


def test_spans_are_a_set_and_binarisation_adds_those_of_left_factored_nodes():
    assert gold_spans(tree(TREE), binary=False) == {(0, 5), (0, 3), (0, 1), (1, 2), (2, 3), (3, 4), (4, 5)}
    assert gold_spans(tree(TREE), binary=True) == gold_spans(tree(TREE), binary=False) | {(0, 2), (0, 4)}


@pytest.mark.parametrize("variant", ["vm", "novm"])
def test_binary_gold_is_the_tree_the_grammar_is_read_from(variant):
    assert set(binarise(tree(TREE), variant).spans()) == gold_spans(tree(TREE), binary=True)


@pytest.mark.parametrize(("convention", "expected"), [
    ("PB", 2 * 2 / (3 + 3)),  # gold (0,3) (0,2) (0,4); predicted (0,3) (0,4) (1,3)
    ("PBw", 2 * 3 / (4 + 4)),
    ("PN", 2 * 1 / (1 + 3)),  # gold (0,3)
    ("KIM", 2 * 1 / (1 + 2)),  # without the stop (0,4) is the whole sentence; predicted (0,3) (1,3)
    ("KIMw", 2 * 2 / (2 + 3)),
])
def test_each_convention_by_hand(convention, expected):
    predicted = [(0, 5), (0, 3), (0, 4), (1, 3), (0, 1), (1, 2)]
    score = span_f1([tree(TREE)], [predicted], convention)
    assert score.sentence == pytest.approx(100 * expected)
    assert score.corpus == pytest.approx(100 * expected)
    assert score.convention is CONVENTIONS[convention]


def test_sentence_f1_is_a_mean_and_corpus_f1_comes_from_sums():
    gold = [tree("(S (A (X a) (X b)) (X c))"), tree("(S (A (A (A (X a) (X b)) (X c)) (X d)) (X e))")]
    score = span_f1(gold, [[(1, 3)], [(0, 2), (0, 3), (0, 4)]], "PB")
    assert score.sentence == pytest.approx(50.0)
    assert score.corpus == pytest.approx(100 * 2 * 3 / (4 + 4))
    assert score.by_length == {2: pytest.approx(100 * 2 * 1 / 4), 3: 100.0, 4: 100.0}


def test_a_sentence_with_an_empty_side_is_left_out_of_sentence_f1_only():
    gold = [tree("(S (X a) (X b))"), tree("(S (A (X a) (X b)) (X c))")]
    score = span_f1(gold, [[(0, 2)], []], "PB")
    assert (score.n_sentences, score.n_skipped) == (0, 2)
    assert math.isnan(score.sentence)
    assert score.corpus == 0.0


def test_punctuation_is_dropped_by_projection():
    """A span that only punctuation sets apart becomes the span without it."""
    gold = [tree("(S (NP (NN a) (NN b)) (, ,) (VP (VB c) (NN d)))")]
    assert span_f1(gold, [[(0, 3), (2, 5)]], "KIM").sentence == 100.0


def test_unknown_conventions_and_unequal_lists_are_refused():
    with pytest.raises(UsageError, match="convention 'EVALB' is unknown; expected one of PB, PBw, KIM, KIMw, PN"):
        span_f1([], [], "EVALB")
    with pytest.raises(UsageError, match="1 gold trees but 0 predictions"):
        span_f1([tree(TREE)], [])


def test_the_convention_is_printed_in_words():
    assert str(CONVENTIONS["KIM"]) == ("KIM: punctuation dropped, n-ary gold, width 1 not counted, "
                                       "whole sentence not counted, empty skipped")


def test_corpus_f1_counts_skipped_sentences_except_where_it_stands_beside_accuracies():
    trees, _ = parse_trees("(S (NP (DT the) (NN dog)) (VP (VBZ eats) (NN meat)))\n(S (NN go) (. .))", "test")
    f1 = span_f1(trees, [{(0, 2), (2, 4)}, {(0, 2)}], "KIM")
    for counts_skipped, n_corpus in ((True, 2), (False, 1)):
        sentence, corpus = f1.metrics("parsers", model="IO", counts_skipped=counts_skipped)
        assert (sentence.metric, sentence.convention, sentence.value, sentence.n) == ("sentence_f1", "KIM", 100.0, 1)
        assert (corpus.metric, corpus.value, corpus.n) == ("corpus_f1", 100.0, n_corpus)
