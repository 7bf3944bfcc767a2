"""Irregular trees: the tail of rare rules that every real treebank has and a generator of regular trees lacks.

Those who draw trees slip, and disagree: one category is taken for another, a bracket is set too many.
Each rule made that way is rare, but together they let the frequent categories stand almost anywhere.  A grammar of few
categories therefore still derives most sentences, if with odd trees.  The words are never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pcfg_artifact.treebank.tree import Tree

FEWEST_TO_GROUP = 3  # a node over the only two children would repeat their parent's span


@dataclass(frozen=True)
class Irregularities:
    """The chance of each irregularity, at every node that can have it.

    renamed: a node of a category in `taken_for` gets the category it is taken for.
    adopted: a node gets the category of its parent, where that is one of `frequent`.
    grouped: two neighbours among three or more children come under a new node.  Its category is that of their parent
      or one of `group_labels`, with equal chance; the latter where the parent's is not one of `frequent`.
    """

    renamed: float
    adopted: float
    grouped: float
    taken_for: Mapping[str, str]
    frequent: Sequence[str]
    group_labels: Sequence[str]


def make_irregular(tree: Tree, kinds: Irregularities, rng: np.random.Generator, parent: str | None = None) -> Tree:
    """The same words in the same order, under a tree that is irregular here and there."""
    label = tree.label
    if label in kinds.taken_for and rng.random() < kinds.renamed:
        label = kinds.taken_for[label]
    if parent is not None and parent in kinds.frequent and rng.random() < kinds.adopted:
        label = parent
    children = [child if child.is_preterminal else make_irregular(child, kinds, rng, label)
                for child in tree.children]
    if len(children) >= FEWEST_TO_GROUP and rng.random() < kinds.grouped:
        first = int(rng.integers(len(children) - 1))
        is_like_parent = label in kinds.frequent and rng.random() < 0.5
        over = label if is_like_parent else kinds.group_labels[int(rng.integers(len(kinds.group_labels)))]
        children[first:first + 2] = [Tree(over, tuple(children[first:first + 2]))]
    # A category over itself alone would be a rule without meaning.
    return children[0] if [child.label for child in children] == [label] else Tree(label, tuple(children))
