"""Spectral learning of a latent-variable PCFG (Cohen, Stratos, Collins, Foster, Ungar 2012, 2013, 2014).

For every symbol, the cross-covariance of what is below its nodes and what is around them has a low rank: the number of
latent states.  Its singular vectors turn both kinds of features into short vectors Y (inside) and Z (outside) with
E[Z Y'] = I.  Moments of these vectors are the tensors of the rules, in a basis that cancels in every sum over states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.latent import LatentPCFG, tensor_offsets
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.system.progress import ProgressBar, no_progress
from pcfg_artifact.system.random_streams import stream
from pcfg_artifact.treebank.binarise import binarise
from pcfg_artifact.treebank.tree import Tree

INTERMINAL_STATES, PRETERMINAL_STATES = 13, 16
SMOOTHING = 12.2
COUNT_OFFSET = 5  # added to a feature's count before its inverse root scales it: tames features seen once
VANISHING = 1e-8  # a singular value this small beside the largest is rounding
DENSE_SIDE = 64  # matrices with a side up to this are decomposed whole: quicker than iterating
NONE = -1  # no such node, or no such feature


@dataclass(frozen=True, eq=False)
class NodeVectors:
    """Y and Z of every node, (M, S) each, zero beyond the n_states (N,) of its symbol."""

    nodes: Nodes
    inside: np.ndarray
    outside: np.ndarray
    n_states: np.ndarray

    def truncated(self, pcfg: PCFG, n_interminal_states: int, n_preterminal_states: int) -> NodeVectors:
        """The vectors for fewer states: singular vectors are nested.  One state is the constant 1, the plain PCFG."""
        limit = state_limits(pcfg, n_interminal_states, n_preterminal_states)
        n_states = np.minimum(self.n_states, limit)
        most = int(n_states.max())
        is_kept = np.arange(most) < n_states[self.nodes.symbol][:, None]
        inside, outside = self.inside[:, :most] * is_kept, self.outside[:, :most] * is_kept
        is_single = limit[self.nodes.symbol] == 1
        inside[is_single, 0] = outside[is_single, 0] = 1.0
        return NodeVectors(self.nodes, inside, outside, n_states)


def learn_spectral(trees: Sequence[Tree], pcfg: PCFG, variant: str = "vm",
                   n_interminal_states: int = INTERMINAL_STATES, n_preterminal_states: int = PRETERMINAL_STATES,
                   smoothing: float = SMOOTHING, seed: int = 0, progress: ProgressBar = no_progress) -> LatentPCFG:
    """The spectral latent-variable PCFG of the treebank trees from which `pcfg` was learned."""
    vectors = node_vectors(collect_nodes(trees, pcfg, variant, progress), pcfg, n_interminal_states,
                           n_preterminal_states, seed, progress)
    return latent_pcfg(vectors, pcfg, smoothing, progress)


def state_limits(pcfg: PCFG, n_interminal_states: int, n_preterminal_states: int) -> np.ndarray:
    """(N,) the largest number of states that each symbol may have."""
    if min(n_interminal_states, n_preterminal_states) < 1:
        raise GrammarError(f"{n_interminal_states} states for in-terminals and {n_preterminal_states} for "
                           f"pre-terminals were asked for; a symbol needs at least 1")
    return np.repeat([n_interminal_states, n_preterminal_states], [pcfg.n_interminals, pcfg.n_preterminals])


# ---- nodes ----------------------------------------------------------------------------------------------------------
# All nodes of all trees lie in flat arrays, so that a feature is an integer and is found for every node at once.


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


# ---- projection -----------------------------------------------------------------------------------------------------


def node_vectors(nodes: Nodes, pcfg: PCFG, n_interminal_states: int = INTERMINAL_STATES,
                 n_preterminal_states: int = PRETERMINAL_STATES, seed: int = 0,
                 progress: ProgressBar = no_progress) -> NodeVectors:
    """Project the features of every node, symbol by symbol."""
    below, around = inside_features(nodes, pcfg), outside_features(nodes, pcfg)
    limit = state_limits(pcfg, n_interminal_states, n_preterminal_states)
    n_states = np.ones_like(limit)
    inside, outside = (np.zeros((len(nodes.symbol), limit.max())) for _ in range(2))
    order = np.argsort(nodes.symbol, kind="stable")
    first = np.searchsorted(nodes.symbol[order], np.arange(pcfg.n_nonterminals + 1))
    for a in progress(range(pcfg.n_nonterminals)):
        mine = order[first[a]:first[a + 1]]
        if limit[a] == 1:
            inside[mine, 0] = outside[mine, 0] = 1.0  # one state knows nothing: the plain PCFG
            continue
        left, right = project(indicators(below[mine]), indicators(around[mine]), limit[a], stream(seed, "spectral", a))
        n_states[a] = left.shape[1]
        inside[mine, :n_states[a]], outside[mine, :n_states[a]] = left, right
    most = int(n_states.max())  # less than the limit where every rank is
    return NodeVectors(nodes, inside[:, :most], outside[:, :most], n_states)


def indicators(features: np.ndarray) -> sparse.csr_array:
    """(n, d) scaled indicators of the features (n, ...) of n nodes: sqrt(n / (count + 5)) where a node has one."""
    present = features != NONE
    rows = np.nonzero(present)[0]
    _, columns, counts = np.unique(features[present], return_inverse=True, return_counts=True)
    scale = np.sqrt(len(features) / (counts + COUNT_OFFSET))
    return sparse.csr_array((scale[columns], (rows, columns)), shape=(len(features), len(counts)))


def project(below: sparse.csr_array, around: sparse.csr_array, n_states: int,
            rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Y and Z, (n, m) each, of n nodes from their features: m = n_states, or the rank where it is less.

    With the truncated singular value decomposition U S V' of the cross-covariance, Y = U' phi and Z = S^-1 V' psi.
    """
    covariance = (below.T @ around) / below.shape[0]
    u, s, v = truncated_svd(covariance, n_states, rng)
    m = int((s > VANISHING * s[0]).sum())
    return below @ u[:, :m], (around @ v[:, :m]) / s[:m]


