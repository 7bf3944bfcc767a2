"""The `cpu` engine keeps its distance from the reference."""

import time

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.cpu import CpuEngine
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.leaves import sentence_leaves

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
