"""What a few runs say of many numbers: how far the next honest run may lie from them.

Every number was run a few times only, but many numbers measure the same thing.  Three things are measured of them:

- the variance of a family, over its cells and runs;
- how unequally its cells scatter.  Cells of unequal variance have long tails together: the kurtosis of all their
  standardised residuals gives the degrees of freedom of a t distribution with such tails, and beside so many degrees
  of its family a cell's own variance counts with its own few.  Few seeds show few of their tails, so theirs counts
  with the standard error of a kurtosis added;
- how far the cells of one run move together (the intra-class correlation).  It says how many of them count as
  independent, and how far their mean moves.

Tails and correlation are measured over all families of one model, stage and scale, since a few runs show little of
one family.  Nothing is pooled over models.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import pandas as pd
from scipy import stats

GAUSSIAN = 3.0  # kurtosis
VARIANCE_OF_KURTOSIS = 24.0  # of n independent normal numbers, times n
ALL_ALIKE = 1e4  # degrees of freedom: as good as a normal distribution


@dataclass(frozen=True)
class Variances:
    """A variance, and how many degrees of freedom it is known with, for each of many numbers."""

    variance: pd.Series
    degrees: pd.Series

    def width(self, odds: float, times: float) -> pd.Series:
        """How far an honest number lies away with these odds, its variance being `times` the one measured."""
        return (stats.t.isf(odds / 2, self.degrees) * (times * self.variance).pow(0.5)).fillna(0.0)

    def at_least(self, other: Variances) -> Variances:
        """The larger variance of the two, each with its own degrees."""
        return self.where_not(other.variance > self.variance, other)

    def where_not(self, replaced: pd.Series, other: Variances) -> Variances:
        return Variances(self.variance.mask(replaced, other.variance), self.degrees.mask(replaced, other.degrees))


@dataclass(frozen=True)
class Scatter:
    """Residuals of runs that should agree: a row a cell, a column a run, NaN where a run does not count for a cell."""

    residuals: pd.DataFrame
    degrees: pd.Series  # by cell: the number of runs that count, less the means taken
    frame: pd.DataFrame  # by cell: family, kin, part, table, and digits (what the digits kept leave out)
    has_unseen_tails: bool = False  # a run may do what none of these did: seeds may, one seed calculated otherwise less

    @cached_property
    def families(self) -> Variances:
        """Of each family that moved."""
        number, has_moved = self.frame["family"], self._has_moved()
        square = self._square().where(has_moved)
        n_cells = square.groupby(number).count()
        runs = self.degrees.where(has_moved).groupby(number).max()
        correlation = self._kin(number).map(self._correlation(square, number)).fillna(1.0)
        # squares of two numbers correlate by the square of their correlation
        n_independent = n_cells / (1 + (n_cells - 1) * correlation**2)
        return Variances(square.groupby(number).mean(), runs * n_independent)

    @cached_property
    def cells(self) -> Variances:
        """Of each cell: its family's variance, and its own as far as cells of a family are unlike."""
        number, has_moved, of = self.frame["family"], self._has_moved(), self.families
        pooled, known = number.map(of.variance), number.map(of.degrees)
        alike = self.frame["kin"].map(self._tails).fillna(ALL_ALIKE)
        variance = (alike * pooled + self.degrees * self._square()) / (alike + self.degrees)
        degrees = 1 / (1 / (alike + self.degrees) + 1 / known)  # neither a cell's place nor its family is known well
        return Variances(variance.where(has_moved, 0.0), degrees.where(has_moved, ALL_ALIKE))

    @cached_property
    def means(self) -> Variances:
        """Of the mean of each part of a table: what its cells' variances and correlation say, and its own few means.

        The means of one table repeat each other; the tables that a model's numbers stand in are counted as so many
        samples of how far means move.
        """
        number, variance = self.frame["part"], self.cells.variance
        counted = self.residuals.where(self._has_moved(), 0.0).where(self.degrees > 0)
        runs = self.degrees.groupby(number).max()
        own = (counted.groupby(number).mean() ** 2).sum(axis=1) / runs.where(runs > 0)
        cells, n_cells = variance.groupby(number).mean(), variance.groupby(number).size()
        together = self._kin(number).map(self._correlation(variance.where(variance > 0), number)).fillna(1.0)
        expected = cells * (1 + (n_cells - 1) * together) / n_cells
        tables = self.frame["table"].where(variance > 0).groupby(self.frame["kin"]).nunique()
        n_tables = self._kin(number).map(tables).clip(lower=1)
        known = self.cells.degrees.groupby(number).mean()  # their variance; beside it, how far they move together
        degrees = 1 / (1 / known + 1 / (n_tables * runs).clip(lower=1))
        return Variances(((n_tables * expected + own) / (n_tables + 1)).fillna(0.0), degrees)

    def _square(self) -> pd.Series:
        """The variance of each cell alone."""
        return (self.residuals**2).sum(axis=1) / self.degrees.where(self.degrees > 0)

    def _has_moved(self) -> pd.Series:
        """Whether some cell of the family moved at all, in the digits that are kept."""
        moved = self.residuals.max(axis=1) - self.residuals.min(axis=1) > self.frame["digits"]
        return moved.groupby(self.frame["family"]).transform("any") & (self.degrees > 0)

    def _kin(self, number: pd.Series) -> pd.Series:
        return self.frame["kin"].groupby(number).first()

    def _correlation(self, variance: pd.Series, number: pd.Series) -> pd.Series:
        """Intra-class correlation of the cells of one `number` (family or part), by kin: how far their mean moves
        beyond what independent cells would let it."""
        runs = self.degrees.where(variance.notna()).groupby(number).max()
        mean = (self.residuals.where(variance.notna()).groupby(number).mean() ** 2).sum(axis=1) / runs
        n_cells, square = variance.groupby(number).count(), variance.groupby(number).mean()
        found = ((n_cells * mean / square - 1) / (n_cells - 1)).where((n_cells > 1) & (square > 0))
        weight, kin = n_cells.where(found.notna()), self._kin(number)
        return ((found * weight).groupby(kin).sum() / weight.groupby(kin).sum()).clip(0.0, 1.0)

    @cached_property
    def _tails(self) -> pd.Series:
        """Degrees of freedom of the t distribution whose kurtosis the standardised residuals of a kin may have."""
        runs, pooled = self.degrees.where(self.degrees > 0), self.frame["family"].map(self.families.variance)
        standardised = self.residuals.where(pooled > 0).div(pooled.pow(0.5), axis=0)
        standardised = standardised.mul(((runs + 1) / runs).pow(0.5), axis=0)  # a mean was taken from them
        kin, n = self.frame["kin"], standardised.notna().sum(axis=1)
        n_values = n.groupby(kin).sum()
        second, fourth = ((standardised**power).sum(axis=1).groupby(kin).sum() / n_values for power in (2, 4))
        excess = fourth / second**2 - GAUSSIAN
        if self.has_unseen_tails:
            known = self.families.degrees.groupby(self._kin(self.frame["family"])).sum()
            excess += (VARIANCE_OF_KURTOSIS / known).pow(0.5)
        return (4 + 6 / excess.where(excess > 0)).fillna(ALL_ALIKE).clip(upper=ALL_ALIKE)


@cache
def quantile(degrees: float, odds: float) -> float:
    """How many deviations, measured with so many degrees of freedom, one honest number in 1 / odds exceeds."""
    return float(stats.t.isf(odds / 2, degrees))


def residuals_of(values: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """Runs less their mean, and the degrees of freedom left; a cell that was run once has none."""
    n_runs = values.notna().sum(axis=1)
    return values.sub(values.mean(axis=1), axis=0).where(n_runs > 1, axis=0), (n_runs - 1).clip(lower=0)


def joined(of_seeds: list[tuple[pd.DataFrame, pd.Series]], index: pd.Index) -> tuple[pd.DataFrame, pd.Series]:
    """Residuals about several means side by side."""
    degrees = sum((degrees for _, degrees in of_seeds), pd.Series(0, index))
    return pd.concat([pd.DataFrame(index=index), *(residuals for residuals, _ in of_seeds)], axis=1), degrees