def truncated_svd(matrix: sparse.csr_array, rank: int,
                  rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The `rank` largest singular triplets (fewer if a side is shorter): U (d, r), s (r,) falling, V (d', r)."""
    if min(matrix.shape) <= max(DENSE_SIDE, 2 * rank):
        u, s, vt = np.linalg.svd(matrix.toarray(), full_matrices=False)
        return u[:, :rank], s[:rank], vt[:rank].T
    u, s, vt = svds(matrix, k=rank, v0=rng.standard_normal(min(matrix.shape)))
    order = np.argsort(-s)
    return u[:, order], s[order], vt[order].T


# ---- moments --------------------------------------------------------------------------------------------------------


def latent_pcfg(vectors: NodeVectors, pcfg: PCFG, smoothing: float = SMOOTHING,
                progress: ProgressBar = no_progress) -> LatentPCFG:
    """Rule tensors and root vectors from the vectors of all nodes."""
    if not smoothing >= 0:
        raise GrammarError(f"smoothing is {smoothing}, expected 0 or more")
    nodes, m = vectors.nodes, vectors.n_states
    n_binary = len(pcfg.binary)
    mean_inside = _means(vectors.inside, nodes.symbol, pcfg.n_nonterminals)
    mean_outside = _means(vectors.outside, nodes.symbol, pcfg.n_nonterminals)

    offsets = tensor_offsets(pcfg, m)
    tensors = np.zeros(offsets[-1])
    order = np.argsort(nodes.rule, kind="stable")
    first = np.searchsorted(nodes.rule[order], np.arange(n_binary + 1))
    for rule in progress(range(n_binary)):
        a, b, c = pcfg.binary[rule]
        used = order[first[rule]:first[rule + 1]]
        if not len(used):
            continue
        mean = smoothed_moment(vectors.outside[used, :m[a]], vectors.inside[nodes.left[used], :m[b]],
                               vectors.inside[nodes.right[used], :m[c]], mean_outside[a, :m[a]],
                               mean_inside[b, :m[b]], mean_inside[c, :m[c]], smoothing)
        tensors[offsets[rule]:offsets[rule + 1]] = pcfg.binary_prob[rule] * mean.ravel()

    is_leaf = nodes.left == NONE
    lexical = _means(vectors.outside[is_leaf], nodes.rule[is_leaf] - n_binary, len(pcfg.lexical))
    roots = nodes.symbol[nodes.is_root]
    root = _means(vectors.inside[nodes.is_root], roots, pcfg.n_nonterminals)
    share = np.bincount(roots, minlength=pcfg.n_nonterminals) / len(roots)
    return LatentPCFG(pcfg, m, root * share[:, None], lexical * pcfg.lexical_prob[:, None], tensors)


def smoothed_moment(outside: np.ndarray, left: np.ndarray, right: np.ndarray, mean_outside: np.ndarray,
                    mean_left: np.ndarray, mean_right: np.ndarray, smoothing: float) -> np.ndarray:
    """The mean of Z (x) Y (x) Y over a rule's n occurrences, mixed with its factors: the fewer, the simpler.

    outside (n, i), left (n, j), right (n, k): vectors of the node and its children at every occurrence.
    mean_*: means over all nodes of the three symbols, wherever they occur.
    """
    n = len(outside)
    trust = np.sqrt(n) / (smoothing + np.sqrt(n))
    z, y, x = outside.mean(axis=0), left.mean(axis=0), right.mean(axis=0)
    together = np.tensordot(outside, left[:, :, None] * right[:, None, :], axes=(0, 0)) / n
    pairs = (np.multiply.outer(outside.T @ left / n, x)
             + np.einsum("ik,j->ijk", outside.T @ right / n, y)
             + np.multiply.outer(z, left.T @ right / n)) / 3
    apart = np.multiply.outer(z, np.multiply.outer(y, x))
    anywhere = np.multiply.outer(mean_outside, np.multiply.outer(mean_left, mean_right))
    return trust * together + (1 - trust) * (trust * pairs + (1 - trust) * (trust * apart + (1 - trust) * anywhere))


def _means(vectors: np.ndarray, group: np.ndarray, n_groups: int) -> np.ndarray:
    """(n_groups, S) mean vector of each group, zero for an empty one."""
    counts = np.bincount(group, minlength=n_groups)
    member = sparse.csr_array((np.ones(len(group)), (group, np.arange(len(group)))), shape=(n_groups, len(group)))
    return (member @ vectors) / np.maximum(counts, 1)[:, None]
