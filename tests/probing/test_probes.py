"""The probes learn what is there and nothing that is not."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from pcfg_artifact.probing.linear_probe import LinearProbe
from pcfg_artifact.probing.probe_scores import accuracy, pearson, scatter_plot
from pcfg_artifact.probing.standardisation import Standardisation
from pcfg_artifact.probing.two_layer_probe import NetWeights, TwoLayerProbe, mean_losses, write_gradient
from pcfg_artifact.system.random_streams import stream

QUICK = TwoLayerProbe(epochs=60, milestones=(40,), batch_size=64, learning_rate=1e-2)
ROUNDING = 2e-4  # float32 sums in another order, after 60 epochs


@pytest.fixture
def labelled():
    """Integer labels -3 .. 3 and inputs that hold them one-hot among noise."""
    rng = stream(0, "test", "labelled")
    labels = rng.integers(-3, 4, 900)
    x = rng.normal(size=(900, 12)).astype(np.float32)
    x[:, :7] = 3 * np.eye(7, dtype=np.float32)[labels + 3]
    return x, labels


def test_a_probe_given_the_labels_as_input_reaches_accuracy_one(labelled):
    x, labels = labelled
    assert accuracy(labels[600:], LinearProbe().fit(x[:600], labels[:600]).predict(x[600:])[0]) == 1.0
    predicted = QUICK.fit(x[:600], labels[:600], seeds=[0, 1]).predict(x[600:])
    assert predicted.shape == (2, 300)
    assert [accuracy(labels[600:], p) for p in predicted] == [1.0, 1.0]


def test_a_probe_on_shuffled_labels_does_not_beat_the_majority_class(labelled):
    x, labels = labelled
    # A skewed distribution, so that the majority class is worth having.
    shuffled = stream(0, "test", "shuffle").permutation(np.where(np.abs(labels) < 3, 0, labels))
    majority = np.mean(shuffled[600:] == np.bincount(shuffled[:600] + 3).argmax() - 3)
    noise = 3 * np.sqrt(majority * (1 - majority) / 300)  # three standard errors of 300 answers
    linear = LinearProbe().fit(x[:600], shuffled[:600]).predict(x[600:])[0]
    assert accuracy(shuffled[600:], linear) <= majority + noise
    for predicted in QUICK.fit(x[:600], shuffled[:600], seeds=[0, 1]).predict(x[600:]):
        assert accuracy(shuffled[600:], predicted) <= majority + noise


def test_networks_fitted_together_equal_networks_fitted_alone(labelled):
    x, _ = labelled
    few = TwoLayerProbe(epochs=5, milestones=(3,), batch_size=100)
    together = few.fit(x, x[:, 0], seeds=[0, 5, 7])
    for s, seed in enumerate([0, 5, 7]):
        alone = few.fit(x, x[:, 0], seeds=[seed])
        assert together.predict(x)[s] == pytest.approx(alone.predict(x)[0], abs=ROUNDING)
        assert together.losses[s] == pytest.approx(alone.losses[0], abs=ROUNDING)
    assert np.abs(together.predict(x)[0] - together.predict(x)[1]).max() > 10 * ROUNDING


@pytest.mark.parametrize("has_classes", [True, False])
def test_the_gradient_written_by_hand_is_the_automatic_one(has_classes):
    rng = torch.Generator().manual_seed(0)
    shapes = [(6, 2 * 5), (2 * 5,), (2, 5, 3 if has_classes else 1), (2, 1, 3 if has_classes else 1)]
    weights = NetWeights(*(torch.randn(shape, generator=rng).requires_grad_() for shape in shapes))
    found = NetWeights(*(torch.empty(shape) for shape in shapes))
    x = torch.randn(40, 6, generator=rng)
    wanted = torch.randint(3, (40,), generator=rng) if has_classes else torch.randn(40, generator=rng)
    with torch.no_grad():
        write_gradient(weights, found, x, wanted, has_classes)
    scores = [torch.relu(x @ weights.hidden + weights.hidden_bias)[:, 5 * s:5 * s + 5] @ weights.outer[s]
              + weights.bias[s] for s in range(2)]
    expected = [functional.cross_entropy(score, wanted) if has_classes else functional.mse_loss(score[:, 0], wanted)
                for score in scores]
    sum(expected).backward()
    losses = mean_losses(weights, x, wanted, has_classes)
    assert losses.tolist() == pytest.approx([loss.item() for loss in expected], rel=1e-5)
    for one, other in zip(found, weights, strict=True):
        assert torch.allclose(one, other.grad, rtol=1e-4, atol=1e-6)


def test_regression_recovers_a_linear_map_and_the_net_a_curved_one():
    rng = stream(1, "test", "regression")
    x = rng.normal(size=(800, 6)).astype(np.float32)
    straight, curved = x @ np.arange(6) + 2.0, np.abs(x[:, 0])
    linear = LinearProbe().fit(x, straight)
    assert linear.predict(x)[0] == pytest.approx(straight, abs=1e-3)
    assert abs(pearson(curved, LinearProbe().fit(x, curved).predict(x)[0])) < 0.3
    assert pearson(curved, QUICK.fit(x, curved, seeds=[0]).predict(x)[0]) > 0.95


def test_linear_fit_says_whether_it_converged(labelled):
    x, labels = labelled
    done = LinearProbe(linear_iterations=500).fit(x, labels)
    assert done.has_converged
    assert 1 < done.n_iterations < 500
    cut = LinearProbe(linear_iterations=2).fit(x, labels)
    assert not cut.has_converged
    assert cut.n_iterations == 2


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_linear_probe_predicts_what_scikit_learn_predicts(n_classes):
    from sklearn.linear_model import LogisticRegression

    rng = stream(2, "test", n_classes)
    x = rng.normal(size=(300, 4)).astype(np.float32)
    labels = np.digitize(x[:, 0] + 0.3 * rng.normal(size=300), [-0.5, 0.5][:n_classes - 1]) - 1
    predicted = LinearProbe().fit(x, labels).predict(x)[0]
    if n_classes == 1:
        assert set(predicted) == set(labels)
    else:
        standardised = Standardisation.of(x)(x)
        assert (predicted == LogisticRegression(max_iter=1000).fit(standardised, labels).predict(standardised)).all()


def test_standardisation_gives_mean_zero_and_scale_one_and_keeps_constant_columns_finite():
    x = np.column_stack([np.arange(10.0), np.full(10, 1234.567)]).astype(np.float32)
    standardised = Standardisation.of(x)(x)
    assert standardised[:, 0].mean() == pytest.approx(0, abs=1e-6)
    assert standardised[:, 0].std() == pytest.approx(1, abs=1e-6)
    assert standardised[:, 1] == pytest.approx(0, abs=1e-3)
    assert standardised.dtype == np.float32


def test_networks_are_repeatable(labelled):
    x, labels = labelled
    few = TwoLayerProbe(epochs=3, milestones=(), batch_size=100)
    first, second = (few.fit(x, labels, seeds=[3]) for _ in range(2))
    assert (first.weights.outer == second.weights.outer).all()


def test_one_hidden_unit_is_enough_to_fit():
    x, labels = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32), np.arange(50) % 2
    one = TwoLayerProbe(n_hidden=1, epochs=2, milestones=(1,), batch_size=25)
    assert one.fit(x, labels, seeds=[0, 1]).predict(x).shape == (2, 50)


def test_a_scatter_plot_without_predictions_has_no_line():
    nothing = scatter_plot(np.zeros(3), np.full(3, np.nan), 10, 0)
    assert nothing == {"true": [], "predicted": [], "slope": None, "intercept": None}
