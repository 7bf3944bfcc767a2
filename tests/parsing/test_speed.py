"""The `cpu` engine keeps its distance from the reference, and counts its own work."""

import time

import numpy as np
import pytest

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.cpu import CpuEngine
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.leaves import sentence_leaves
from pcfg_artifact.parsing.options import EngineOptions

# Processor time of the reference over that of the cpu engine on the work below, as measured; half of it is an alarm.
RATIO = 60.0
LENGTH = 14


def fixed_grammar() -> PCFG:
    """24 in-terminals and 16 pre-terminals with 25 rules each, of 3,000 and more."""
    rng = np.random.default_rng(0)
    inner, leaf = [f"I{a}" for a in range(24)], [f"P{p}" for p in range(16)]
    binary = {(a, *(str(x) for x in rng.choice([*inner, *leaf], 2))) for a in inner for _ in range(25)}
    weights = {a: sum(rule[0] == a for rule in binary) for a in inner}
    return PCFG.from_rules(
        root={"I0": 1.0}, binary=[(*rule, 1 / weights[rule[0]]) for rule in sorted(binary)],
        lexical=[(p, f"w{w}", 1 / 8) for p in leaf for w in range(8)])


def processor_seconds(work, rounds: int) -> float:
    work()
    seconds = []
    for _ in range(rounds):
        start = time.thread_time()
        work()
        seconds.append(time.thread_time() - start)
    return min(seconds)


def test_the_cpu_engine_is_not_half_as_fast_against_the_reference_as_it_was():
    grammar = fixed_grammar()
    sentence = [f"w{w}" for w in np.random.default_rng(1).integers(8, size=LENGTH)]
    engine, leaves = CpuEngine(grammar), sentence_leaves(grammar, sentence)
    reference = processor_seconds(lambda: inside_outside(grammar, [sentence], backend="reference"), 2)
    ours = processor_seconds(lambda: engine.chart(leaves), 20)
    assert reference / ours > RATIO / 2, f"reference / cpu is {reference / ours:.0f}, it was {RATIO:.0f}"


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
def test_the_engine_counts_the_useful_multiply_adds(seed):
    rng = np.random.default_rng(seed)
    names = ["A", "B", "C", "p", "q"]
    rules = [(a, b, c, float(rng.random() < 0.3)) for a in "ABC" for b in names for c in names]
    totals = {a: sum(rule[3] for rule in rules if rule[0] == a) or 1.0 for a in "ABC"}
    binary = [(a, b, c, weight / totals[a]) for a, b, c, weight in rules]
    grammar = PCFG.from_rules(root={"A": 1.0}, binary=binary, is_proper=False,
                              lexical=[("p", "x", 1.0), ("q", "x", 0.5), ("q", "y", 0.5)])
    sentence = [str(word) for word in rng.choice(["x", "y"], 8)]
    assert CpuEngine(grammar).multiply_adds(sentence_leaves(grammar, sentence)) == counted_by_hand(grammar, sentence)
    assert CpuEngine(grammar, EngineOptions(outside="full")).multiply_adds(sentence_leaves(grammar, sentence)) == 0
