"""Small random grammars, every tree and every string of them: the slowest and most obvious twin of everything."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from pcfg_artifact.grammar import PCFG


def _random_grammar(seed: int, n_interminals: int = 3, n_preterminals: int = 3, n_words: int = 3,
                   density: float = 0.5) -> PCFG:
    """Proper; about `density` of all rules exist, some of them with probability 0; any symbol may be the root."""
    rng = np.random.default_rng(seed)
    n = n_interminals + n_preterminals

    def distribution(size: int) -> np.ndarray:
        weights = rng.random(size) * (rng.random(size) < density)
        weights[rng.integers(size)] += 0.1
        return weights / weights.sum()

    names = [f"I{a}" for a in range(n_interminals)] + [f"P{p}" for p in range(n_preterminals)]
    binary = []
    for a in range(n_interminals):
        rules = distribution(n * n).reshape(n, n)
        binary += [(names[a], names[b], names[c], rules[b, c]) for b, c in product(range(n), repeat=2)
                   if rules[b, c] > 0 or rng.random() < 0.1]  # some rules of probability 0 are listed
    lexical = []
    for p in range(n_preterminals):
        weights = distribution(n_words)
        lexical += [(names[n_interminals + p], f"w{w}", weights[w]) for w in range(n_words)]
    root = dict(zip(names, distribution(n), strict=True))
    return PCFG.from_rules(root, binary, lexical)


def _derivations(grammar: PCFG, symbol: int, leaves: np.ndarray, i: int, j: int
                ) -> Iterator[tuple[float, list[tuple[int, int, int]]]]:
    """Every tree of `symbol` over words i .. j-1: its weight and its nodes (symbol, i, j)."""
    if j - i == 1:
        if symbol >= grammar.n_interminals and leaves[i, symbol - grammar.n_interminals] > 0:
            yield leaves[i, symbol - grammar.n_interminals], [(symbol, i, j)]
        return
    for (a, b, c), prob in zip(grammar.binary, grammar.binary_prob, strict=True):
        if a != symbol or prob == 0:
            continue
        for k in range(i + 1, j):
            for left_weight, left in _derivations(grammar, b, leaves, i, k):
                for right_weight, right in _derivations(grammar, c, leaves, k, j):
                    yield prob * left_weight * right_weight, [(symbol, i, j), *left, *right]


def _all_trees(grammar: PCFG, leaves: np.ndarray) -> list[tuple[float, list[tuple[int, int, int]]]]:
    """Every tree of the sentence with its probability, root included."""
    return [(grammar.root[a] * weight, nodes) for a in np.flatnonzero(grammar.root)
            for weight, nodes in _derivations(grammar, a, leaves, 0, len(leaves))]


@pytest.fixture(scope="session")
def random_grammar():
    return _random_grammar


@pytest.fixture(scope="session")
def derivations():
    return _derivations


@pytest.fixture(scope="session")
def all_trees():
    return _all_trees
