"""How far the next honest run may lie: measured on made-up runs whose scatter is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pcfg_artifact.verification.scatter import Scatter, joined, quantile, residuals_of

N_CELLS, N_FAMILIES, N_MODELS, ODDS = 24, 4, 400, 0.05


def frame(n_models: int = 1, n_cells: int = N_CELLS) -> pd.DataFrame:
    """Models with four families each; every family is a part of a table of its own."""
    number = np.repeat(np.arange(n_models * N_FAMILIES), n_cells)
    return pd.DataFrame({"family": number, "kin": number // N_FAMILIES, "part": number, "table": number,
                         "digits": 1e-9})


def runs(rng: np.random.Generator, n_runs: int, together: float, unequal: float, n_models: int = 1,
         tails: float | None = None) -> pd.DataFrame:
    """Numbers of several runs: `together` is the correlation of a family's cells, `unequal` how far the logarithms
    of their deviations lie apart, `tails` the degrees of freedom of a t distribution that they come from."""
    def draw(*shape):
        return rng.normal(size=shape) if tails is None else rng.standard_t(tails, size=shape)
    n_families = n_models * N_FAMILIES
    deviation = np.exp(unequal * rng.normal(size=(n_families, N_CELLS, 1)))
    common = draw(n_families, 1, n_runs) * np.sqrt(together)
    own = draw(n_families, N_CELLS, n_runs) * np.sqrt(1 - together)
    return pd.DataFrame((50 + deviation * (common + own)).reshape(-1, n_runs))


def shares_outside(n_runs: int, values: pd.DataFrame, about: pd.DataFrame, **tails) -> tuple[float, float]:
    """Of the models, those with a number outside its limit in the run after `n_runs`, and those with a mean."""
    known, now = values.iloc[:, :n_runs], values.iloc[:, n_runs]
    scatter, shift = Scatter(*residuals_of(known), about, **tails), now - known.mean(axis=1)
    outside = shift.abs() > scatter.cells.width(ODDS / (N_FAMILIES * N_CELLS), 1 + 1 / n_runs)
    mean = shift.groupby(about["part"]).mean()
    outside_mean = mean.abs() > scatter.means.width(ODDS / N_FAMILIES, 1 + 1 / n_runs)
    return (float(outside.groupby(about["kin"]).any().mean()),
            float(outside_mean.groupby(mean.index // N_FAMILIES).any().mean()))


@pytest.mark.parametrize("together", [0.0, 0.3, 0.8])
@pytest.mark.parametrize(("n_runs", "unequal", "times"), [
    (2, 0.0, 1.6), (3, 0.0, 1.6), (4, 0.0, 1.6), (3, 0.5, 1.6), (4, 0.5, 1.6),
    (2, 0.5, 3.0)])  # two runs show too little of how unequal cells are
def test_the_next_honest_run_seldom_lies_outside(together, n_runs, unequal, times):
    """Of the models, one in twenty may have a number outside its limit, and one in twenty a mean."""
    values = runs(np.random.default_rng(0), n_runs + 1, together, unequal, N_MODELS)
    for has_unseen_tails in (False, True):
        found = shares_outside(n_runs, values, frame(N_MODELS), has_unseen_tails=has_unseen_tails)
        assert max(found) <= times * ODDS


@pytest.mark.parametrize("together", [0.3, 0.8])
@pytest.mark.parametrize("n_runs", [3, 4])
def test_seeds_too_few_to_show_their_long_tails_are_not_taken_to_have_none(together, n_runs):
    values = runs(np.random.default_rng(0), n_runs + 1, together, 0.0, N_MODELS, tails=5)
    found = shares_outside(n_runs, values, frame(N_MODELS), has_unseen_tails=True)
    assert max(found) <= 1.6 * ODDS
    assert max(found) < max(shares_outside(n_runs, values, frame(N_MODELS)))


def test_a_family_knows_its_variance_better_than_a_cell_and_worse_where_its_cells_move_together():
    rng = np.random.default_rng(1)
    alone, moving = (Scatter(*residuals_of(runs(rng, 3, together, 0.0)), frame()) for together in (0.0, 0.9))
    assert alone.families.variance.mean() == pytest.approx(1.0, rel=0.2)
    assert alone.families.degrees.min() > 20
    assert moving.families.degrees.max() < 10
    assert alone.means.variance.mean() == pytest.approx(1 / N_CELLS, rel=0.5)
    assert moving.means.variance.mean() > 0.2


def test_cells_of_unequal_scatter_have_longer_tails_and_keep_more_of_their_own():
    rng = np.random.default_rng(2)
    equal, unequal = (Scatter(*residuals_of(runs(rng, 4, 0.0, spread)), frame()) for spread in (0.0, 1.0))
    assert unequal.cells.degrees.max() < equal.cells.degrees.min()
    own = (unequal.residuals**2).sum(axis=1)
    largest, smallest = own.idxmax(), own.idxmin()
    assert unequal.cells.variance[largest] > 2 * unequal.cells.variance[smallest]


def test_what_never_moved_has_no_width_and_no_say():
    rng = np.random.default_rng(3)
    values = runs(rng, 3, 0.0, 0.0)
    still = frame()["family"] == 0
    values[still] = 95.86
    scatter = Scatter(*residuals_of(values), frame())
    assert (scatter.cells.width(ODDS, 2)[still] == 0).all()
    assert (scatter.cells.width(ODDS, 2)[~still] > 1).all()
    assert scatter.means.width(ODDS, 2)[0] == 0


def test_one_run_alone_says_nothing():
    residuals, degrees = residuals_of(pd.DataFrame({"a": [1.0, 2.0], "b": [np.nan, 2.5]}))
    assert degrees.tolist() == [0, 1]
    about = frame(1, 2)[:2]
    scatter = Scatter(residuals, degrees, about)
    assert scatter.cells.variance.tolist() == [0.0, pytest.approx(0.125)]


def test_residuals_about_several_means_add_their_degrees():
    two = [residuals_of(pd.DataFrame({"a": [1.0], "b": [3.0]})), residuals_of(pd.DataFrame({"c": [5.0], "d": [5.0]}))]
    residuals, degrees = joined(two, pd.RangeIndex(1))
    assert degrees.tolist() == [2]
    assert sorted(residuals.iloc[0]) == [-1.0, 0.0, 0.0, 1.0]


def test_few_degrees_ask_for_more_deviations():
    assert quantile(1e6, 0.05) == pytest.approx(1.96, abs=0.01)
    assert quantile(2, 0.05) == pytest.approx(4.30, abs=0.01)
