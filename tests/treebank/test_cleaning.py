"""What cleaning changes, and that it counts every change."""

import pytest

from pcfg_artifact.treebank.brackets import parse_trees
from pcfg_artifact.treebank.cleaning import Cleaner, clean_label


def clean(text):
    [[raw], _] = parse_trees(text, "file")
    cleaner = Cleaner()
    tree = cleaner.clean(raw)
    return (None if tree is None else str(tree)), {name: n for name, n in cleaner.counts.items() if n}


@pytest.mark.parametrize(("raw", "cleaned", "counts"), [
    ("(S (NP (PRP she)) (VP (VBZ runs)))", "(S (NP (PRP she)) (VP (VBZ runs)))", {}),
    ("( (S (NP-SBJ-1 (PRP she)) (VP (VBD ran) (NP (-NONE- *-1))) (. .)) )",
     "(S (NP (PRP she)) (VP (VBD ran)) (. .))",
     {"function_tags": 1, "traces": 1, "emptied_nodes": 1, "outer_brackets": 1}),
    # Nodes above a trace go one after another, up to the first with words.
    ("(S (SBAR (WHNP (-NONE- 0)) (S (NP (-NONE- *T*)))) (NN x) (NN y))", "(S (NN x) (NN y))",
     {"traces": 2, "emptied_nodes": 4}),
    ("(S (NP (NP (NN dog))) (VP (VBZ runs)))", "(S (NP (NN dog)) (VP (VBZ runs)))", {"same_label_unaries": 1}),
    ("(NP (NP (-NONE- *)) (NP-2 (NP=1 (NN dog) (NN tag))))", "(NP (NN dog) (NN tag))",
     {"traces": 1, "emptied_nodes": 1, "function_tags": 2, "same_label_unaries": 2}),
    ("(NN (NN dog))", "(NN dog)", {"same_label_unaries": 1}),
    ("(TOP (S (NN x) (NN y)))", "(S (NN x) (NN y))", {"outer_brackets": 1}),
    ("( (ROOT (S1 (NN x))))", "(NN x)", {"outer_brackets": 3}),
    ("( (S (NN x) (NN y)) (. .))", "(TOP (S (NN x) (NN y)) (. .))", {"outer_brackets_kept": 1}),
    ("(ROOT (NN x) (. .))", "(ROOT (NN x) (. .))", {}),
    ("( (S (NP (-NONE- *))) )", None, {"traces": 1, "emptied_nodes": 3, "empty_trees": 1}),
    ("( (-NONE- *) )", None, {"traces": 1, "emptied_nodes": 1, "empty_trees": 1}),
    ("(NP (NN Xpd TTD) (NN gene))", "(NP (NN Xpd_TTD) (NN gene))", {"joined_leaves": 1}),
    ("(NP (JJ|NN gold) (NN ring))", "(NP (JJ gold) (NN ring))", {"alternative_labels": 1}),
    ("(PRN (-LRB- -LRB-) (NP (NN x)) (-RRB- -RRB-))", "(PRN (-LRB- -LRB-) (NP (NN x)) (-RRB- -RRB-))", {}),
    ("(X (A+B x) (C^D y))", "(X (A_PLUS_B x) (C_HAT_D y))", {"escaped_labels": 2}),
])
def test_cleaning_of_one_tree_and_its_counts(raw, cleaned, counts):
    assert clean(raw) == (cleaned, counts)


@pytest.mark.parametrize(("label", "cleaned", "change"), [
    ("NP", "NP", None), ("NP-SBJ-1", "NP", "function_tags"), ("NP=2", "NP", "function_tags"),
    ("NP-SBJ-1=2", "NP", "function_tags"), ("ADVP|PRT", "ADVP", "alternative_labels"),
    ("ADVP-TMP|PRT", "ADVP", "alternative_labels"), ("-LRB-", "-LRB-", None), ("-LCB-", "-LCB-", None),
    ("PRP$", "PRP$", None), ("$", "$", None), ("``", "``", None), (":", ":", None), ("--", "--", None),
    ("=", "=", None),
    ("-X", "-X", None), ("A<B>", "A_LT_B_GT_", "escaped_labels"), ("|", "_BAR_", "escaped_labels"), ("X2", "X2", None),
])
def test_labels(label, cleaned, change):
    assert clean_label(label) == (cleaned, change)


def test_cleaning_a_clean_tree_changes_nothing():
    text = "(S (NP (NP (DT the) (NN dog)) (PRN (-LRB- -LRB-) (NN x) (-RRB- -RRB-))) (VP (VBZ runs)) (. .))"
    assert clean(text) == (text, {})


def test_deep_trees_need_no_recursion():
    from pcfg_artifact.treebank.tree import Tree

    tree = Tree("NN", (), "x")
    for level in range(20_000):
        tree = Tree(f"X{level % 2}-SBJ", (tree,))
    assert Cleaner().clean(tree).words() == ["x"]
