"""What the probes predict: relative depths of a tree, its inverse, and normalised span scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from pcfg_artifact.treebank.tree import Tree

Ties = Literal["first", "all"]
Span = tuple[int, int]


def gap_depths(tree: Tree) -> np.ndarray:
    """(L-1,) depth of the lowest common ancestor of words g and g+1; the root has depth 0, unary links none."""
    depths: list[int] = []
    # A number on the stack is a gap between two children: it is met in word order, after the left child's own gaps.
    stack: list[tuple[Tree, int] | int] = [(tree, 0)]
    while stack:
        item = stack.pop()
        if isinstance(item, int):
            depths.append(item)
            continue
        node, depth = item
        below = depth + 1 if len(node.children) > 1 else depth
        for position, child in enumerate(reversed(node.children)):
            if position:
                stack.append(depth)
            stack.append((child, below))
    return np.array(depths, dtype=np.int64)


def relative_depths(tree: Tree) -> np.ndarray:
    """(L-1,) tar(i) = depth(i, i+1) - depth(i-1, i) with depth(0, 1) = 0; the last word has no label."""
    return np.diff(gap_depths(tree), prepend=0)


def decode(relative: Sequence[int] | np.ndarray, ties: Ties = "first") -> set[Span]:
    """Spans (i, j) of the tree whose relative depths these are, words and whole sentence included.

    Cumulated depths are split recursively at their minimum: at the first one (a binary tree), or at all ties at once
    (an n-ary tree).  The recursion has a closed form: gap g heads the span that reaches left to the nearest gap of
    smaller (or, for "first", equal) depth and right to the nearest gap of smaller depth.
    """
    depths = np.cumsum(relative).tolist()
    length = len(depths) + 1
    start_of = [0] * len(depths)
    end_of = [length] * len(depths)
    open_gaps: list[int] = []  # depths rise along it, strictly for ties="all"
    for g, depth in enumerate(depths):
        start = 0
        while open_gaps and depths[open_gaps[-1]] > depth:
            end_of[open_gaps.pop()] = g + 1
        if open_gaps:
            above = open_gaps[-1]
            is_sibling = ties == "all" and depths[above] == depth
            start = start_of[above] if is_sibling else above + 1
        start_of[g] = start
        open_gaps.append(g)
    return {(i, i + 1) for i in range(length)} | set(zip(start_of, end_of, strict=True))


def span_targets(scores: np.ndarray, width: int) -> np.ndarray:
    """(L-width+1,) s(i, j) / max over all spans of the sentence, for the spans of one width by start; empty where the
    sentence is shorter.  `scores` (L+1, L+1) holds s(i, j) = max_A mu(A, i, j)."""
    return np.diagonal(scores / scores.max(), offset=width)
