"""Learned transforms: the formula of X in plain loops, orthonormal eigenvectors, a steady basis, what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcfg_artifact.approximation.transforms import (
    STATISTICS,
    Correlations,
    leading_eigenvectors,
    span_vectors,
    steady_basis,
)
from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.engine import inside_outside

GRAMMAR = PCFG.from_rules(
    root={"S": 1.0},
    binary=[("S", "NP", "VP", 0.7), ("S", "S", "S", 0.2), ("S", "NP", "V", 0.1), ("NP", "D", "N", 0.6),
            ("NP", "NP", "PP", 0.4), ("VP", "V", "NP", 0.5), ("VP", "VP", "PP", 0.2), ("VP", "V", "N", 0.3),
            ("PP", "P", "NP", 1.0)],
    lexical=[("D", "the", 1.0), ("N", "dog", 0.5), ("N", "park", 0.5), ("V", "sees", 1.0), ("P", "in", 1.0)])
SENTENCES = [["the", "dog", "sees", "the", "park", "in", "the", "park", "in", "the", "dog"],
             ["the", "dog", "sees", "the", "dog"],
             ["the", "dog", "sees", "park"], ["dog", "dog"]]
KEPT = np.array([2, 0, 1])  # VP, S, NP in an order of our own


def slow_correlation(statistic: str, width: int) -> np.ndarray:
    total = np.zeros((len(KEPT), len(KEPT)))
    for chart in inside_outside(GRAMMAR, SENTENCES, backend="reference", outside="full"):
        if chart.log_prob == -np.inf:
            continue
        values = {"marginals": chart.marginals, "inside": np.exp(chart.log_inside),
                  "outside": np.exp(chart.log_outside)}[statistic]
        of_sentence = np.zeros_like(total)
        for i in range(chart.length - width + 1):
            vector = values[i, i + width, KEPT]
            of_sentence += np.outer(vector, vector)
        norm = np.sqrt((of_sentence ** 2).sum())
        if norm > 0:
            total += of_sentence / norm
    return total


@pytest.mark.parametrize("statistic", STATISTICS)
def test_projection_on_leading_eigenvectors_of_the_formula_as_written(statistic):
    correlations = Correlations(KEPT, 20)
    for chart in inside_outside(GRAMMAR, SENTENCES, outside="full"):
        correlations.add(chart, statistic)
    assert correlations.n_sentences == 3  # `dog dog` has no probability
    for rank in (1, 2):
        for width, w in correlations.transforms(rank).items():
            values, vectors = np.linalg.eigh(slow_correlation(statistic, width))
            if values[-rank] - (values[-rank - 1] if rank < 3 else 0.0) > 1e-6:  # otherwise the choice is not unique
                expected = vectors[:, -rank:] @ vectors[:, -rank:].T
                np.testing.assert_allclose(np.linalg.pinv(w) @ w, expected, atol=1e-8)


def test_shared_transform_comes_from_the_sum_over_widths():
    correlations = Correlations(KEPT, 20)
    for chart in inside_outside(GRAMMAR, SENTENCES):
        correlations.add(chart)
    expected = leading_eigenvectors(sum(slow_correlation("marginals", width) for width in range(2, 12)), 1)
    shared = correlations.shared_transform(1)
    assert len(shared) == 1
    w = next(iter(shared.values()))
    np.testing.assert_allclose(np.linalg.pinv(w) @ w, expected.T @ expected, atol=1e-9)


def test_widths_that_no_sentence_has_get_no_transform():
    correlations = Correlations(KEPT, 20)
    for chart in inside_outside(GRAMMAR, SENTENCES[1:]):
        correlations.add(chart)
    assert max(correlations.transforms(1)) == 5


def test_order_of_sentences_does_not_matter_and_nothing_of_them_is_kept():
    one, other = Correlations(KEPT, 11), Correlations(KEPT, 11)
    charts = inside_outside(GRAMMAR, SENTENCES)
    size = one._sums.nbytes
    for chart in charts:
        one.add(chart)
    for chart in charts[::-1]:
        other.add(chart)
    np.testing.assert_allclose(one._sums, other._sums, rtol=1e-12)
    assert one._sums.nbytes == size
    assert not any(isinstance(value, list | dict) for value in vars(one).values())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(2, 8), data=st.data())
def test_eigenvectors_are_orthonormal_and_sorted_by_eigenvalue(seed, n, data):
    rank = data.draw(st.integers(1, n))
    root = np.random.default_rng(seed).random((n, n))
    matrix = root @ root.T
    w = leading_eigenvectors(matrix, rank)
    np.testing.assert_allclose(w @ w.T, np.eye(rank), atol=1e-10)
    energy = np.einsum("ra,ab,rb->r", w, matrix, w)
    assert (np.diff(energy) <= 1e-9).all()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(1, 9), data=st.data())
def test_a_steady_basis_spans_the_same_space_and_some_symbols_stand_for_themselves(seed, n, data):
    rank = data.draw(st.integers(1, n))
    vectors = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, rank)))[0].T
    w = steady_basis(vectors)
    np.testing.assert_allclose(np.linalg.pinv(w) @ w, vectors.T @ vectors, atol=1e-9)
    assert sum(bool((column == unit).all()) for column in w.T for unit in np.eye(rank)) >= rank


def test_small_entries_of_the_projection_keep_their_digits_in_a_steady_basis_alone():
    # Five symbols lie in the space but for 1e-5 of a sixth: the projection mixes any two of them by some 1e-10.
    rng = np.random.default_rng(0)
    tilted = np.hstack([np.eye(5), 1e-5 * rng.normal(size=(5, 1))])
    vectors = np.linalg.qr(tilted.T @ rng.normal(size=(5, 5)))[0].T
    found = {}
    for name, w in (("eigenvectors", vectors), ("steady", steady_basis(vectors))):
        terms = np.einsum("ar,rb->rab", np.linalg.pinv(w), w)  # summed in two orders
        forth, back = (np.add.accumulate(t)[-1] for t in (terms, terms[::-1]))
        found[name] = np.max(np.abs(forth - back) / np.abs(forth))
    assert found["steady"] <= 1e-15
    assert found["eigenvectors"] >= 1e-9


def test_symbols_that_never_occur_stay_exactly_zero():
    matrix = np.zeros((4, 4))
    matrix[:2, :2] = [[2.0, 1.0], [1.0, 2.0]]
    w = leading_eigenvectors(matrix, 2)
    assert not w[:, 2:].any()
    assert not steady_basis(w)[:, 2:].any()


def test_what_cannot_be_learned_is_refused():
    correlations = Correlations(KEPT, 5)
    with pytest.raises(UsageError, match="no sentence of two or more words"):
        correlations.transforms(1)
    with pytest.raises(UsageError, match="rank 0 was asked for"):
        correlations.transforms(0)
    long, short = inside_outside(GRAMMAR, SENTENCES[:2])
    with pytest.raises(UsageError, match="11 words; these correlations reach 5"):
        correlations.add(long)
    with pytest.raises(UsageError, match="statistic 'beta' is unknown"):
        span_vectors(short, KEPT, "beta")
