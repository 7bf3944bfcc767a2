"""Unlabelled F1 by hand; labelled scores against evalb's procedure written out, bracket by bracket; punctuation."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.decoding import node_marginals, viterbi
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.scoring import (
    CONVENTIONS,
    choose_rule,
    constituents,
    dropped_share,
    gold_spans,
    is_punctuation,
    labelled_f1,
    span_f1,
    treebank_tree,
)
from pcfg_artifact.treebank.binarise import VARIANTS, binarise
from pcfg_artifact.treebank.brackets import parse_trees
from pcfg_artifact.treebank.tree import Tree

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


# ---- labelled scores -----------------------------------------------------------------------------------------------


LABELS = st.sampled_from(["S", "NP", "VP", "ADVP", "PRT", "TOP"])
TAGS = st.sampled_from(["NN", "VB", ",", ".", "''", ":", "$"])


def trees_of(n_words):
    """Trees over n words, unary chains included."""
    leaf = st.builds(lambda tag: Tree(tag, (), "w"), TAGS)
    if n_words == 1:
        return st.builds(lambda labels, tree: chain(labels, tree), st.lists(LABELS, max_size=2), leaf)
    return st.integers(1, n_words - 1).flatmap(lambda k: st.builds(
        lambda labels, left, right: chain(labels, Tree("NP", (left, right))), st.lists(LABELS, max_size=2),
        trees_of(k), trees_of(n_words - k)))


def chain(labels, tree):
    for label in labels:
        tree = Tree(label, (tree,))
    return tree


PAIRS = st.integers(1, 6).flatmap(lambda n: st.tuples(trees_of(n), trees_of(n)))


def brackets(tree, gold_tags):
    """What evalb's parameter file asks for, by recursion: every bracket as a list, with words named by position."""
    found = []

    def visit(node, position):
        if node.word is not None:
            return [] if gold_tags[position] in {",", ":", "``", "''", ".", "-NONE-"} else [position], position + 1
        kept = []
        for child in node.children:
            words, position = visit(child, position)
            kept += words
        if kept and node.label != "TOP":
            found.append(("ADVP" if node.label == "PRT" else node.label, tuple(kept)))
        return kept, position

    visit(tree, 0)
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(PAIRS, min_size=1, max_size=4))
def test_labelled_scores_equal_those_of_brackets_crossed_off_one_by_one(pairs):
    gold, predicted = [a for a, _ in pairs], [b for _, b in pairs]
    right = n_gold = n_predicted = complete = tags = words = 0
    for a, b in pairs:
        expected, found = brackets(a, a.tags()), brackets(b, a.tags())
        left = list(expected)
        for bracket in found:
            if bracket in left:
                left.remove(bracket)
                right += 1
        complete += sorted(expected) == sorted(found)
        n_gold, n_predicted = n_gold + len(expected), n_predicted + len(found)
        kept = [(x, y) for x, y in zip(a.tags(), b.tags(), strict=True) if x not in {",", ":", "``", "''", "."}]
        words, tags = words + len(kept), tags + sum(x == y for x, y in kept)
    scores = labelled_f1(gold, predicted)
    for value, part, whole in ((scores.precision, right, n_predicted), (scores.recall, right, n_gold),
                               (scores.f1, 2 * right, n_gold + n_predicted), (scores.complete, complete, len(pairs)),
                               (scores.tagging, tags, words)):
        assert value == pytest.approx(100 * part / whole if whole else float("nan"), nan_ok=True)


def test_a_sentence_done_by_hand():
    [gold, guess], _ = parse_trees("(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sits) (PRT (RP down))) (. .)))\n"
                                   "(TOP (S (NP (DT the) (NN cat) (VBZ sits)) (ADVP (RB down)) (. .)))\n", "hand")
    dropped = [False] * 4 + [True]
    assert constituents(gold, dropped) == {("S", 0, 4): 1, ("NP", 0, 2): 1, ("VP", 2, 4): 1, ("ADVP", 3, 4): 1}
    scores = labelled_f1([gold], [guess])
    # S and ADVP = PRT are right: 2 of 4 gold brackets, 2 of 3 predicted; three of four tags
    assert (scores.recall, scores.precision, scores.tagging) == (50.0, pytest.approx(200 / 3), 75.0)
    assert (scores.f1, scores.complete) == (pytest.approx(400 / 7), 0.0)


