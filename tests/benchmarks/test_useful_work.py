"""The count of useful multiply-adds against a count by hand, from the dense chart."""

import numpy as np
import pytest

from benchmarks.useful_work import multiply_adds
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.cpu import CpuEngine
from pcfg_artifact.parsing.engine import EngineOptions, inside_outside
from pcfg_artifact.parsing.leaves import sentence_leaves


def counted_by_hand(grammar: PCFG, sentence: list[str]) -> int:
    """Useful multiply-adds of spans of three and more words, from the dense chart."""
    chart = inside_outside(grammar, [sentence], backend="reference")[0]
    inside, outside = chart.log_inside > -np.inf, chart.log_outside > -np.inf
    leaves = sentence_leaves(grammar, sentence) > 0
    n, length, total = grammar.n_interminals, len(sentence), 0
    for i in range(length):
        for j in range(i + 3, length + 1):
            edges, pairs = set(), {}
            for (a, b, c), prob in zip(grammar.binary.tolist(), grammar.binary_prob, strict=True):
                if prob > 0 and b < n <= c and inside[i, j - 1, b] and leaves[j - 1, c - n]:
                    edges.add(("right", a, b))
                if prob > 0 and c < n <= b and inside[i + 1, j, c] and leaves[i, b - n]:
                    edges.add(("left", a, c))
                if prob > 0 and max(b, c) < n:
                    pairs.setdefault((b, c), []).append(a)
            is_reached = outside[i, j, :n].any()
            total += len(edges) * (3 if is_reached else 1)
            for (b, c), parents in pairs.items():
                splits = sum(bool(inside[i, k, b] and inside[k, j, c]) for k in range(i + 1, j))
                if splits:
                    n_given = sum(bool(outside[i, j, a]) for a in parents)
                    total += splits + len(parents) + (n_given + 2 * splits if n_given else 0)
    return total


@pytest.mark.parametrize("seed", range(3))
def test_useful_multiply_adds_are_counted(seed):
    rng = np.random.default_rng(seed)
    names = ["A", "B", "C", "p", "q"]
    rules = [(a, b, c, float(rng.random() < 0.3)) for a in "ABC" for b in names for c in names]
    totals = {a: sum(rule[3] for rule in rules if rule[0] == a) or 1.0 for a in "ABC"}
    binary = [(a, b, c, weight / totals[a]) for a, b, c, weight in rules]
    grammar = PCFG.from_rules(root={"A": 1.0}, binary=binary, is_proper=False,
                              lexical=[("p", "x", 1.0), ("q", "x", 0.5), ("q", "y", 0.5)])
    sentence = [str(word) for word in rng.choice(["x", "y"], 8)]
    leaves = sentence_leaves(grammar, sentence)
    assert multiply_adds(CpuEngine(grammar), leaves) == counted_by_hand(grammar, sentence)
    assert multiply_adds(CpuEngine(grammar, EngineOptions(outside="full")), leaves) == 0
