from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.treebank.binarise import MARKS, VARIANTS, binarise, is_artificial, unbinarise
from pcfg_artifact.treebank.tree import Tree

label = st.text("ABCXYZ-$.", min_size=1, max_size=3).filter(lambda text: not set(text) & set(MARKS))
leaf = st.builds(lambda a, w: Tree(a, word=w), label, st.sampled_from("abcde"))
tree = st.recursive(leaf, lambda inner: st.builds(
    lambda a, children: Tree(a, tuple(children)), label, st.lists(inner, min_size=1, max_size=5)), max_leaves=25)


@settings(max_examples=150, deadline=None)
@given(tree, st.sampled_from(VARIANTS))
def test_unbinarise_inverts_binarise(tree, variant):
    binary = binarise(tree, variant)
    assert unbinarise(binary) == tree
    assert binary.words() == tree.words()
    for node in binary.preorder():
        assert len(node.children) == (0 if node.is_preterminal else 2)


@settings(max_examples=50, deadline=None)
@given(tree)
def test_spans_of_the_tree_are_those_of_its_binary_nodes_that_are_not_artificial(tree):
    kept = {(i, j) for label, i, j in binarise(tree).labelled_spans() if not is_artificial(label)}
    assert kept == set(tree.spans())


def test_a_tree_of_two_thousand_levels_is_unbinarised():
    deep = Tree("A", word="a")
    for _ in range(2000):
        deep = Tree("X^Y", (Tree("A", word="a"), deep))
    assert str(unbinarise(deep)) == "(X (A a) " * 2000 + "(A a)" + ")" * 2000
