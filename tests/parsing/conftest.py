"""Small random grammars, every tree of them, and every engine by name: those of the package, and a toy.

A test that takes `engine` runs once for each engine of the registry; one that takes `quick_engine` leaves out those
that are too slow for long sentences.  The engine `gpu` runs in Triton's interpreter, half a second for every batch: it
takes one example in four and no long sentences, unless PCFG_ARTIFACT_ALL_EXAMPLES is set.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import cell_of
from pcfg_artifact.parsing.charts import BestTree, Chart
from pcfg_artifact.parsing.constraints import each_forbidden
from pcfg_artifact.parsing.engine import ENGINES, EngineOptions
from pcfg_artifact.parsing.reference import log_of

TOY = "toy"
ALL_EXAMPLES = bool(os.environ.get("PCFG_ARTIFACT_ALL_EXAMPLES"))
SLOW = {"reference", TOY} | (set() if ALL_EXAMPLES else {"gpu"})
NEEDS_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


def pytest_generate_tests(metafunc):
    names = [pytest.param(name, marks=NEEDS_TRITON if name == "gpu" else ()) for name in (*ENGINES, TOY)]
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", names)
    if "quick_engine" in metafunc.fixturenames:
        metafunc.parametrize("quick_engine", [name for name in names if not SLOW & set(name.values)])


def _is_left_out(engine: str, seed: int) -> bool:
    return engine == "gpu" and seed % 4 > 0 and not ALL_EXAMPLES


@pytest.fixture(scope="session")
def is_left_out():
    return _is_left_out


@pytest.fixture(scope="package", autouse=True)
def toy_is_registered():
    """All that it takes to add an engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENGINES, TOY, ToyEngine)
        yield


class ToyEngine:
    """Inside and outside by rules over dictionaries (symbol, i, j) -> probability; the best tree beside them."""

    def __init__(self, grammar: PCFG, options: EngineOptions) -> None:
        self.grammar, self.is_full = grammar, options.outside == "full"
        self.rules = [(*map(int, rule), float(p)) for rule, p in zip(grammar.binary, grammar.binary_prob, strict=True)]

    def charts(self, leaves, forbidden=()):
        return map(self._chart, leaves, each_forbidden(forbidden, len(leaves)))

    def log_probs(self, leaves, forbidden=()):
        return (chart.log_prob for chart in self.charts(leaves, forbidden))

    def best_trees(self, leaves, forbidden=()):
        return map(self._best_tree, leaves, each_forbidden(forbidden, len(leaves)))

    def _steps(self, length, is_forbidden):
        """(parent, left, right, probability) of every rule in every place, narrow spans first.

        Rules with a forbidden parent or child have no place.
        """
        for step in self._all_steps(length):
            if not any(is_forbidden[node] for node in step[:3]):
                yield step

    def _all_steps(self, length):
        for width in range(2, length + 1):
            for i in range(length - width + 1):
                for k in range(i + 1, i + width):
                    for a, b, c, prob in self.rules:
                        if (b < self.grammar.n_interminals) == (k - i > 1) and \
                                (c < self.grammar.n_interminals) == (i + width - k > 1):
                            yield (a, i, i + width), (b, i, k), (c, k, i + width), prob

    def _leaves(self, leaves, is_forbidden):
        n = self.grammar.n_interminals
        return {(n + int(p), int(i), int(i) + 1): float(leaves[i, p]) for i, p in np.argwhere(leaves > 0)
                if not is_forbidden[n + int(p), int(i), int(i) + 1]}

    def _is_forbidden(self, forbidden, length):
        """(symbol, i, j) -> whether it is."""
        if forbidden.is_empty:
            return defaultdict(bool)
        return {(a, i, j): bool(forbidden.is_whole[cell_of(i, j, length)]) or a in
                forbidden.symbols[forbidden.first[cell_of(i, j, length)]:forbidden.first[cell_of(i, j, length) + 1]]
                for i in range(length) for j in range(i + 1, length + 1) for a in range(self.grammar.n_nonterminals)}

    def _chart(self, leaves, forbidden):
        length = len(leaves)
        is_forbidden = self._is_forbidden(forbidden, length)
        inside, outside = defaultdict(float, self._leaves(leaves, is_forbidden)), defaultdict(float)
        steps = list(self._steps(length, is_forbidden))
        for parent, left, right, prob in steps:
            inside[parent] += prob * inside[left] * inside[right]
        for a in range(self.grammar.n_nonterminals):
            if length and (a < self.grammar.n_interminals) == (length > 1) and not is_forbidden[a, 0, length]:
                outside[a, 0, length] = float(self.grammar.root[a])
        total = sum(inside[node] * value for node, value in outside.items())
        for parent, left, right, prob in reversed(steps):
            outside[left] += prob * outside[parent] * inside[right]
            outside[right] += prob * outside[parent] * inside[left]
        tables = np.zeros((2, length + 1, length + 1, self.grammar.n_nonterminals))
        for table, values in zip(tables, (inside, outside), strict=True):
            for (a, i, j), value in values.items():
                table[i, j, a] = value
        if not self.is_full:
            tables[1][tables[0] == 0] = 0.0
        return Chart.from_logs(float(log_of(np.float64(total))), *log_of(tables))

    def _best_tree(self, leaves, forbidden):
        is_forbidden = self._is_forbidden(forbidden, len(leaves))
        best = {node: (weight, ()) for node, weight in self._leaves(leaves, is_forbidden).items()}
        for parent, left, right, prob in self._steps(len(leaves), is_forbidden):
            if left in best and right in best:
                value = prob * best[left][0] * best[right][0]
                if value > best.get(parent, (0.0,))[0]:
                    best[parent] = value, (left, right)
        roots = {(a, 0, len(leaves)): p for a, p in enumerate(self.grammar.root)
                 if p > 0 and (a, 0, len(leaves)) in best}
        if not roots:
            return BestTree.none()
        top = max(roots, key=lambda node: roots[node] * best[node][0])

        def preorder(node):
            return [node, *(below for child in best[node][1] for below in preorder(child))]

        return BestTree(float(np.log(roots[top] * best[top][0])), np.array(preorder(top)))


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
