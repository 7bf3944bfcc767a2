"""How far honest runs lie apart: at one seed under other arithmetic (drift), and over seeds.

Both are measured, per cell and per family of cells of one model.  A run of a recorded seed is compared with that
seed's own numbers and may drift; a run of another seed is compared with the mean and may scatter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import pandas as pd
from scipy import stats

from pcfg_artifact.verification.cells import Cell
from pcfg_artifact.verification.expectations import Record, Rerun
from pcfg_artifact.verification.families import Family, family, group, is_exact, is_low_rank, is_trained, scaled

# A limit is so many deviations.  A run has some three thousand cells and all of them must stay inside: over 21,000
# numbers of recorded seeds left out in turn the largest had 5.3 deviations of a family of four cells or more.  Families
# of fewer samples know their deviation less well: there, one honest number in 10,000 may fall outside.
N_DEVIATIONS = 6.0
ODDS = 1e-4
ROUNDING = 1e-6  # relative: what the file's digits leave out
# What rounding alone may change, by unit: another machine may break a tie of two trees otherwise.
FLOOR = {"percent": 0.02, "perplexity": 1e-4, "fraction": 0.0005, "tokens": 0.002, "nats": 0.0005, "count": 0.0,
         "bool": 0.0,
         "relative_error": 1e-9}  # rounding errors near 1e-15: their size, not their value, is the finding
OTHER_FLOOR = 1e-6


@dataclass(frozen=True)
class Limit:
    """How far a cell may lie from what is expected, on the scale of `scaled`, and what says so."""

    expected: float
    width: float
    why: str  # rounding, drift, seeds
    is_measured: bool = True  # some recorded run lies apart from the others


@dataclass(frozen=True)
class GroupLimit:
    """How far the mean of a group of cells may shift, on the scale of `scaled`."""

    cells: tuple[Cell, ...]
    expected: dict[Cell, float]
    width: float


class Spread:
    """The numbers of a record on their scales, and what they say of each cell, family and group."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.cells = tuple(record.units)
        units = [record.units[cell] for cell in self.cells]
        stages = [record.stages[cell] for cell in self.cells]
        families = [family(cell, unit) for cell, unit in zip(self.cells, units, strict=True)]
        self.groups = [group(cell, unit) for cell, unit in zip(self.cells, units, strict=True)]
        self.frame = pd.DataFrame({
            "unit": units, "family": pd.factorize(pd.Series(families, dtype=object))[0],
            "group": pd.factorize(pd.Series(self.groups, dtype=object))[0],
            "is_low_rank": [is_low_rank(cell) for cell in self.cells],
            "is_exact": [is_exact(cell, stage) for cell, stage in zip(self.cells, stages, strict=True)],
            "is_trained": [is_trained(stage) for stage in stages]})
        self.by_seed = {seed: self._column(values) for seed, values in record.by_seed.items()}
        self.drift = pd.DataFrame({
            f"{rerun.seed} {rerun.arithmetic}": _difference(self._column(values), self.by_seed[rerun.seed])
            for rerun, values in record.drift.items()}, index=self.frame.index)

    def _column(self, values: dict[Cell, float]) -> np.ndarray:
        return np.array([scaled(values.get(cell, math.nan), self.record.units[cell]) for cell in self.cells])

    # ---- cells ------------------------------------------------------------------------------------------------------

    def limits(self, seed: int | None) -> dict[Cell, Limit]:
        """Cell -> limit, for a run of that seed: of its own recorded numbers if there are some, else of all seeds."""
        frame = self.frame
        seeds = pd.DataFrame(self.by_seed)
        floor = frame["unit"].map(lambda unit: FLOOR.get(unit, OTHER_FLOOR))
        width, why = self._seed_widths(seeds), pd.Series("seeds", frame.index)
        expected = seeds.replace([np.inf, -np.inf], np.nan).mean(axis=1).fillna(seeds.iloc[:, 0])
        if seed in self.by_seed:
            expected = pd.Series(self.by_seed[seed])
            if not self.drift.empty:
                width, why = self._drift_widths(), pd.Series("drift", frame.index)
            width, why = width.mask(frame["is_exact"], 0.0), why.mask(frame["is_exact"], "rounding")
        size = expected.abs().where(np.isfinite(expected), 0.0)
        is_whole = (frame["unit"] == "count") & (size % 1 == 0)  # whole numbers are exact
        is_measured = width > 0
        width = width + floor + (ROUNDING * size).mask(is_whole, 0.0)
        return {cell: Limit(*values) for cell, *values in zip(self.cells, expected, width, why, is_measured,
                                                              strict=True)}

    def _drift_widths(self) -> pd.Series:
        """So many times the drift of the family that honest runs stay inside; the fewer samples, the more times."""
        square = (self.drift**2).mean(axis=1)  # NaN where a cell is undefined or absent
        by_family = square.groupby(self.frame["family"])
        times = by_family.transform("count").map(lambda n: deviations(self.drift.shape[1], n))
        pooled = by_family.transform("mean")
        return times * np.sqrt(np.fmax(pooled, square)).fillna(0.0)

    def _seed_widths(self, seeds: pd.DataFrame) -> pd.Series:
        """The larger of a cell's own deviation over seeds and its family's, as many times as its samples need.

        A number that all seeds agree on to the last digit depends on no seed: it has no width, and no say in its
        family.  Whole numbers may agree by chance, and low rank is stable until it jumps.
        """
        seeds = seeds.replace([np.inf, -np.inf], np.nan)
        size, own = seeds.abs().max(axis=1), seeds.var(axis=1, ddof=1)
        is_settled = ((seeds.max(axis=1) - seeds.min(axis=1) <= ROUNDING * size) & (size % 1 != 0)
                      & ~self.frame["is_low_rank"])
        own = own.mask(is_settled)
        by_family = own.groupby(self.frame["family"])
        n_seeds = seeds.shape[1]
        times = by_family.transform("count").map(lambda n: deviations(max(n_seeds - 1, 1), n))
        deviation = np.sqrt(np.fmax(by_family.transform("mean"), own)).mask(is_settled, 0.0).fillna(0.0)
        return times * math.sqrt(1 + 1 / n_seeds) * deviation

    # ---- means ------------------------------------------------------------------------------------------------------

    def group_limits(self, seed: int | None) -> dict[Family, GroupLimit]:
        """Group -> how far its mean may shift."""
        seeds = pd.DataFrame(self.by_seed).replace([np.inf, -np.inf], np.nan)
        expected = pd.Series(self.by_seed[seed]) if seed in self.by_seed else seeds.mean(axis=1)
        over_seeds = seeds.groupby(self.frame["group"]).mean()
        scatter = over_seeds.std(axis=1, ddof=1)
        times = quantile(max(seeds.shape[1] - 1, 1), ODDS) * math.sqrt(1 + 1 / seeds.shape[1])
        width = times * scatter
        if seed in self.by_seed and not self.drift.empty:
            width = self._group_drift(scatter)
        widths = dict(width)
        members: dict[int, list[int]] = {}
        for position, number in enumerate(self.frame["group"]):
            members.setdefault(number, []).append(position)
        found = {}
        for number, positions in members.items():
            cells = tuple(self.cells[p] for p in positions)
            unit = self.groups[positions[0]].unit
            floor = FLOOR.get(unit, OTHER_FLOOR)
            found[self.groups[positions[0]]] = GroupLimit(
                cells, {self.cells[p]: float(expected[p]) for p in positions}, float(widths[number]) + floor)
        return found

    def _group_drift(self, scatter: pd.Series) -> pd.Series:
        """Drift of the means; few reruns say little of one mean, so that a model's means say together how much of
        their scatter over seeds arithmetic alone explains."""
        shift = self.drift.groupby(self.frame["group"]).mean()
        own = (shift**2).mean(axis=1)
        models = pd.Series({number: self.groups[p].model for p, number in enumerate(self.frame["group"])})
        ratio = (own / scatter**2).replace([np.inf, -np.inf], np.nan)
        share = ratio.groupby(models).transform("mean")
        together = (share * scatter**2).where(own > 0, 0.0)
        n = self.drift.shape[1]
        return quantile(3.0 * n, ODDS) * np.sqrt(np.fmax(own, together)).fillna(0.0)


@lru_cache(maxsize=32)
def spread_of(record: Record) -> Spread:
    return Spread(record)


def moved_exact_cells(record: Record, rerun: Rerun) -> list[tuple[Cell, float, float]]:
    """Cells without training that this rerun moved by more than rounding, with both numbers; there should be none."""
    spread = spread_of(record)
    before, now = record.by_seed[rerun.seed], record.drift[rerun]
    return [(cell, before.get(cell, math.nan), now.get(cell, math.nan))
            for cell, limit in spread.limits(rerun.seed).items() if limit.why == "rounding"
            and not abs(scaled(now.get(cell, math.nan), record.units[cell]) - limit.expected) <= limit.width
            and cell in before]


def deviations(n_runs: int, n_cells: int) -> float:
    """How many deviations make a limit; cells of one family move together, and count as the root of their number."""
    return max(N_DEVIATIONS, quantile(n_runs * math.sqrt(max(n_cells, 1)), ODDS))


@cache
def quantile(degrees: float, odds: float) -> float:
    """How many deviations, measured with so many degrees of freedom, one honest number in 1 / odds exceeds."""
    return float(stats.t.isf(odds / 2, degrees))


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(a) & np.isfinite(b), a - b, np.nan)
