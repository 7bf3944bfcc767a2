"""Random trees survive being written and read, in every layout."""

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pcfg_artifact.treebank.brackets import parse_trees
from pcfg_artifact.treebank.cleaning import Cleaner
from pcfg_artifact.treebank.tree import Tree

TOKENS = st.text("aNP-|=+^<>é†木.,'`$%0", min_size=1, max_size=4) | st.just("-NONE-")
LEAVES = st.builds(lambda label, word: Tree(label, (), word), TOKENS, TOKENS)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.builds(lambda label, children: Tree(label, tuple(children)), TOKENS, st.lists(inner, min_size=1)),
    max_leaves=12)


def indented(tree, level=0):
    """The layout of .mrg files: every inner node on a line of its own."""
    if tree.is_preterminal:
        return f"({tree.label} {tree.word})"
    children = (f"\n{'  ' * (level + 1)}{indented(child, level + 1)}" for child in tree.children)
    return f"({tree.label}{''.join(children)})"


@settings(max_examples=60, deadline=None)
@given(st.lists(TREES, min_size=1, max_size=4), st.sampled_from([str, indented]), st.booleans())
def test_written_trees_are_read_back(trees, write, skip_bad_trees):
    text = "\n".join(write(tree) for tree in trees)
    assert parse_trees(text, "file", skip_bad_trees=skip_bad_trees) == (trees, [])


@settings(max_examples=60, deadline=None)
@given(st.lists(TREES, min_size=1, max_size=4), st.integers(0, 3), st.integers(1, 3))
def test_skipping_loses_only_the_tree_that_lacks_brackets(trees, index, n_missing):
    index %= len(trees)
    assume(not trees[index].is_preterminal)  # without its only bracket it is a word: another test's case
    lines = [str(tree) for tree in trees]
    lines[index] = lines[index][: -min(n_missing, lines[index].count(")"))].rstrip()
    assume(lines[index].count("(") != lines[index].count(")"))
    kept, bad = parse_trees("\n".join(lines), "file", skip_bad_trees=True)
    assert kept == trees[:index] + trees[index + 1 :]
    assert [b.line for b in bad] == [index + 1]


@settings(max_examples=60, deadline=None)
@given(TREES)
@example(Tree("<-", (), "x"))
def test_cleaning_is_idempotent_and_keeps_the_words(tree):
    clean = Cleaner().clean(tree)
    traces = sum(node.label == "-NONE-" for node in tree.preterminals())
    assert (clean is None) == (traces == len(tree.words()))
    assume(clean is not None)
    assert clean.words() == [leaf.word for leaf in tree.preterminals() if leaf.label != "-NONE-"]
    again = Cleaner()
    assert again.clean(clean) == clean
    assert not any(again.counts.values())
    assert not any(len(node.children) == 1 and node.children[0].label == node.label for node in clean.preorder())
