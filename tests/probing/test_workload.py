"""The arithmetic of fits: operations counted one by one."""

import pytest

from pcfg_artifact.probing.linear_probe import LinearProbe
from pcfg_artifact.probing.two_layer_probe import TwoLayerProbe
from pcfg_artifact.probing.workload import N_LABELS, work_of_fit
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.plan import n_fits, probing_work


def test_a_regression_is_one_product_of_the_inputs_with_themselves():
    assert work_of_fit(LinearProbe(), 10, 4, has_labels=False, n_seeds=1) == (2 * 10 * 4 * 4, 1)


def test_a_logistic_regression_adds_the_rotation_and_two_products_a_step():
    work = work_of_fit(LinearProbe(linear_iterations=3), 10, 4, has_labels=True, n_seeds=1)
    assert work == (2 * (2 * 10 * 4 * 4) + 3 * 2 * (2 * 10 * 4 * N_LABELS), 3)


def test_nets_read_their_inputs_twice_a_step_and_their_hidden_layer_three_times():
    probe = TwoLayerProbe(n_hidden=3, epochs=5, batch_size=4)
    work = work_of_fit(probe, 10, 4, has_labels=False, n_seeds=2)
    assert work == (5 * (2 * (2 * 10 * 4 * 6) + 3 * (2 * 10 * 6 * 1)), 5 * 3)


def test_a_probe_of_unknown_cost_counts_as_a_linear_one_for_each_seed():
    class UnknownProbe:
        pass

    for has_labels in (False, True):
        expected = work_of_fit(LinearProbe(), 20, 4, has_labels=has_labels, n_seeds=1)
        assert work_of_fit(UnknownProbe(), 10, 4, has_labels=has_labels, n_seeds=2) == expected
        assert expected.operations > 0


@pytest.mark.parametrize("stage", ["probe", "control"])
def test_every_fit_has_its_work(stage):
    profile = load_profile("reduced")
    assert len(list(probing_work(profile, stage))) == n_fits(profile, stage)


def test_probing_of_the_paper_profile_is_within_the_hour_by_this_arithmetic():
    profile = load_profile("paper")
    seconds = sum(work.seconds("cuda") for stage in ("probe", "control") for work in probing_work(profile, stage))
    assert seconds / 8 < 3600
