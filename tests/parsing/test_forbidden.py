"""Forbidden entries of the `cpu` engine, against dictionaries of rules in which they do not exist."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.parsing.chart_index import n_cells
from pcfg_artifact.parsing.constraints import NOTHING, Forbidden
from pcfg_artifact.parsing.cpu import CpuEngine
from pcfg_artifact.parsing.engine import EngineOptions, leaf_charts
from pcfg_artifact.parsing.leaves import sentence_leaves

TIGHT = 1e-9  # of logs, on every entry; sums of float64 in another order
LENGTHS = (1, 2, 0, 7, 3, 5, 4)


def some_forbidden(rng: np.random.Generator, length: int, n_nonterminals: int, share: float) -> Forbidden:
    """Some symbols in every cell, all of them in some cells."""
    chosen = rng.random((n_cells(length), n_nonterminals)) < share
    chosen |= rng.random((n_cells(length), 1)) < share / 2
    return Forbidden.from_cells(chosen)


def assert_logs_agree(found: np.ndarray, expected: np.ndarray) -> None:
    assert (np.isneginf(found) == np.isneginf(expected)).all()
    possible = ~np.isneginf(expected)
    np.testing.assert_allclose(found[possible], expected[possible], rtol=0, atol=TIGHT)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), density=st.sampled_from([0.2, 0.5, 0.9]), share=st.sampled_from([0.0, 0.05, 0.3]),
       outside=st.sampled_from(["pruned", "full"]), is_log=st.booleans())
def test_charts_and_best_trees_have_no_forbidden_entry(random_grammar, seed, density, share, outside, is_log):
    rng = np.random.default_rng(seed)
    grammar = random_grammar(seed, *rng.integers(1, 5, size=3), density)
    leaves = [sentence_leaves(grammar, [f"w{w}" for w in rng.integers(grammar.n_words, size=n)]) for n in LENGTHS]
    forbidden = [some_forbidden(rng, n, grammar.n_nonterminals, share) for n in LENGTHS]
    expected = leaf_charts(grammar, leaves, EngineOptions("toy", outside=outside), forbidden)
    cpu = CpuEngine(grammar, EngineOptions(outside=outside))
    found = map(cpu.log_chart, leaves, forbidden) if is_log else cpu.charts(leaves, forbidden)
    for chart, twin in zip(found, expected, strict=True):
        assert_logs_agree(np.array([chart.log_prob]), np.array([twin.log_prob]))
        assert_logs_agree(chart.log_inside, twin.log_inside)
        assert_logs_agree(chart.log_outside, twin.log_outside)
    toy = list(leaf_charts(grammar, leaves, EngineOptions("toy"), forbidden))
    assert_logs_agree(np.array(list(cpu.log_probs(leaves, forbidden))), np.array([twin.log_prob for twin in toy]))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_best_tree_has_no_forbidden_entry(random_grammar, seed):
    from pcfg_artifact.parsing.engine import engine_for

    rng = np.random.default_rng(seed)
    grammar = random_grammar(seed, 3, 3, 3, 0.7)
    leaves = [sentence_leaves(grammar, [f"w{w}" for w in rng.integers(grammar.n_words, size=n)]) for n in LENGTHS]
    forbidden = [some_forbidden(rng, n, grammar.n_nonterminals, 0.15) for n in LENGTHS]
    expected = engine_for(grammar, EngineOptions("toy")).best_trees(leaves, forbidden)
    for found, twin in zip(CpuEngine(grammar).best_trees(leaves, forbidden), expected, strict=True):
        assert_logs_agree(np.array([found.log_prob]), np.array([twin.log_prob]))
        assert len(found.nodes) == len(twin.nodes)


def test_nothing_forbidden_is_no_list(tiny_grammar):
    assert Forbidden.from_cells(np.zeros((6, 4), bool)) is NOTHING
    assert NOTHING.is_empty
    one = Forbidden.from_cells(np.array([[True, True], [False, True], [False, False]]))
    assert one.first.tolist() == [0, 0, 1, 1]
    assert one.symbols.tolist() == [1]
    assert one.is_whole.tolist() == [True, False, False]
