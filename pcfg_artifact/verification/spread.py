"""How far honest runs lie apart: at one seed under other arithmetic (drift), and over seeds.

A run of a recorded seed is compared with that seed's own numbers and may drift; a run of another seed is compared with
the mean of all and may scatter.  How far is measured (`scatter.py`), so that of a hundred honest runs one at most has
a number outside its limit, and one at most a mean.  The recorded seeds themselves check that, each left out in turn.

Drift comes in two sizes.  Training is chaotic: another order of one sum grows, within some hundred steps, to a model
of its own.  But where a model's training curve repeats the recorded one to the last digit, it is the same model, and
its numbers may drift only as far as the probes' own arithmetic moves them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from pcfg_artifact.cells import SAMPLED_TEST, STANDARD_ERROR, Cell
from pcfg_artifact.roles import find_roles
from pcfg_artifact.verification.expectations import MINIMUM_SEEDS, Record, Rerun
from pcfg_artifact.verification.families import (
    BEST_LAYER,
    UNTRAINED,
    Part,
    family,
    is_divided,
    is_exact,
    is_low_rank,
    is_trained,
    of_layer,
    part,
    scaled,
    siblings,
)
from pcfg_artifact.verification.measured import Measured
from pcfg_artifact.verification.scatter import Scatter, Variances, joined, residuals_of

ODDS = 0.01  # one honest run in so many has a number outside its limit; and one, a mean
ROUNDING = 1e-6  # relative: what the file's digits leave out
# What rounding alone may change, by unit: another machine may break a tie of two trees otherwise.
FLOOR = {"percent": 0.02, "perplexity": 1e-4, "fraction": 0.0005, "tokens": 0.002, "nats": 0.0005, "count": 0.0,
         "bool": 0.0, STANDARD_ERROR: 0.01,  # on their logarithmic scale: one part in a hundred
         "relative_error": 1e-9}  # rounding errors near 1e-15: their size, not their value, is the finding
OTHER_FLOOR = 1e-6
ONE_LAYER = 1.0  # two layers may be equally good
# Sampled test sentences that happen to be training sentences too are left out: one at seed 4, none at six others.
# Chosen after that was seen, not measured; probes that drew other sentences instead would need no such limit.
CORPORA, REPEATED = "probing_corpora", 4.0
TRAINING_CURVE, TRAINING_STAGE = "loss_curve", "pretrain"
ROUNDING_ONLY, SAME_MODEL, DRIFT, SEEDS = "rounding", "drift of the same model", "drift", "seeds"


@dataclass(frozen=True)
class Limit:
    """How far a cell may lie from what is expected, on the scale of `scaled`, and what says so."""

    expected: float
    width: float
    why: str  # one of the four above
    is_measured: bool = True  # some recorded run lies apart from the others
    is_as_seeds: bool = False  # a drift as large as the spread over seeds


@dataclass(frozen=True)
class MeanLimit:
    """How far the mean of a part of a table may shift, on the scale of `scaled`."""

    expected: dict[Cell, float]
    width: float
    why: str


class Spread:
    """The numbers of a record on their scales, and what they say of each cell and of each part of a table."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.cells = tuple(record.units)
        self.parts = tuple(part(cell, record.units[cell]) for cell in self.cells)
        base = find_roles(record.units).base or ""
        families = [family(cell, record.units[cell], record.stages[cell], base) for cell in self.cells]
        self.frame = pd.DataFrame({
            "unit": list(record.units.values()), "stage": [record.stages[cell] for cell in self.cells],
            "table": [cell.table for cell in self.cells], "model": [of.model for of in families],
            "family": _numbered(families), "kin": _numbered([of.kin for of in families]),
            "family_of_layer": _numbered([of_layer(*pair) for pair in zip(families, self.cells, strict=True)]),
            "part": _numbered(self.parts), "siblings": _numbered([siblings(cell) for cell in self.cells]),
            "is_trained": [is_trained(record.stages[cell]) for cell in self.cells],
            "is_divided": [is_divided(cell) for cell in self.cells],
            "is_low_rank": [is_low_rank(cell) for cell in self.cells],
            "is_of_sample": [cell.table == CORPORA and cell.row == SAMPLED_TEST.name for cell in self.cells],
            "is_exact": [is_exact(cell, record.stages[cell]) for cell in self.cells]})
        self.floor = self.frame["unit"].map(lambda unit: FLOOR.get(unit, OTHER_FLOOR)).mask(
            self.frame["table"] == BEST_LAYER, ONE_LAYER)
        self.by_seed = pd.DataFrame({seed: self._column(values) for seed, values in record.by_seed.items()})
        self.finite = self.by_seed.replace([np.inf, -np.inf], np.nan)
        self.frame["digits"] = ROUNDING * self.finite.abs().max(axis=1).fillna(0.0)

    def _column(self, values: Mapping[Cell, float]) -> np.ndarray:
        return np.array([scaled(values.get(cell, math.nan), self.record.units[cell]) for cell in self.cells])

    # ---- what was measured ------------------------------------------------------------------------------------------

    @cached_property
    def over_seeds(self) -> Scatter:
        """A number that all seeds agree on to the last digit, as they do on all its siblings, depends on no seed: it
        has no scatter, and no say in its family.  One alone may agree by chance, as whole numbers do, and low rank is
        stable until it jumps."""
        seeds = self.finite
        agrees = seeds.max(axis=1) - seeds.min(axis=1) <= self.frame["digits"]
        is_settled = (agrees.groupby(self.frame["siblings"]).transform("all") & (seeds.max(axis=1) % 1 != 0)
                      & ~self.frame["is_low_rank"])
        return Scatter(*residuals_of(seeds.mask(is_settled)), self.frame, has_unseen_tails=True)

    @cached_property
    def of_layers(self) -> Scatter:
        """The same, no layer lending its variance to another: what a cell alone is judged by."""
        return replace(self.over_seeds, frame=self.frame.assign(family=self.frame["family_of_layer"]))

    @cached_property
    def of_runs(self) -> Scatter:
        """Whole runs of one seed under several arithmetics, in which a model's training took other courses."""
        return self._reruns(is_same=False)

    @cached_property
    def of_probes(self) -> Scatter:
        """Runs of one seed under several arithmetics, of one and the same model (an untrained one always is)."""
        return self._reruns(is_same=True)

    def _reruns(self, is_same: bool) -> Scatter:
        found = []
        for seed in self.record.seeds:
            runs = pd.DataFrame({seed: self.finite[seed]})
            for rerun, values in self.record.drift.items():
                if rerun.seed == seed:
                    now = pd.Series(self._column(values)).replace([np.inf, -np.inf], np.nan)
                    runs[rerun.arithmetic] = now.where(self._counts(rerun, now, is_same))
            found.append(residuals_of(runs))
        return Scatter(*joined(found, self.frame.index), self.frame)

    def _counts(self, rerun: Rerun, now: pd.Series, is_same: bool) -> pd.Series:
        """The cells of which a rerun is another sample.  Where it moved no number of a model it calculated as the
        recorded run did, and says nothing of other arithmetic."""
        moved = (now - self.finite[rerun.seed]).abs() > ROUNDING * now.abs()
        counts = moved.groupby(self.frame["model"]).transform("any")
        repeated = self._is_same(repeated_in(self.record, rerun))
        counts &= repeated if is_same else ~repeated
        if is_same:  # its training is not another sample: it is how the model is known to be the same
            return counts & (self.frame["stage"] != TRAINING_STAGE)
        return counts & (not rerun.is_probes_only)

    def _is_same(self, repeated: Collection[str]) -> pd.Series:
        """Whether each cell is of a model whose training repeated itself; an untrained model has none."""
        model = self.frame["model"]
        return (model.isin(list(repeated)) | model.str.endswith(UNTRAINED)) & ~self.frame["is_low_rank"]

    @cached_property
    def shortfall(self) -> float:
        """How many times too narrow limits for another seed are: by so much, at most, does a recorded seed lie outside
        the limits that the others give it.  Few seeds know their own scatter badly; 1 where all lie within."""
        if self.finite.shape[1] <= MINIMUM_SEEDS:
            return 1.0
        return max(1.0, *map(self._farthest, self.record.seeds))

    def _farthest(self, seed: int) -> float:
        """The largest distance of a seed's numbers from the others' mean, in limits of the others.  A number on which
        the few others agree by chance has no limit that says anything."""
        others = Spread(self.record.without_seed(seed))._limits(None, (), times=1.0)
        return max((abs(number - limit.expected) / limit.width
                    for cell, number in zip(self.cells, self.finite[seed], strict=True)
                    if (limit := others.get(cell)) is not None and limit.is_measured and math.isfinite(number)
                    and math.isfinite(limit.expected)), default=0.0)

    # ---- limits -----------------------------------------------------------------------------------------------------

    def limits(self, seed: int | None, repeated: Collection[str] = ()) -> dict[Cell, Limit]:
        """Cell -> limit, for a run of that seed in which the training of the models `repeated` repeated itself."""
        return self._limits(seed, repeated, times=1.0 if seed in self.by_seed else self.shortfall)

    def _limits(self, seed: int | None, repeated: Collection[str], times: float) -> dict[Cell, Limit]:
        odds = ODDS / max(int((~self.frame["is_exact"]).sum()), 1)
        width, why = self._widths(lambda scatter: scatter.cells, self.of_layers, lambda applies: applies, odds, seed,
                                  repeated)
        width *= times
        expected, is_wide = self.finite.mean(axis=1).fillna(self.by_seed.iloc[:, 0]), pd.Series(False, width.index)
        if seed in self.by_seed:
            expected, is_exact = self.by_seed[seed], self.frame["is_exact"]
            width, why = width.mask(is_exact, 0.0), why.mask(is_exact, ROUNDING_ONLY)
            is_wide = (why == DRIFT) & (self.of_runs.cells.variance >= self.of_layers.cells.variance) & (width > 0)
        size = expected.abs().where(np.isfinite(expected), 0.0)
        is_whole = (self.frame["unit"] == "count") & (size % 1 == 0)  # whole numbers are exact
        rounding = self._floor_at(seed) + (ROUNDING * size).mask(is_whole, 0.0)
        return {cell: Limit(*values) for cell, *values in
                zip(self.cells, expected, width + rounding, why, width > 0, is_wide, strict=True)}

    def mean_limits(self, seed: int | None, repeated: Collection[str] = ()) -> dict[Part, MeanLimit]:
        """Part of a table -> how far its mean may shift."""
        number = self.frame["part"]
        n_judged = int(self.frame["is_trained"].groupby(number).any().sum())  # others are judged cell by cell
        width, why = self._widths(lambda scatter: scatter.means, self.over_seeds,
                                  lambda applies: applies.groupby(number).any(), ODDS / max(n_judged, 1), seed,
                                  repeated)
        expected = self.by_seed[seed] if seed in self.by_seed else self.finite.mean(axis=1)
        floor = self._floor_at(seed).groupby(number).first() + self.frame["digits"].groupby(number).mean()
        members: dict[int, dict[Cell, float]] = {}
        for cell, n, value in zip(self.cells, number, expected, strict=True):
            members.setdefault(n, {})[cell] = float(value)
        return {of: MeanLimit(members[n], float(width[n] + floor[n]), str(why[n]))
                for of, n in dict(zip(self.parts, number, strict=True)).items()}

    def _floor_at(self, seed: int | None) -> pd.Series:
        return self.floor if seed in self.by_seed else self.floor.mask(self.frame["is_of_sample"], REPEATED)

    def _widths(self, of: Callable[[Scatter], Variances], of_seeds: Scatter, over: Callable[[pd.Series], pd.Series],
                odds: float, seed: int | None, repeated: Collection[str]) -> tuple[pd.Series, pd.Series]:
        """Widths and what says so, of cells or of means: `of` takes their estimates, `over` says to which of them
        something applies that applies to cells."""
        # A number of another seed, against the mean of the recorded ones.  It scatters no less than at one seed, which
        # one rerun alone knows too little of.
        several = over(self.of_runs.degrees > 1)
        estimate = of(of_seeds).where_not(several, of(of_seeds).at_least(of(self.of_runs)))
        width = estimate.width(odds, 1 + 1 / self.finite.shape[1])
        why = pd.Series(SEEDS, width.index)
        if seed not in self.by_seed:
            return width, why
        # The same model whose probes were never run again may drift as far as another course of its training does:
        # nothing else was measured.  Its training repeated itself, to rounding.
        is_same, is_training = self._is_same(repeated), self.frame["stage"] == TRAINING_STAGE
        # Where few words or spans decide a number, another course of training turns them as another seed does.
        as_seeds = of(self.of_runs).where_not(over(self.frame["is_divided"]), estimate)
        # No drift reaches farther than another seed would: few reruns know that less well than the seeds do.
        most = of(of_seeds).width(odds, 2)
        most = most.where(most > 0, np.inf)
        for drift, applies, name in (
                (as_seeds, self.of_runs.degrees > 0, DRIFT),
                (of(self.of_probes), is_same & ((self.of_probes.degrees > 0) | is_training), SAME_MODEL)):
            width = width.mask(over(applies), drift.width(odds, 2).clip(upper=most))  # two runs, each with its scatter
            why = why.mask(over(applies), name)
        return width, why


