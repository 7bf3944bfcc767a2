"""What a run is expected to give: the paper's numbers, and what earlier runs of the same profile recorded."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pcfg_artifact.cells import Cell
from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.verification.measured import Measured

MINIMUM_SEEDS = 3

# Tolerance = N_DEVIATIONS standard deviations, plus what rounding and another machine's arithmetic may change.
# The deviation is the larger of the cell's own over its seeds and the root mean square of all cells of the same column
# of its table: a few seeds alone underestimate many spreads badly, and the cells of a column measure the same thing.
# Eight, because a run has thousands of cells and all of them must stay inside on a machine whose arithmetic makes it as
# good as a new seed.  A number that many seeds agree on to the last digit depends on no seed: it has the floor alone.
N_DEVIATIONS = 8.0
SETTLED_SEEDS = 5
SETTLED_FLOORS = 10  # another machine may break a tie of two trees otherwise
ROUNDING = 1e-6  # relative: what the file's digits leave out
FLOOR = {"percent": 0.02, "perplexity": 0.02, "fraction": 0.0005, "tokens": 0.002, "nats": 0.0005,
         "count": 0.0, "bool": 0.0,
         "relative_error": 1e-9}  # rounding errors near 1e-15: their size, not their value, is the finding
OTHER_FLOOR = 1e-6


@dataclass(frozen=True)
class Expected:
    """One number that the paper prints or that runs recorded.  Without a tolerance it is shown and not judged."""

    cell: Cell
    value: float
    tolerance: float | None
    reason: str
    source: str
    is_optional: bool = False  # some recorded seeds have no such number (a width that no sampled span had)
    may_be_undefined: bool = False  # it is NaN for some recorded seeds


@dataclass(frozen=True)
class Outcome:
    """What recorded runs found of one relation: `holds`, `fails` or `mixed` over the seeds, with its explanation."""

    relation: str
    outcome: str
    by_seed: str
    figures: str
    explanation: str


@dataclass(frozen=True)
class Record:
    """The recorded results of a profile, and what they are results of."""

    profile: str
    treebank: str  # hash of the treebank the runs used
    config: str  # fingerprint of all stage configs, seeds left out
    seeds: tuple[int, ...]
    cells: dict[Cell, Expected]
    outcomes: dict[str, Outcome]
    units: dict[Cell, str] = field(default_factory=dict)
    by_seed: dict[int, dict[Cell, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # header lines: one per seed with commit, versions and machine


# ---- reading --------------------------------------------------------------------------------------------------------


def parse_paper(rows: Sequence[Mapping[str, str]], where: str) -> dict[Cell, Expected]:
    """The rows of one paper/*.csv."""
    found: dict[Cell, Expected] = {}
    for row in rows:
        try:
            cell = Cell(row["table"], row["row"], row["column"])
            tolerance = float(row["tolerance"]) if row["tolerance"] else None
            expected = Expected(cell, float(row["value"]), tolerance, row["reason"], row["source"])
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptArtifact(f"{where}: the row {dict(row)} is not an expectation ({error}); expected the columns "
                                  f"table,row,column,value,tolerance,reason,source") from error
        if cell in found:
            raise CorruptArtifact(f"{where}: {cell} occurs twice; keep one")
        if not row["reason"] or not row["source"]:
            raise CorruptArtifact(f"{where}: {cell} has no reason or no source; every expectation says both")
        if not math.isfinite(expected.value) or (tolerance is not None and not 0 <= tolerance < math.inf):
            raise CorruptArtifact(f"{where}: {cell} has value {expected.value}, tolerance {tolerance}; "
                                  f"expected finite numbers, tolerance not negative")
        found[cell] = expected
    return found


HEADER = re.compile(r"# (treebank|config): (\S+)")
NOTE = re.compile(r"# (seed \d+: .*)")


def parse_record(profile: str, text: str, rows: Sequence[Mapping[str, str]],
                 outcomes: Sequence[Mapping[str, str]]) -> Record:
    """The files expected.csv (`text` for its header, `rows` for its cells) and outcomes.csv of one profile."""
    where = f"expected_results/{profile}/expected.csv"
    header = {match.group(1): match.group(2) for line in text.splitlines() if (match := HEADER.match(line))}
    if set(header) != {"treebank", "config"} or not rows:
        raise CorruptArtifact(f"{where} has no treebank or config line, or no rows; record the profile again")
    seeds = tuple(int(name.removeprefix("seed_")) for name in rows[0] if name.startswith("seed_"))
    cells, units, by_seed = {}, {}, {seed: {} for seed in seeds}
    for row in rows:
        cell = Cell(row["table"], row["row"], row["column"])
        if cell in cells:
            raise CorruptArtifact(f"{where}: {cell} occurs twice; record the profile again")
        try:
            for seed in seeds:
                if row[f"seed_{seed}"]:
                    by_seed[seed][cell] = float(row[f"seed_{seed}"])
            cells[cell] = _recorded(cell, [found[cell] for found in by_seed.values() if cell in found], len(seeds),
                                    float(row["tolerance"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptArtifact(f"{where}: {cell} is damaged ({error}); record the profile again") from error
        units[cell] = row["unit"]
    known = {row["relation"]: Outcome(row["relation"], row["outcome"], row["by_seed"], row["figures"],
                                      row["explanation"]) for row in outcomes}
    notes = tuple(match.group(1) for line in text.splitlines() if (match := NOTE.match(line)))
    return Record(profile, header["treebank"], header["config"], seeds, cells, known, units, by_seed, notes)


def _recorded(cell: Cell, values: Sequence[float], n_seeds: int, tolerance: float) -> Expected:
    defined = [value for value in values if not math.isnan(value)]
    return Expected(cell, float(np.mean(defined)) if defined else math.nan, tolerance, f"mean of {len(values)} seeds",
                    "recorded", is_optional=len(values) < n_seeds, may_be_undefined=len(defined) < len(values))


# ---- recording ------------------------------------------------------------------------------------------------------


def tolerances(by_seed: Mapping[int, Mapping[Cell, float]], units: Mapping[Cell, str]) -> dict[Cell, float]:
    """The tolerance of every cell, from the spread over seeds (the rule above)."""
    values = {cell: [found[cell] for found in by_seed.values() if math.isfinite(found.get(cell, math.nan))]
              for cell in units}
    own = {cell: float(np.std(found, ddof=1)) if len(found) > 1 else 0.0 for cell, found in values.items()}
    columns: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for cell, unit in units.items():
        columns[cell.table, cell.column, unit].append(own[cell])
    pooled = {key: math.sqrt(sum(s * s for s in found) / len(found)) for key, found in columns.items()}
    return {cell: _tolerance(values[cell], max(own[cell], pooled[cell.table, cell.column, unit]), unit)
            for cell, unit in units.items()}


def _tolerance(values: Sequence[float], deviation: float, unit: str) -> float:
    size, floor = max(map(abs, values), default=0.0), FLOOR.get(unit, OTHER_FLOOR)
    if size % 1 == 0:  # whole numbers are exact, and often equal by chance
        return N_DEVIATIONS * deviation + floor
    if len(values) >= SETTLED_SEEDS and max(values) - min(values) <= ROUNDING * size:
        return SETTLED_FLOORS * floor + ROUNDING * size
    return N_DEVIATIONS * deviation + floor + ROUNDING * size


def refuse_other(record: Record, treebank: str, config: str) -> None:
    """A record holds seeds of one treebank and one configuration."""
    for name, old, new in (("treebank", record.treebank, treebank), ("configuration", record.config, config)):
        if old != new:
            raise StageError(f"the record of {record.profile} is of another {name} ({old[:12]}, this run {new[:12]}); "
                             f"pass --fresh to begin a new record")


def add_seed(record: Record | None, profile: str, treebank: str, config: str, seed: int, measured: Measured,
             note: str) -> Record:
    """The record with one more seed; its cells and tolerances are computed anew, its outcomes are kept as they were."""
    values = {cell: value.number for cell, value in measured.items()}
    units = {cell: value.unit for cell, value in measured.items()}
    by_seed = {} if record is None else dict(record.by_seed)
    if record is not None:
        refuse_other(record, treebank, config)
        units = {**record.units, **units}
    by_seed[seed] = values
    spread = tolerances(by_seed, units)
    cells = {cell: _recorded(cell, [found[cell] for found in by_seed.values() if cell in found], len(by_seed),
                             spread[cell]) for cell in units}
    notes = (() if record is None else record.notes) + (f"seed {seed}: {note}",)
    return Record(profile, treebank, config, tuple(sorted(by_seed)), cells, {} if record is None else record.outcomes,
                  units, by_seed, notes)


def summarise(relation: str, holds: Mapping[int, bool], figures: str, explanation: str) -> Outcome:
    """The outcome of one relation over all seeds: a claim that fails for some seed does not count as holding."""
    outcome = "holds" if all(holds.values()) else "mixed" if any(holds.values()) else "fails"
    by_seed = " ".join(f"{seed}:{'holds' if held else 'fails'}" for seed, held in sorted(holds.items()))
    return Outcome(relation, outcome, by_seed, figures, explanation)
