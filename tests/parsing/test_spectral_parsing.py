"""Latent Inside-Outside against the sum over all derivations, one by one."""

from collections import defaultdict

import numpy as np
import pytest

from pcfg_artifact.grammar.latent import LatentPCFG, tensor_offsets
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.decoding import labelled_recall, parses
from pcfg_artifact.parsing.engine import EngineOptions
from pcfg_artifact.parsing.latent_engine import latent_inside_outside, latent_parses

CLOSE = 1e-10  # sums of a few thousand products in float64, of both signs

SENTENCES = [["a"], ["a", "b"], ["b", "a", "b"], ["a", "a", "b", "b"], ["b", "c", "a", "b", "a"],
             ["a", "b", "a", "c", "b", "a"], ["c", "d"], ["a", "nowhere"]]


def small_pcfg() -> PCFG:
    """Two in-terminals, two pre-terminals, one of them a possible root; a rule and a word of probability 0."""
    return PCFG.from_rules(
        root={"S": 0.7, "X": 0.2, "P": 0.1},
        binary=[("S", "X", "S", 0.2), ("S", "P", "X", 0.3), ("S", "P", "Q", 0.2), ("S", "S", "S", 0.1),
                ("S", "Q", "P", 0.2), ("X", "S", "P", 0.3), ("X", "P", "P", 0.4), ("X", "Q", "X", 0.3),
                ("X", "X", "X", 0.0)],
        lexical=[("P", "a", 0.6), ("P", "b", 0.4), ("Q", "b", 0.5), ("Q", "c", 0.5), ("Q", "d", 0.0)])


def random_latent(pcfg: PCFG, seed: int, *, is_signed: bool) -> LatentPCFG:
    rng = np.random.default_rng(seed)
    n_states = rng.integers(1, 5, pcfg.n_nonterminals)
    most = n_states.max()

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape) if is_signed else rng.random(shape)

    def masked(rows: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        return rows * (np.arange(most) < n_states[symbols][:, None])

    offsets = tensor_offsets(pcfg, n_states)
    return LatentPCFG(
        pcfg, n_states, masked(draw(pcfg.n_nonterminals, most), np.arange(pcfg.n_nonterminals)) * pcfg.root[:, None],
        masked(draw(len(pcfg.lexical), most), pcfg.lexical[:, 0]) * pcfg.lexical_prob[:, None],
        draw(offsets[-1]) * np.repeat(pcfg.binary_prob, np.diff(offsets)))


def derivations(grammar: LatentPCFG, words: list[str]):
    """Every derivation of a sentence: its value, and its entries (A, i, j)."""
    pcfg = grammar.pcfg
    ids = pcfg.encode(words)

    def below(a: int, i: int, j: int):
        if j - i == 1:
            for e in np.flatnonzero((pcfg.lexical == (a, ids[i])).all(axis=1)):
                yield grammar.lexical[e, :grammar.n_states[a]], [(a, i, j)]
            return
        for r in np.flatnonzero(pcfg.binary[:, 0] == a):
            _, b, c = pcfg.binary[r]
            for k in range(i + 1, j):
                for left, left_entries in below(b, i, k):
                    for right, right_entries in below(c, k, j):
                        tensor = grammar.tensors[grammar.offsets[r]:grammar.offsets[r + 1]].reshape(
                            grammar.n_states[pcfg.binary[r]])
                        value = np.einsum("xyz,y,z->x", tensor, left, right)
                        yield value, [(a, i, j), *left_entries, *right_entries]

    for a in range(pcfg.n_nonterminals):
        for vector, entries in below(a, 0, len(words)):
            yield float(grammar.root[a, :grammar.n_states[a]] @ vector), entries


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_signed", [False, True])
def test_probability_and_marginals_equal_the_sum_over_derivations(seed, is_signed):
    grammar = random_latent(small_pcfg(), seed, is_signed=is_signed)
    n_negative = 0
    charts = list(latent_inside_outside(grammar, SENTENCES, pruning=0.0, options=EngineOptions(n_threads=2)))
    assert len(charts) == len(SENTENCES)
    for words, chart in zip(SENTENCES, charts, strict=True):
        total, through = 0.0, defaultdict(float)
        for value, entries in derivations(grammar, words):
            total += value
            for entry in entries:
                through[entry] += value
        if chart.log_pcfg == -np.inf:
            assert words in (["c", "d"], ["a", "nowhere"])
            assert (chart.total, chart.log_prob, chart.is_negative) == (0.0, -np.inf, False)
            assert not chart.span_scores().any()
            continue
        n_negative += chart.is_negative
        assert chart.is_negative == (total <= 0)
        assert chart.total * np.exp(chart.log_pcfg) == pytest.approx(total, rel=CLOSE)
        scores = np.zeros((len(words) + 1, len(words) + 1))
        for (_, i, j), value in through.items():
            scores[i, j] = max(scores[i, j], abs(value / total))
        np.testing.assert_allclose(chart.span_scores(), scores, rtol=1e-8, atol=1e-10)
        assert len(labelled_recall(chart)) == 2 * len(words) - 1
    if is_signed and seed == 0:
        assert n_negative  # otherwise negative estimates were not tested


def test_pruning_leaves_out_entries_with_a_small_posterior():
    grammar = random_latent(small_pcfg(), 1, is_signed=False)
    sentence = ["a", "b", "a", "c", "b", "a"]
    (full,) = latent_inside_outside(grammar, [sentence], pruning=0.0)
    (pruned,) = latent_inside_outside(grammar, [sentence], pruning=0.05)
    assert 0 < len(pruned.symbols) < len(full.symbols)
    assert 0 < pruned.total < full.total


def test_sentences_below_the_range_of_floats_are_exact():
    pcfg = PCFG.from_rules(root={"S": 1.0}, binary=[("S", "P", "S", 0.5), ("S", "P", "P", 0.5)],
                           lexical=[("P", "a", 0.001), ("P", "b", 0.999)])
    share = np.array([0.3, 0.7])  # two states of S that behave alike: the latent grammar is the PCFG
    again, last = 0.5 * share[:, None] * np.ones(2), 0.5 * share
    grammar = LatentPCFG(pcfg, np.array([2, 1]), np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[0.001, 0], [0.999, 0]]),
                         np.concatenate([again.ravel(), last]))
    (chart,) = latent_inside_outside(grammar, [["a"] * 400])
    assert chart.log_pcfg < 2 * np.log(np.finfo(float).tiny)
    assert chart.total == pytest.approx(1.0, rel=CLOSE)
    np.testing.assert_allclose(chart.entry_marginals, 1.0, rtol=CLOSE)


def test_parses_come_beside_those_of_the_pcfg():
    grammar = random_latent(small_pcfg(), 3, is_signed=True)
    found = list(latent_parses(grammar, SENTENCES))
    plain = list(parses(grammar.pcfg, SENTENCES))
    charts = list(latent_inside_outside(grammar, SENTENCES))
    assert len(found) == len(plain) == len(SENTENCES)
    for (first, second), expected, chart in zip(found, plain, charts, strict=True):
        assert first.spans == expected.spans
        assert (first.log_prob, first.n_attempts) == (expected.log_prob, expected.n_attempts)
        assert second.total == chart.total
        assert labelled_recall(second) == labelled_recall(chart)
