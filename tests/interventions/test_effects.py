"""Slope, correlation and signs by hand, and their errors over sentences."""

import numpy as np
import pytest

from pcfg_artifact.interventions.effects import Observations, half_way_step, mean_over_sentences, moments, slope
from pcfg_artifact.metrics.schema import Metric

EVERY = np.ones(3)


def observed(pairs) -> Observations:
    """One masked word a sentence, three words of equal probability."""
    seen = Observations()
    for sentence, (x, y) in enumerate(pairs):
        seen.add(sentence, (0, 2), np.array([4]), np.full((1, 3), 1 / 3), np.array([x], float), np.array([y], float))
    return seen


def estimates(pairs) -> dict[str, Metric]:
    return {found.metric: found for found in observed(pairs).estimates(np.ones(len(pairs), bool))}


def mean(sentence, values) -> Metric:
    return mean_over_sentences(sentence, values, table="interventions", metric="completeness", unit="fraction")


def test_a_model_that_does_half_has_slope_a_half_and_agrees_in_every_sign():
    found = estimates([([1, -1, 2], [0.5, -0.5, 1.0]), ([0.2, -3, 1], [0.1, -1.5, 0.5])])
    assert found["slope"].value == pytest.approx(0.5)
    assert found["slope"].error == pytest.approx(0.0, abs=1e-12)
    assert found["correlation"].value == pytest.approx(1.0)
    assert found["agreeing_signs"].value == 1.0


def test_a_model_that_does_nothing_agrees_by_halves_and_one_that_does_the_opposite_never():
    assert estimates([([1, -1, 2], [0, 0, 0])])["agreeing_signs"].value == 0.5
    found = estimates([([1, -1, 2], [-1, 1, -2])] * 2)
    assert (found["slope"].value, found["agreeing_signs"].value) == (-1.0, 0.0)


def test_words_without_a_finite_change_and_changes_without_a_sign_do_not_count():
    m = moments(np.array([0.5, 0.3, 0.2]), np.array([1.0, np.nan, 1e-5]), np.array([1.0, 9.0, -1.0]))
    assert m[0] == pytest.approx(0.7)
    assert (m[6], m[7]) == (0.5, 0.5)
    assert slope(m) == pytest.approx(1.0, rel=1e-4)


def test_the_error_of_a_mean_is_that_of_the_textbook():
    values = np.random.default_rng(0).normal(size=30)
    found = mean(np.arange(30), values)
    assert found.value == pytest.approx(values.mean())
    assert found.error == pytest.approx(values.std(ddof=1) / np.sqrt(30))
    assert mean(np.zeros(30, int), values).error is None  # one sentence has none


def test_errors_are_over_sentences_and_not_over_words():
    """The same sentence three times tells no more than once."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=10)
    once, thrice = mean(np.arange(10), values), mean(np.repeat(np.arange(10), 3), np.repeat(values, 3))
    assert once.error == pytest.approx(thrice.error)


def test_masked_words_whose_own_state_was_moved_are_told_apart():
    seen = Observations()
    seen.add(0, (1, 4), np.array([0, 1, 2, 3, 6]), *np.ones((3, 5, 3)))
    assert seen.distance == [1, 0, 1, 0, 3]
    assert seen.is_elsewhere.tolist() == [True, False, True, False, True]


def test_half_way_is_found_between_points_of_a_logarithmic_axis():
    assert half_way_step({0: 4.0, 10: 4.0, 1000: 0.0}) == pytest.approx(100.0)
    assert half_way_step({0: 0.0, 10: 1.0, 100: 0.2, 1000: 1.0}) == pytest.approx(10 ** 0.5)
    assert np.isnan(half_way_step({0: 1.0, 10: 2.0, 100: 1.0}))
