"""Binarisation against NLTK's Chomsky normal form, and parent annotation against a direct statement of the rule."""

import nltk
import pytest

from pcfg_artifact.treebank.binarise import binarise
from pcfg_artifact.treebank.brackets import parse_trees


def nltk_cnf(tree):
    other = nltk.Tree.fromstring(str(tree))
    other.chomsky_normal_form(factor="left", horzMarkov=1, vertMarkov=0)
    other.collapse_unary(collapsePOS=True, collapseRoot=True, joinChar="+")
    return other


def annotate(tree, parent=None):
    """Every node without + or |, root excepted, gets the last unary part of its nearest ancestor without |."""
    label = tree.label()
    if parent is not None and "+" not in label and "|" not in label:
        label = f"{label}^{parent}"
    below = parent if "|" in tree.label() else tree.label().split("+")[-1]
    return nltk.Tree(label, [child if isinstance(child, str) else annotate(child, below) for child in tree])


TREES = parse_trees("""
(S (NP (DT the) (JJ old) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT a) (NN mat))) (ADVP (RB again))) (. .))
(S (VP (VB go)))
(NP (NN word))
(FRAG (NP (NP (NP (NN deep)))) (, ,) (X (Y (Z (A a) (B b) (C c) (D d) (E e)))))
""", "test")[0]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_binarise_equals_nltk(tree):
    assert nltk.Tree.fromstring(str(binarise(tree, "novm"))) == nltk_cnf(tree)
    assert nltk.Tree.fromstring(str(binarise(tree, "vm"))) == annotate(nltk_cnf(tree))


@pytest.mark.craft
def test_binarise_equals_nltk_on_craft(craft_treebank):
    for tree in craft_treebank.trees[::60]:
        assert nltk.Tree.fromstring(str(binarise(tree, "vm"))) == annotate(nltk_cnf(tree))
