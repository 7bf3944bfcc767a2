"""States from which a probe reads another answer."""

import numpy as np
import pytest

from pcfg_artifact.interventions.edit_states import moved, nearest, random_steps, span_inputs, with_span
from pcfg_artifact.probing.linear_probe import LinearProbe
from pcfg_artifact.probing.two_layer_probe import TwoLayerProbe


@pytest.fixture(scope="module")
def examples():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(400, 6)) * [1, 2, 0.5, 3, 1, 1]).astype(np.float32)
    return x, 0.5 + 0.1 * x[:, 0] - 0.05 * x[:, 3] + 0.01 * rng.normal(size=400)


def test_the_step_of_a_linear_probe_is_the_smallest_along_its_weight(examples):
    x, y = examples
    probe = LinearProbe().fit(x, y)
    weight = probe.weights[:, 0] / probe.standardise.scale
    expected = x[:5] + (1.0 - probe.predict(x[:5])[0])[:, None] * weight / (weight @ weight)
    found = moved(probe, x[:5], 1.0)
    np.testing.assert_allclose(found, expected, atol=5e-3)
    np.testing.assert_allclose(probe.predict(found)[0], 1.0, atol=1e-3)


@pytest.mark.parametrize("answer", [0.0, 1.0])
def test_the_2_layer_probe_answers_what_it_should(examples, answer):
    x, y = examples
    probe = TwoLayerProbe(epochs=30, learning_rate=1e-2, milestones=(20,), batch_size=64).fit(x, y, (0,))
    reached = np.abs(probe.predict(moved(probe, x[:20], answer))[0] - answer) < 0.05
    assert reached.mean() >= 0.9  # a net need not reach every answer


def test_random_steps_are_as_long_as_those_of_the_probe(examples):
    x, _ = examples
    ones, zeros = random_steps(x[:5], x[:5] + 2.0, x[:5] - 1.0, seed=0)
    np.testing.assert_allclose(np.linalg.norm(ones - x[:5], axis=1), 2 * 6 ** 0.5, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(zeros - x[:5], axis=1), 6 ** 0.5, rtol=1e-5)
    np.testing.assert_allclose(ones - x[:5], -2 * (zeros - x[:5]), rtol=1e-4, atol=1e-4)


def test_the_states_of_a_span_are_those_of_its_first_and_last_word():
    states = np.arange(14, dtype=np.float32).reshape(7, 2)  # five words between BOS and EOS
    x = span_inputs(states, 3)
    assert x.tolist() == [[2, 3, 6, 7], [4, 5, 8, 9], [6, 7, 10, 11]]
    assert span_inputs(states, 6).shape == (0, 4)
    changed = with_span(states, (1, 4), np.full((2, 4), -1, np.float32))
    assert (changed[1] == -1).all(axis=1).nonzero()[0].tolist() == [2, 4]
    assert (changed[0, [0, 1, 3, 5, 6]] == states[[0, 1, 3, 5, 6]]).all()


def test_the_nearest_of_a_pool_is_taken():
    pool = np.array([[0.0, 0.0], [5.0, 5.0]], np.float32)
    assert nearest(pool, np.array([[1.0, 0.0], [4.0, 9.0]])).tolist() == [[0.0, 0.0], [5.0, 5.0]]