@settings(max_examples=50, deadline=None)
@given(trees_of(5), st.sampled_from(VARIANTS))
def test_a_binarised_tree_is_brought_back_whole(tree, variant):
    assert treebank_tree(binarise(tree, variant)) == tree
    assert labelled_f1([tree], [tree], "form").complete == 100.0


def test_an_artificial_node_at_the_root_is_a_node_of_its_phrase():
    assert treebank_tree(Tree("S|<VP>", (Tree("A^S", (), "x"), Tree("B", (), "y")))).label == "S"


def test_marginals_of_nodes_are_those_of_the_dense_chart(tiny_grammar):
    ambiguous = PCFG.from_rules({"S": 1.0}, [("S", "S", "S", 0.3), ("S", "A", "A", 0.3), ("S", "A", "S", 0.4)],
                                [("A", "x", 0.5), ("A", "y", 0.5)])
    for grammar, words in ((tiny_grammar, ["she", "eats", "fish"]), (ambiguous, ["x", "y", "x", "y", "x"])):
        _, tree = viterbi(grammar, words)
        chart = inside_outside(grammar, [words], "reference")[0]
        nodes = node_marginals(grammar, inside_outside(grammar, [words])[0], tree)
        assert len(nodes) == 2 * len(words) - 1
        for i, j, label, marginal in nodes:
            assert marginal == pytest.approx(chart.marginals[i, j, grammar.nonterminal_index[label]], abs=1e-12)
        assert node_marginals(grammar, chart, Tree("nowhere", (Tree("X", (), "x"),) * len(words)))[-1].marginal == 0.0


# ---- punctuation ---------------------------------------------------------------------------------------------------


def trees(text):
    return parse_trees(text, "text")[0]


PENN = trees("(S (NP (DT the) (NN cat)) (VP (VBZ runs)) (. .))")
INDONESIAN = trees("(S (NP (NNO Anak) (PRN itu)) (VP (VBI tidur) (ADV 2)) (PUN .))")


@pytest.mark.parametrize(("tag", "word", "by_tag", "by_form"), [
    ("NN", "cat", False, False), (".", ".", True, True), ("NNO", "anak", True, False), ("-LRB-", "-LRB-", True, True),
    ("CD", "1,000", False, False), ("NN", "%", False, True), ("PUN", "…", True, True), ("X", "木", True, False)])
def test_what_is_punctuation_by_tag_and_by_form(tag, word, by_tag, by_form):
    assert is_punctuation(tag, word, "penn") is by_tag
    assert is_punctuation(tag, word, "form") is by_form


def test_the_rule_follows_the_treebank_and_its_share_is_known():
    assert choose_rule(PENN) == ("penn", 0.25)
    assert dropped_share(INDONESIAN, "penn") == 1.0
    assert choose_rule(INDONESIAN) == ("form", 0.2)


def test_a_rule_that_drops_too_much_is_refused_with_advice():
    with pytest.raises(UsageError, match="'penn' .* would drop 100.0% of the tokens.*--punctuation form"):
        choose_rule(INDONESIAN, "penn")
    with pytest.raises(UsageError, match="'form' .* would drop 50.0% .*--conventions PB PN"):
        choose_rule(trees("(S (A x) (B .))\n(S (A -) (B y))"))


def test_kim_counts_the_words_that_the_rule_keeps():
    spans = [(0, 2), (2, 4), (0, 4), (0, 5)]
    assert span_f1(INDONESIAN, [spans], "KIM", "form").sentence == 100.0
    # Where no tag is one of Penn's tags of words, these say nothing of what punctuation is: nothing is dropped.
    assert span_f1(INDONESIAN, [spans], "KIM").sentence == span_f1(INDONESIAN, [spans], "PN").sentence == 80.0
