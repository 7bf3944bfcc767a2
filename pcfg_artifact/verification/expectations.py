"""What a run is expected to give: the paper's numbers, and what earlier runs of the same profile recorded."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pcfg_artifact.cells import Cell
from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.verification.measured import Measured

MINIMUM_SEEDS = 2  # fewer have no spread; few know it badly, and the limits say so


@dataclass(frozen=True)
class Expected:
    """One number that the paper prints or that runs recorded.  Without a tolerance it is shown and not judged."""

    cell: Cell
    value: float
    tolerance: float | None
    reason: str
    source: str


@dataclass(frozen=True)
class Outcome:
    """What recorded runs found of one relation: `holds`, `fails` or `mixed` over the seeds, with its explanation."""

    relation: str
    outcome: str
    by_seed: str
    figures: str
    explanation: str


PROBES_ONLY = "probes_"


class Rerun(NamedTuple):
    """A recorded seed, run again under another arithmetic: all of it, or its probes alone (of the same models)."""

    seed: int
    arithmetic: str  # PROBES_ONLY and a name where the models were kept

    @property
    def is_probes_only(self) -> bool:
        return self.arithmetic.startswith(PROBES_ONLY)


@dataclass(frozen=True, eq=False)
class Record:
    """The recorded results of a profile, and what they are results of.  Compared by identity: it is large."""

    profile: str
    treebank: str  # hash of the treebank the runs used
    config: str  # fingerprint of all stage configs, seeds left out
    units: dict[Cell, str]
    stages: dict[Cell, str]  # the stage that wrote the cell
    by_seed: dict[int, dict[Cell, float]]
    drift: dict[Rerun, dict[Cell, float]] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # header lines: one per seed with commit, versions and machine
    drift_notes: tuple[str, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted(self.by_seed))

    def without_seed(self, seed: int) -> Record:
        """The record as if that seed had never been run; its reruns go with it."""
        return replace(self, by_seed={s: values for s, values in self.by_seed.items() if s != seed},
                       drift={rerun: values for rerun, values in self.drift.items() if rerun.seed != seed})

    def without_arithmetic(self, arithmetic: str) -> Record:
        """The record as if that arithmetic had never been tried, neither on all of a run nor on its probes."""
        tried = (arithmetic.removeprefix(PROBES_ONLY), PROBES_ONLY + arithmetic.removeprefix(PROBES_ONLY))
        return replace(self, drift={rerun: v for rerun, v in self.drift.items() if rerun.arithmetic not in tried})


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
NOTE = re.compile(r"# (seed \d+( \w+)?: .*)")
SEED = re.compile(r"seed_(\d+)$")
RERUN = re.compile(r"seed_(\d+) (\w+)$")


def parse_record(profile: str, text: str, rows: Sequence[Mapping[str, str]],
                 outcomes: Sequence[Mapping[str, str]]) -> Record:
    """The files expected.csv (`text` for its header, `rows` for its cells) and outcomes.csv of one profile."""
    where = f"expected_results/{profile}/expected.csv"
    header = {match.group(1): match.group(2) for line in text.splitlines() if (match := HEADER.match(line))}
    if set(header) != {"treebank", "config"} or not rows:
        raise CorruptArtifact(f"{where} has no treebank or config line, or no rows; record the profile again")
    columns = {name: int(match.group(1)) for name in rows[0] if (match := SEED.match(name))}
    units: dict[Cell, str] = {}
    stages: dict[Cell, str] = {}
    by_seed: dict[int, dict[Cell, float]] = {seed: {} for seed in columns.values()}
    for row in rows:
        cell = Cell(row["table"], row["row"], row["column"])
        if cell in units:
            raise CorruptArtifact(f"{where}: {cell} occurs twice; record the profile again")
        try:
            for name, seed in columns.items():
                if row[name]:
                    by_seed[seed][cell] = float(row[name])
            units[cell], stages[cell] = row["unit"], row["stage"]
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptArtifact(f"{where}: {cell} is damaged ({error}); record the profile again") from error
    known = {row["relation"]: Outcome(row["relation"], row["outcome"], row["by_seed"], row["figures"],
                                      row["explanation"]) for row in outcomes}
    return Record(profile, header["treebank"], header["config"], units, stages, by_seed, {}, known, notes_of(text))


def add_drift(record: Record, text: str, rows: Sequence[Mapping[str, str]]) -> Record:
    """The record with its reruns: drift.csv holds the cells that some arithmetic moved, the others are as recorded."""
    where = f"expected_results/{record.profile}/drift.csv"
    columns = {name: Rerun(int(match.group(1)), match.group(2)) for name in (rows[0] if rows else ())
               if (match := RERUN.match(name))}
    if unknown := {rerun.seed for rerun in columns.values()} - set(record.by_seed):
        raise CorruptArtifact(f"{where} is of the seeds {sorted(unknown)}, which expected.csv does not have; measure "
                              f"the drift again with `record --arithmetic`")
    drift = {rerun: dict(record.by_seed[rerun.seed]) for rerun in columns.values()}
    for row in rows:
        cell = Cell(row["table"], row["row"], row["column"])
        if cell not in record.units:
            raise CorruptArtifact(f"{where}: {cell} is not in expected.csv; measure the drift again")
        for name, rerun in columns.items():
            try:
                if row[name]:
                    drift[rerun][cell] = float(row[name])
                else:
                    drift[rerun].pop(cell, None)
            except ValueError as error:
                raise CorruptArtifact(f"{where}: {cell} is damaged ({error}); measure the drift again") from error
    return replace(record, drift=drift, drift_notes=notes_of(text))


def notes_of(text: str) -> tuple[str, ...]:
    return tuple(match.group(1) for line in text.splitlines() if (match := NOTE.match(line)))


# ---- recording ------------------------------------------------------------------------------------------------------


def refuse_other(record: Record, treebank: str, config: str) -> None:
    """A record holds seeds of one treebank and one configuration."""
    for name, old, new in (("treebank", record.treebank, treebank), ("configuration", record.config, config)):
        if old != new:
            raise StageError(f"the record of {record.profile} is of another {name} ({old[:12]}, this run {new[:12]}); "
                             f"pass --fresh to begin a new record")


def add_seed(record: Record | None, profile: str, treebank: str, config: str, seed: int, measured: Measured,
             stages: Mapping[Cell, str], note: str) -> Record:
    """The record with one more seed; its drift and outcomes are kept as they were."""
    if record is None:
        record = Record(profile, treebank, config, {}, {}, {})
    refuse_other(record, treebank, config)
    return replace(
        record, units={**record.units, **{cell: value.unit for cell, value in measured.items()}},
        stages={**record.stages, **{cell: stages[cell] for cell in measured}},
        by_seed={**record.by_seed, seed: {cell: value.number for cell, value in measured.items()}},
        notes=(*(n for n in record.notes if not n.startswith(f"seed {seed}:")), f"seed {seed}: {note}"))


def add_rerun(record: Record, rerun: Rerun, treebank: str, config: str, measured: Measured, note: str) -> Record:
    """The record with one recorded seed run again under another arithmetic."""
    refuse_other(record, treebank, config)
    if rerun.seed not in record.by_seed:
        raise StageError(f"seed {rerun.seed} is not recorded, only {', '.join(map(str, record.seeds))}; drift is "
                         f"measured against a recorded seed")
    label = f"seed {rerun.seed} {rerun.arithmetic}:"
    return replace(record, drift={**record.drift, rerun: {cell: value.number for cell, value in measured.items()}},
                   drift_notes=(*(n for n in record.drift_notes if not n.startswith(label)), f"{label} {note}"))


def summarise(relation: str, holds: Mapping[str, bool], figures: str, explanation: str) -> Outcome:
    """The outcome of one relation over all runs: a claim that fails in some run does not count as holding."""
    outcome = "holds" if all(holds.values()) else "mixed" if any(holds.values()) else "fails"
    by_seed = " ".join(f"{run}:{'holds' if held else 'fails'}" for run, held in holds.items())
    return Outcome(relation, outcome, by_seed, figures, explanation)
