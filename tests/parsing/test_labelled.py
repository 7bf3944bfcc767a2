"""Labelled scores against evalb's procedure written out, word by word and bracket by bracket."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.decoding import node_marginals, viterbi
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.labelled import constituents, labelled_f1, treebank_tree
from pcfg_artifact.treebank.binarise import VARIANTS, binarise
from pcfg_artifact.treebank.brackets import parse_trees
from pcfg_artifact.treebank.tree import Tree

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
