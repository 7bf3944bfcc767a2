"""The linear probe beside its slow twin, scikit-learn run to convergence, on inputs like hidden states: correlated,
of very different variance, some constant or the sum of others, classes from common to a single example."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression

from pcfg_artifact.probing.linear_probe import LinearProbe, fit_logistic
from pcfg_artifact.probing.standardisation import Standardisation
from pcfg_artifact.system.random_streams import stream


def hidden_states(seed: int, n: int = 900, d: int = 24) -> np.ndarray:
    """(n, d) float32 whose variances along their axes fall over five orders of magnitude."""
    rng = stream(seed, "test", "states")
    x = (rng.normal(size=(n, d)) * np.logspace(0, -2.5, d)) @ rng.normal(size=(d, d))
    x[:, -1] = x[:, :-1].sum(axis=1)  # as layer norm makes one coordinate follow from the others
    x[:, 0] = 3.25
    return x.astype(np.float32)


def depths(x: np.ndarray, seed: int, n_classes: int) -> np.ndarray:
    """Labels that the inputs decide in part, most of them in the middle: the rarest class has one example."""
    rng = stream(seed, "test", "depths")
    wanted = x @ rng.normal(size=x.shape[1])
    wanted = wanted / wanted.std() + 0.7 * rng.normal(size=len(x))
    labels = np.clip(np.round(wanted * n_classes / 6), -(n_classes // 2), (n_classes - 1) // 2).astype(np.int64)
    labels[labels == labels.max()] -= 1
    labels[0] = n_classes
    return labels


def converged(x: np.ndarray, labels: np.ndarray) -> LogisticRegression:
    return LogisticRegression(max_iter=20_000, tol=1e-7).fit(Standardisation.of(x)(x).astype(np.float64), labels)


@pytest.mark.parametrize("n_classes", [2, 3, 8, 25])
@pytest.mark.parametrize("seed", [0, 1])
def test_probabilities_are_those_of_scikit_learn(seed, n_classes):
    x = hidden_states(seed)
    labels = depths(x, seed, n_classes) if n_classes > 2 else (x[:, 3] > x[:, 5]).astype(np.int64)
    slow = converged(x, labels)
    fast = LinearProbe().fit(x, labels)
    assert fast.has_converged
    assert (fast.classes == slow.classes_).all()
    scores = fast.scores(x)
    found = np.exp(scores - scores.max(axis=1, keepdims=True))
    found /= found.sum(axis=1, keepdims=True)
    wanted = slow.predict_proba(Standardisation.of(x)(x))
    assert np.abs(found - wanted).mean() < 2e-3
    assert (fast.predict(x)[0] == slow.predict(Standardisation.of(x)(x))).mean() > 0.995


def loss_at(x, labels, weights, bias, penalty):
    log_prob = torch.log_softmax(x @ weights + bias, dim=1)
    return float(-log_prob[torch.arange(len(labels)), labels].mean() + penalty / 2 * weights.square().sum())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(3, 9), st.sampled_from([1e-4, 1e-2, 1.0]))
def test_no_direction_lowers_the_loss(seed, n_classes, penalty):
    x = hidden_states(seed, n=200, d=6)
    labels = torch.from_numpy(np.unique(depths(x, seed, n_classes), return_inverse=True)[1])
    inputs = torch.from_numpy(Standardisation.of(x)(x))
    exact = inputs.double()
    fit = fit_logistic(inputs, labels, int(labels.max()) + 1, penalty=penalty, max_iterations=1000, tolerance=1e-10)
    weights, bias = fit.weights.requires_grad_(), fit.bias.requires_grad_()
    log_prob = torch.log_softmax(exact @ weights + bias, dim=1)
    loss = -log_prob[torch.arange(len(labels)), labels].mean() + penalty / 2 * weights.square().sum()
    loss.backward()
    assert float(weights.grad.abs().max()) < 1e-4
    assert float(bias.grad.abs().max()) < 1e-4
    nobody = loss_at(exact, labels, torch.zeros_like(weights), torch.zeros_like(bias), penalty)
    assert loss_at(exact, labels, weights.detach(), bias.detach(), penalty) <= nobody


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_regressions_predict_what_scikit_learn_predicts(seed):
    x = hidden_states(seed)
    rng = stream(seed, "test", "numbers")
    targets = np.abs(x[:, 2]) + x @ rng.normal(size=x.shape[1]) + 5
    slow = LinearRegression().fit(Standardisation.of(x)(x).astype(np.float64), targets)
    fast = LinearProbe().fit(x, targets)
    wanted = slow.predict(Standardisation.of(x)(x))
    assert np.abs(fast.predict(x)[0] - wanted).max() < 1e-3 * targets.std()


def test_fewer_examples_than_inputs_are_fitted_exactly_by_the_smallest_weights():
    rng = stream(0, "test", "few")
    x, targets = rng.normal(size=(8, 20)).astype(np.float32), rng.normal(size=8)
    found = LinearProbe().fit(x, targets)
    assert found.predict(x)[0] == pytest.approx(targets, abs=1e-4)
    slow = LinearRegression().fit(Standardisation.of(x)(x).astype(np.float64), targets)
    assert np.linalg.norm(found.weights) == pytest.approx(np.linalg.norm(slow.coef_), rel=1e-3)


def test_inputs_are_left_alone_unless_they_may_be_overwritten():
    x = hidden_states(0, n=100, d=5)
    labels = depths(x, 0, 4)
    before = x.copy()
    kept = LinearProbe().fit(x, labels)
    assert (x == before).all()
    again = LinearProbe().fit(x.copy(), labels, overwrite_x=True)
    assert (kept.weights == again.weights).all()
