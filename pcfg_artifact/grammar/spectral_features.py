"""Inside and outside features of the nodes of binary trees: what spectral learning sees of a node.

All nodes of all trees lie in flat arrays, so that a feature is an integer and is found for every node at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.system.progress import ProgressBar, no_progress
from pcfg_artifact.treebank.binarise import binarise
from pcfg_artifact.treebank.tree import Tree

NONE = -1  # no such node, or no such feature


@dataclass(frozen=True, eq=False)
class Nodes:
    """The M nodes of all trees, in preorder, tree after tree; every array is (M,).

    symbol: non-terminal.  rule: binary rule r, or R + lexical rule e, of the grammar.
    parent, left, right: positions of other nodes, NONE where there is none.  is_right: the node is a right child.
    word: number of the lower-cased word of a pre-terminal, NONE elsewhere.
    """

    symbol: np.ndarray
    rule: np.ndarray
    parent: np.ndarray
    left: np.ndarray
    right: np.ndarray
    is_right: np.ndarray
    word: np.ndarray

    @property
    def is_root(self) -> np.ndarray:
        return self.parent == NONE


def collect_nodes(trees: Sequence[Tree], grammar: PCFG, variant: str = "vm",
                  progress: ProgressBar = no_progress) -> Nodes:
    """The nodes of treebank trees, binarised; `grammar` is the PCFG learned from the same trees."""
    index = grammar.nonterminal_index
    symbols: list[int] = []
    parents: list[int] = []
    is_right: list[bool] = []
    tokens: list[np.ndarray] = []  # of every tree, as the grammar reads them
    words: list[int] = []
    lowered: dict[str, int] = {}
    for tree in progress(trees):
        tokens.append(grammar.encode(tree.words()))
        stack = [(binarise(tree, variant), NONE, False)]
        while stack:
            node, parent, side = stack.pop()
            here = len(symbols)
            symbols.append(index.get(node.label, NONE))
            parents.append(parent)
            is_right.append(side)
            if node.word is not None:
                words.append(lowered.setdefault(node.word.lower(), len(lowered)))
            else:
                left, right = node.children
                stack += [(right, here, True), (left, here, False)]
    return _linked(grammar, np.array(symbols, np.int64), np.array(parents, np.int64), np.array(is_right, bool),
                   np.concatenate([np.zeros(0, np.int64), *tokens]), np.array(words, np.int64))


def _linked(grammar: PCFG, symbol: np.ndarray, parent: np.ndarray, is_right: np.ndarray, tokens: np.ndarray,
            lowered: np.ndarray) -> Nodes:
    left, right, word = (np.full(len(symbol), NONE) for _ in range(3))
    for child, side in ((left, ~is_right), (right, is_right)):
        nodes = np.flatnonzero(side & (parent != NONE))
        child[parent[nodes]] = nodes
    is_leaf = left == NONE
    word[is_leaf] = lowered
    rule = np.empty(len(symbol), np.int64)
    inner = np.flatnonzero(~is_leaf)
    rule[inner] = _rows_of(grammar.binary, np.stack([symbol[inner], symbol[left[inner]], symbol[right[inner]]], 1))
    rule[is_leaf] = len(grammar.binary) + _rows_of(grammar.lexical, np.stack([symbol[is_leaf], tokens], 1))
    return Nodes(symbol, rule, parent, left, right, is_right, word)


def _rows_of(table: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The row of a lexicographically sorted integer table that equals each target row."""
    base = int(max(table.max(initial=0), targets.max(initial=0))) + 1
    powers = base ** np.arange(table.shape[1] - 1, -1, -1, dtype=np.int64)
    keys, target_keys = table @ powers, targets @ powers
    rows = np.searchsorted(keys, target_keys)
    is_known = (targets.min(axis=1, initial=0) >= 0) & (np.append(keys, NONE)[rows] == target_keys)
    if not is_known.all():
        raise GrammarError("the trees hold a rule that the grammar lacks; learn the grammar from the same trees, "
                           "with the same variant and cut-off")
    return rows


# ---- features -------------------------------------------------------------------------------------------------------


def inside_features(nodes: Nodes, grammar: PCFG) -> np.ndarray:
    """(M, 3) features of what is below a node, NONE where it has fewer; no two symbols share a feature.

    In-terminal: its rule, its rule with the left child expanded one level, and with the right child expanded.
    Pre-terminal: its lower-cased word.
    """
    features = np.full((len(nodes.symbol), 3), NONE)
    is_leaf = nodes.left == NONE
    # One level below a node: the rule of an in-terminal, the word of a pre-terminal.
    below = np.where(is_leaf, len(grammar.binary) + nodes.word, nodes.rule)
    inner = np.flatnonzero(~is_leaf)
    features[inner, 0] = nodes.rule[inner]
    features[inner, 1] = _pairs(nodes.rule[inner], below[nodes.left[inner]])
    features[inner, 2] = _pairs(nodes.rule[inner], below[nodes.right[inner]])
    features[is_leaf, 0] = _pairs(nodes.symbol[is_leaf], nodes.word[is_leaf])
    return _apart(features, (inner, is_leaf))


def outside_features(nodes: Nodes, grammar: PCFG) -> np.ndarray:
    """(M, 3) features of what is around a node, NONE where it has fewer; no two symbols share a feature.

    The rules on the path upward, with the side on which it leaves them, up to one, two and three ancestors; a path
    that arrives at the root before ends in TOP.  The root itself has the feature TOP alone.
    """
    root, parent = nodes.is_root, np.maximum(nodes.parent, 0)
    top = 2 * len(grammar.binary) + nodes.symbol
    one = np.where(root, top, 2 * nodes.rule[parent] + nodes.is_right)
    two = np.where(root, NONE, _pairs(one, one[parent]))
    is_deep = ~root & ~root[parent]
    three = np.where(is_deep, _pairs(one, two[parent]), NONE)
    return _apart(np.stack([one, two, three], 1), (slice(None),))


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """One number for each distinct pair."""
    low = second.min(initial=0)
    keys = first * (second.max(initial=0) - low + 1) + (second - low)
    return np.unique(keys, return_inverse=True)[1]


def _apart(features: np.ndarray, groups: tuple) -> np.ndarray:
    """Number the features so that columns, and groups of nodes within a column, share none."""
    offset = 0
    for column in features.T:
        for group in groups:
            part = column[group]
            column[group] = np.where(part == NONE, NONE, part + offset)
            offset += part.max(initial=NONE) + 1
    return features
