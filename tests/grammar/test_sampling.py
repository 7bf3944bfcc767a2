import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.expectation import expected_counts
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import Sampler, sample_trees, shortest_yield
from pcfg_artifact.workers.shards import write_shard

LEAST_EXPECTED = 10  # cells of a chi-square test with fewer are merged into one
ALPHA = 1e-4  # the seed is fixed, so this fails once in 10,000 changes of the sampler's stream


def chi_square_p(grammar, rules):
    """p-value of all rule choices given their heads, rare rules of a head merged."""
    counts = np.bincount(rules, minlength=len(grammar.binary) + len(grammar.lexical))
    heads = np.concatenate([grammar.binary[:, 0], grammar.lexical[:, 0]])
    probability = np.concatenate([grammar.binary_prob, grammar.lexical_prob])
    assert not counts[probability == 0].any()
    statistic, freedom = 0.0, 0
    first = np.searchsorted(heads, np.arange(grammar.n_nonterminals + 1))  # rules are sorted by head
    for a in range(grammar.n_nonterminals):
        observed, p = counts[first[a]:first[a + 1]], probability[first[a]:first[a + 1]]
        expected = observed.sum() * p
        large = expected >= LEAST_EXPECTED
        observed = np.append(observed[large], observed[~large].sum())
        expected = np.append(expected[large], expected[~large].sum())
        observed, expected = observed[expected >= LEAST_EXPECTED], expected[expected >= LEAST_EXPECTED]
        if len(expected) > 1:
            statistic += float(((observed - expected) ** 2 / expected).sum())
            freedom += len(expected) - 1
    return chi2.sf(statistic, freedom)


def test_rule_frequencies_pass_a_chi_square_test(tiny_grammar):
    drawn = sample_trees(tiny_grammar, 50_000, seed=1)
    assert chi_square_p(tiny_grammar, drawn.rules.values) > ALPHA


def test_expected_counts_are_met_on_average(tiny_grammar):
    drawn = sample_trees(tiny_grammar, 50_000, seed=2)
    # The length has variance 16/9 here: four standard errors of the mean.
    assert abs(drawn.tokens.lengths.mean() - expected_counts(tiny_grammar)[2:].sum()) < 4 * (4 / 3) / 50_000**0.5 * 2


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**40), st.integers(0, 500), st.integers(0, 60))
def test_any_block_drawn_alone_is_the_same(seed, first, n):
    grammar = PCFG.from_rules({"S": 1.0}, [("S", "A", "S", 0.6), ("S", "A", "A", 0.4)],
                              [("A", "x", 0.5), ("A", "y", 0.5)])
    sampler = Sampler(grammar, seed)
    whole, part = sampler.draw(0, first + n), sampler.draw(first, n)
    for s in range(n):
        np.testing.assert_array_equal(part.rules.row(s), whole.rules.row(first + s))


def test_trees_words_and_tokens_agree(tiny_grammar):
    drawn = sample_trees(tiny_grammar, 200, seed=3)
    tokens = drawn.tokens
    for s, tree in enumerate(drawn):
        assert tree.words() == [tiny_grammar.words[w] for w in tokens.row(s)]
        assert tree.label == "S"


def test_length_cap_rejects_counts_and_keeps_the_conditional_distribution(tiny_grammar):
    # P(length 3 + k) = 3/4 (1/4)^k, so a cap of 3 accepts 3/4 of all draws.
    drawn = sample_trees(tiny_grammar, 20_000, seed=4, max_length=3)
    assert set(drawn.tokens.lengths.tolist()) == {3}
    assert drawn.n_rejected / (20_000 + drawn.n_rejected) == pytest.approx(0.25, abs=0.01)


def test_impossible_requests_are_refused(tiny_grammar):
    with pytest.raises(GrammarError, match="shortest sentence"):
        sample_trees(tiny_grammar, 1, max_length=2)
    endless = PCFG.from_rules({"S": 1.0}, [("S", "S", "S", 0.6), ("S", "A", "A", 0.4)], [("A", "x", 1.0)])
    with pytest.raises(GrammarError, match="no finite expected length"):
        sample_trees(endless, 1)
    assert len(sample_trees(endless, 5, max_length=8)) == 5


def test_shortest_yield_by_hand(tiny_grammar):
    assert shortest_yield(tiny_grammar).tolist() == [3, 2, 1, 1]


def test_zero_sentences_are_an_empty_sample(tiny_grammar):
    drawn = sample_trees(tiny_grammar, 0)
    assert len(drawn) == 0
    assert drawn.tokens.n_rows == 0


def test_number_of_workers_does_not_change_a_byte(tiny_grammar, tmp_path, monkeypatch):
    monkeypatch.setattr("pcfg_artifact.workers.shards.BLOCK", 700)
    written = {}
    for n_workers in (1, 2, 4):
        folder = tmp_path / str(n_workers)
        write_shard(folder, Sampler(tiny_grammar, 9), 0, 10_000, with_rules=True, n_workers=n_workers)
        written[n_workers] = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    assert written[1] == written[2] == written[4]
    assert len(written[1]) == 4


@pytest.mark.craft
def test_a_million_draws_from_the_craft_grammar_pass_a_chi_square_test(craft_grammar):
    sampler = Sampler(craft_grammar, seed=5)
    rules = np.concatenate([sampler.draw(first, 100_000).rules.values for first in range(0, 1_000_000, 100_000)])
    assert chi_square_p(craft_grammar, rules) > ALPHA
