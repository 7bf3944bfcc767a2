"""How far honest runs lie apart: at one seed under other arithmetic (drift), and over seeds.

Both are measured, per cell and per family of cells of one model.  A run of a recorded seed is compared with that
seed's own numbers and may drift; a run of another seed is compared with the mean of all and may scatter.

Drift comes in two sizes.  Training is chaotic: another order of one sum grows, within some hundred steps, to a model
of its own.  But where a model's training curve repeats the recorded one to the last digit, it is the same model, and
its numbers may drift only as far as the probes' own arithmetic moves them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import pandas as pd
from scipy import stats

from pcfg_artifact.cells import Cell, find_roles
from pcfg_artifact.verification.expectations import Record, Rerun
from pcfg_artifact.verification.families import (
    BEST_LAYER,
    BY_KIND_OF_WORD,
    BY_WIDTH,
    UNTRAINED,
    Family,
    family,
    group,
    is_exact,
    is_low_rank,
    is_trained,
    scaled,
)
from pcfg_artifact.verification.measured import Measured

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
# Few reruns of the same models are needed, because probes of an untrained one are among every rerun, and stand in.
# Arithmetic moved the linear probes of a trained model by up to twice the limit of an untrained one; two and a
# half times its deviation leaves room.
STAND_IN = 6.0  # of variances
FEW_SAMPLES = 0.25  # of the variance over seeds, where the model is the same
ONE_LAYER = 1.0  # two layers may be equally good
TRAINING_CURVE, TRAINING_STAGE = "loss_curve", "pretrain"
LOW_RANK_MODEL = "low rank"
ROUNDING_ONLY, SAME_MODEL, DRIFT, SEEDS = "rounding", "drift of the same model", "drift", "seeds"


@dataclass(frozen=True)
class Limit:
    """How far a cell may lie from what is expected, on the scale of `scaled`, and what says so."""

    expected: float
    width: float
    why: str  # one of the four above
    is_measured: bool = True  # some recorded run lies apart from the others


@dataclass(frozen=True)
class GroupLimit:
    """How far the mean of a group of cells may shift, on the scale of `scaled`."""

    expected: dict[Cell, float]
    width: float
    why: str


class Spread:
    """The numbers of a record on their scales, and what they say of each cell, family and group."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.cells = tuple(record.units)
        base = find_roles(record.units).base or ""
        rows = []
        self.groups: list[Family] = []
        for cell in self.cells:
            unit, stage = record.units[cell], record.stages[cell]
            of, part = family(cell, unit), group(cell, unit)
            # numbers of trained models that name none are of the base model; low-rank rows are a model of their own
            model = LOW_RANK_MODEL if is_low_rank(cell) else of.model or (base if is_trained(stage) else "")
            rows.append((unit, stage, of, part, model, is_low_rank(cell),
                         is_exact(cell, stage), cell.table in (BY_WIDTH, BY_KIND_OF_WORD),
                         cell.table == BEST_LAYER))
            self.groups.append(part)
        self.frame = pd.DataFrame(rows, columns=["unit", "stage", "family", "group", "model", "is_low_rank", "is_exact",
                                                "is_divided", "is_best_layer"])
        for name in ("family", "group"):
            self.frame[name] = pd.factorize(pd.Series(self.frame[name], dtype=object))[0]
        self.by_seed = pd.DataFrame({seed: self._column(values) for seed, values in record.by_seed.items()})
        self.finite = self.by_seed.replace([np.inf, -np.inf], np.nan)
        self.drift = pd.DataFrame({rerun: _difference(self._column(values), self.by_seed[rerun.seed].to_numpy())
                                   for rerun, values in record.drift.items()}, index=self.frame.index)
        self.drift.columns = pd.Index(list(record.drift), tupleize_cols=False)
        self.floor = self.frame["unit"].map(lambda unit: FLOOR.get(unit, OTHER_FLOOR)).mask(
            self.frame["is_best_layer"], ONE_LAYER)

    def _column(self, values: Mapping[Cell, float]) -> np.ndarray:
        return np.array([scaled(values.get(cell, math.nan), self.record.units[cell]) for cell in self.cells])

    # ---- cells ------------------------------------------------------------------------------------------------------

    def limits(self, seed: int | None, repeated: Collection[str] = ()) -> dict[Cell, Limit]:
        """Cell -> limit, for a run of that seed in which the training of the models `repeated` repeated itself."""
        width, why = self._seed_widths(), pd.Series(SEEDS, self.frame.index)
        over_seeds = width
        expected = self.finite.mean(axis=1).fillna(self.by_seed.iloc[:, 0])
        if seed in self.by_seed:
            expected = self.by_seed[seed]
            for is_same, name in ((False, DRIFT), (True, SAME_MODEL)):
                applies, drifts = self._reruns(is_same, repeated)
                width = width.mask(applies, self._at_most(self._drift_widths(drifts, is_same), over_seeds))
                why = why.mask(applies, name)
            is_exact = self.frame["is_exact"]
            width, why = width.mask(is_exact, 0.0), why.mask(is_exact, ROUNDING_ONLY)
        size = expected.abs().where(np.isfinite(expected), 0.0)
        is_whole = (self.frame["unit"] == "count") & (size % 1 == 0)  # whole numbers are exact
        rounding = self.floor + (ROUNDING * size).mask(is_whole, 0.0)
        return {cell: Limit(*values) for cell, *values in
                zip(self.cells, expected, width + rounding, why, width > 0, strict=True)}

    def _reruns(self, is_same: bool, repeated: Collection[str]) -> tuple[pd.Series, pd.DataFrame]:
        """The cells to which drift of the same model applies (or not), and the drifts measured of that kind."""
        repeats = pd.DataFrame({rerun: self._is_same(repeated_in(self.record, rerun)) for rerun in self.drift.columns},
                               index=self.frame.index)
        repeats.columns = self.drift.columns
        drifts = self.drift.where(repeats == is_same)
        if not is_same:  # symbols without a model: wherever their stage was run again
            is_whole = [not rerun.is_probes_only for rerun in self.record.drift]
            low_rank = self.frame["is_low_rank"]
            drifts.loc[low_rank, is_whole] = self.drift.loc[low_rank, is_whole]
            drifts.loc[low_rank, [not whole for whole in is_whole]] = np.nan
        if is_same:
            return self._is_same(repeated) & (not self.drift.empty), drifts
        return drifts.notna().any(axis=1), drifts

    def _is_same(self, repeated: Collection[str]) -> pd.Series:
        """Whether each cell is of a model whose training repeated itself; an untrained model has none."""
        model = self.frame["model"]
        return (model.isin(list(repeated)) | model.str.endswith(UNTRAINED)) & ~self.frame["is_low_rank"]

    def _drift_widths(self, drifts: pd.DataFrame, is_same: bool) -> pd.Series:
        """So many times the drift of the family that honest runs stay inside; the fewer samples, the more times."""
        number = self.frame["family"]
        square = (drifts**2).mean(axis=1)  # NaN where a cell is undefined or absent
        by_family = square.groupby(number)
        n_runs = drifts.notna().sum(axis=1).groupby(number).transform("max")
        times = N_DEVIATIONS if is_same else self._times(n_runs, by_family.transform("count"))
        pooled = by_family.transform("mean")
        # A few reruns do not show every course that training can take.  No cell is trusted to drift less than the
        # model's numbers do on the whole, as a share of what seeds change; where a table is divided up so far that few
        # spans or words are left, another course is as good as another seed.
        over_seeds = self.finite.var(axis=1, ddof=1)
        seeds = over_seeds.groupby(number).transform("mean")
        is_coarse = self.frame["is_divided"] | self.frame["is_best_layer"]
        share = self._share((pooled / seeds).mask(is_coarse), self.frame["model"], is_same)
        share = share.clip(lower=FEW_SAMPLES if is_same else 1.0).where(self.frame["is_divided"], share)
        can_drift = self._can_drift(pooled, self.frame["stage"]) | self.frame["is_low_rank"]
        least = (share * seeds.combine(over_seeds, np.fmax)).where(can_drift, 0.0)
        return times * _root(pooled.combine(square, np.fmax).combine(least, np.fmax))

    def _share(self, ratio: pd.Series, model: pd.Series, is_same: bool) -> pd.Series:
        """Drift as a share of the variance over seeds, by model; of the same model at least as of an untrained one,
        in which arithmetic moves the probes alone.  Numbers that jump (coarse ones) have no say."""
        ratio = ratio.replace([np.inf, -np.inf], np.nan)
        share = ratio.groupby(model).transform("mean")
        if not is_same:
            return share
        least = STAND_IN * ratio[model.str.contains(UNTRAINED)].mean()
        return share.fillna(least).clip(lower=least)

    @staticmethod
    def _at_most(drift: pd.Series, over_seeds: pd.Series) -> pd.Series:
        """Another course of a training is at most as good as another seed."""
        return drift.where((drift <= over_seeds) | (over_seeds == 0), over_seeds)

    @staticmethod
    def _times(n_runs: pd.Series, n_samples: pd.Series) -> pd.Series:
        """How many deviations; where nothing of the kind was run again, the share that stands in is known well."""
        return pd.Series([deviations(*n) if n[0] else N_DEVIATIONS for n in zip(n_runs, n_samples, strict=True)],
                         n_runs.index)

    @staticmethod
    def _can_drift(square: pd.Series, stage: pd.Series) -> pd.Series:
        """What drifted, and what was never run again from the same models: all but their training."""
        return (square > ROUNDING**2) | (square.isna() & (stage != TRAINING_STAGE))

    def _seed_widths(self) -> pd.Series:
        """The larger of a cell's own deviation over seeds and its family's, as many times as its samples need.

        A number that all seeds agree on to the last digit depends on no seed: it has no width, and no say in its
        family.  Whole numbers may agree by chance, and low rank is stable until it jumps.
        """
        seeds = self.finite
        size, own = seeds.abs().max(axis=1), seeds.var(axis=1, ddof=1)
        is_settled = ((seeds.max(axis=1) - seeds.min(axis=1) <= ROUNDING * size) & (size % 1 != 0)
                      & ~self.frame["is_low_rank"])
        own = own.mask(is_settled)
        by_family = own.groupby(self.frame["family"])
        n_seeds = seeds.shape[1]
        times = by_family.transform("count").map(lambda n: deviations(max(n_seeds - 1, 1), n))
        deviation = _root(by_family.transform("mean").combine(own, np.fmax)).mask(is_settled, 0.0)
        return times * math.sqrt(1 + 1 / n_seeds) * deviation

    # ---- means ------------------------------------------------------------------------------------------------------

    def group_limits(self, seed: int | None, repeated: Collection[str] = ()) -> dict[Family, GroupLimit]:
        """Group -> how far its mean may shift."""
        number = self.frame["group"]
        expected = self.by_seed[seed] if seed in self.by_seed else self.finite.mean(axis=1)
        scatter = self.finite.groupby(number).mean().var(axis=1, ddof=1)
        n_seeds = self.finite.shape[1]
        model = (self.frame["model"] + " " + self.frame["stage"]).groupby(number).first()
        n_groups = scatter.groupby(model).transform("count")
        times = n_groups.map(lambda n: deviations(max(n_seeds - 1, 1), n))
        width = over_seeds = times * math.sqrt(1 + 1 / n_seeds) * _root(scatter)
        why = pd.Series(SEEDS, width.index)
        if seed in self.by_seed:
            for is_same, name in ((False, DRIFT), (True, SAME_MODEL)):
                applies, drifts = self._reruns(is_same, repeated)
                applies = applies.groupby(number).all()
                width = width.mask(applies, self._at_most(self._group_drift(drifts, scatter, is_same), over_seeds))
                why = why.mask(applies, name)
        floor, found = self.floor.groupby(number).first(), {}
        members: dict[int, list[int]] = {}
        for position, n in enumerate(number.tolist()):
            members.setdefault(n, []).append(position)
        for n, positions in members.items():
            found[self.groups[positions[0]]] = GroupLimit(
                {self.cells[p]: float(expected[p]) for p in positions}, float(width[n] + floor[n]), str(why[n]))
        return found

    def _group_drift(self, drifts: pd.DataFrame, scatter: pd.Series, is_same: bool) -> pd.Series:
        """Drift of the means.  Few reruns say little of one mean; all means of a model say together how much of their
        scatter over seeds arithmetic alone explains, and no mean is trusted to drift less than that."""
        number = self.frame["group"]
        shift = drifts.groupby(number).mean()
        own = (shift**2).mean(axis=1)
        # of one stage at a time: a perplexity drifts by a tenth of what seeds change, a probe's score by two thirds
        stage = self.frame["stage"].groupby(number).first()
        model = (self.frame["model"] + " " + self.frame["stage"]).groupby(number).first()
        is_coarse = (self.frame["is_divided"] | self.frame["is_best_layer"]).groupby(number).first()
        share = self._share((own / scatter).mask(is_coarse), model, is_same)
        together = (share * scatter).where(self._can_drift(own, stage), 0.0)
        n_runs, n_groups = shift.notna().sum(axis=1), own.groupby(model).transform("count")
        times = N_DEVIATIONS if is_same else self._times(n_runs, n_groups)
        return times * _root(own.combine(together, np.fmax))


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


# ---- deviations -----------------------------------------------------------------------------------------------------


def deviations(n_runs: int, n_cells: int) -> float:
    """How many deviations make a limit; cells of one family move together, and count as the root of their number."""
    return max(N_DEVIATIONS, quantile(max(n_runs, 1) * math.sqrt(max(n_cells, 1)), ODDS))


@cache
def quantile(degrees: float, odds: float) -> float:
    """How many deviations, measured with so many degrees of freedom, one honest number in 1 / odds exceeds."""
    return float(stats.t.isf(odds / 2, degrees))


def _root(square: pd.Series) -> pd.Series:
    """Square root; nothing measured is no width."""
    return square.pow(0.5).fillna(0.0)


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(a) & np.isfinite(b), a - b, np.nan)