def _numbered(names: Sequence[tuple[str | bool, ...]]) -> list[int]:
    """The same number for the same name."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


@lru_cache(maxsize=32)
def spread_of(record: Record) -> Spread:
    return Spread(record)


# ---- models whose training repeated itself --------------------------------------------------------------------------


def repeated_training(record: Record, seed: int | None, measured: Mapping[Cell, float]) -> frozenset[str]:
    """The models whose training curve is the recorded one to the last digit."""
    recorded = record.by_seed.get(seed, {}) if seed is not None else {}
    curves: dict[str, bool] = {}
    for cell, number in recorded.items():
        if cell.table == TRAINING_CURVE:
            same = abs(measured.get(cell, math.nan) - number) <= ROUNDING * abs(number)
            curves[cell.row] = curves.get(cell.row, True) and same
    return frozenset(model for model, same in curves.items() if same)


def repeated_in_run(record: Record, seed: int | None, measured: Measured) -> frozenset[str]:
    return repeated_training(record, seed, {cell: value.number for cell, value in measured.items()
                                            if cell.table == TRAINING_CURVE})


def has_repeated(record: Record, seed: int | None, measured: Measured) -> bool:
    """Whether every model of a run of a recorded seed is the recorded one."""
    curves = {cell.row for cell in record.by_seed.get(seed, {}) if cell.table == TRAINING_CURVE} \
        if seed is not None else set()
    return bool(curves) and curves <= repeated_in_run(record, seed, measured)


@lru_cache(maxsize=256)
def repeated_in(record: Record, rerun: Rerun) -> frozenset[str]:
    return repeated_training(record, rerun.seed, record.drift[rerun])


def moved_exact_cells(record: Record, rerun: Rerun) -> list[tuple[Cell, float, float]]:
    """Cells without training that this rerun moved by more than rounding, with both numbers; there should be none."""
    before, now = record.by_seed[rerun.seed], record.drift[rerun]
    return [(cell, before[cell], now.get(cell, math.nan))
            for cell, limit in spread_of(record).limits(rerun.seed).items() if limit.why == ROUNDING_ONLY
            and cell in before
            and not abs(scaled(now.get(cell, math.nan), record.units[cell]) - limit.expected) <= limit.width]
