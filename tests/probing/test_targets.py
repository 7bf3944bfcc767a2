"""Relative depths and trees are two ways of writing the same thing."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.probing.targets import decode, gap_depths, relative_depths
from pcfg_artifact.treebank.tree import Tree

words = st.builds(lambda w: Tree("W", word=w), st.sampled_from("abc"))
unary = lambda inner: inner | inner.map(lambda t: Tree("U", (t,)))  # noqa: E731
binary_trees = st.recursive(unary(words), lambda t: unary(st.tuples(t, t).map(lambda c: Tree("X", c))), max_leaves=24)
many = lambda t: st.lists(t, min_size=2, max_size=5).map(lambda c: Tree("X", tuple(c)))  # noqa: E731
nary_trees = st.recursive(unary(words), lambda t: unary(many(t)), max_leaves=24)


def depths_by_ancestors(tree: Tree) -> list[int]:
    """The definition read literally: among the branching nodes above both words, count all but the lowest."""
    branching = [span for span, node in zip(spans_in_preorder(tree), tree.preorder(), strict=True)
                 if len(node.children) > 1]
    return [sum(i <= g and g + 2 <= j for i, j in branching) - 1 for g in range(len(tree.words()) - 1)]


def spans_in_preorder(tree: Tree, start: int = 0) -> list[tuple[int, int]]:
    end, below = start, []
    for child in tree.children:
        below += spans_in_preorder(child, end)
        end += len(child.words())
    return [(start, end if tree.children else start + 1), *below]


def decode_by_recursion(depths: list[int], start: int, ties: str) -> set[tuple[int, int]]:
    end = start + len(depths) + 1
    if not depths:
        return {(start, end)}
    cuts = [g for g, depth in enumerate(depths) if depth == min(depths)]
    cuts = cuts if ties == "all" else cuts[:1]
    spans, begin = {(start, end)}, 0
    for cut in [*cuts, len(depths)]:
        spans |= decode_by_recursion(depths[begin:cut], start + begin, ties)
        begin = cut + 1
    return spans


@given(nary_trees)
@settings(max_examples=60, deadline=None)
def test_gap_depths_equal_the_definition_by_ancestors(tree):
    assert gap_depths(tree).tolist() == depths_by_ancestors(tree)


@given(binary_trees)
@settings(max_examples=60, deadline=None)
def test_perfect_labels_of_a_binary_tree_decode_to_exactly_that_tree(tree):
    assert decode(relative_depths(tree), "first") == set(tree.spans())
    assert decode(relative_depths(tree), "all") == set(tree.spans())


@given(nary_trees)
@settings(max_examples=60, deadline=None)
def test_perfect_labels_of_an_nary_tree_decode_to_exactly_that_tree(tree):
    assert decode(relative_depths(tree), "all") == set(tree.spans())


@given(st.lists(st.integers(-4, 4), max_size=20), st.sampled_from(["first", "all"]))
@settings(max_examples=100, deadline=None)
def test_decoding_any_labels_equals_the_recursive_split(relative, ties):
    expected = decode_by_recursion(np.cumsum(relative).tolist(), 0, ties)
    assert decode(relative, ties) == expected


@given(st.lists(st.integers(-4, 4), max_size=20))
@settings(max_examples=60, deadline=None)
def test_first_minimum_always_gives_a_binary_tree(relative):
    length = len(relative) + 1
    spans = decode(relative, "first")
    assert len(spans) == 2 * length - 1
    assert (0, length) in spans
