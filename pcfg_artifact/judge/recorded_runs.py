"""What earlier runs of a profile gave: every number at every seed, and how each claim came out."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import t as student_t

from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.judge.claims import FAILS, HOLDS, Claim, evaluate
from pcfg_artifact.metrics.schema import KEY, Key, Metric, csv_text, metric_of, name_of, typed_key
from pcfg_artifact.metrics.selection import Numbers

VARIES = "varies"
DIGITS = 6  # of a recorded number
EVERY_SEED = "every_seed"  # the column of a number that no seed moves
SEED = re.compile(r"seed_(\d+)")
HEADER = re.compile(r"# (treebank|config): (\S+)")
NOTE = re.compile(r"# (seed \d+: .*)")


@dataclass(frozen=True)
class RecordedClaim:
    """How a claim came out at each recorded seed, the value nearest to failing, and why it shows nothing if so."""

    outcomes: Mapping[int, str]
    values: Mapping[int, float]
    explanation: str = ""
    is_moved: bool = True  # by the seed; where it is not, several seeds are one observation

    @property
    def outcome(self) -> str:
        """What it is at every seed; where seeds disagree `varies` if it holds at some, else what is worst or first."""
        found = list(self.outcomes.values())
        if len(set(found)) == 1:
            return found[0]
        return VARIES if HOLDS in found else FAILS if FAILS in found else found[0]

    def scatter(self) -> tuple[float, float]:
        """Mean value over the seeds, and half of its 95% interval by Student's t; NaN of one seed."""
        values = list(self.values.values())
        if not self.is_moved or len(values) < 2:
            return float(np.mean(values)), math.nan
        half = float(student_t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
        return float(np.mean(values)), half


ClaimName = tuple[str, str]  # its id, and its grammar where it has several


@dataclass(frozen=True, eq=False)
class Record:
    """The recorded runs of a profile, and what they are runs of."""

    profile: str
    treebank: str  # hash of the treebank the runs used
    config: str  # fingerprint of all stage configs, seeds left out
    units: Mapping[Key, str]
    by_seed: Mapping[int, Mapping[Key, float]]
    notes: tuple[str, ...] = ()  # one per seed, with commit, versions and machine
    claims: Mapping[ClaimName, RecordedClaim] = field(default_factory=dict)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted(self.by_seed))

    def metrics(self, seed: int) -> list[Metric]:
        """The numbers of one recorded run."""
        return [metric_of(key, seed=seed, value=value, n=0, unit=self.units[key])
                for key, value in self.by_seed[seed].items()]


# ---- recording -------------------------------------------------------------------------------------------------------


def refuse_other(record: Record, treebank: str, config: str) -> None:
    """A record holds seeds of one treebank and one configuration."""
    for name, old, new in (("treebank", record.treebank, treebank), ("configuration", record.config, config)):
        if old != new:
            raise StageError(f"the record of {record.profile} is of another {name} ({old[:12]}, this run {new[:12]}); "
                             f"pass --fresh to begin a new record")


def add_seed(record: Record, seed: int, numbers: Numbers, note: str) -> Record:
    """The record with one more seed."""
    return replace(record, units={**record.units, **{metric.key: metric.unit for metric in numbers.metrics}},
                   by_seed={**record.by_seed, seed: {metric.key: metric.value for metric in numbers.metrics}},
                   notes=(*(n for n in record.notes if not n.startswith(f"seed {seed}:")), f"seed {seed}: {note}"))


def judge_claims(record: Record, claims: Sequence[Claim]) -> Record:
    """The record with the outcome of every claim at every seed; explanations are kept."""
    numbers = {seed: Numbers(record.metrics(seed)) for seed in record.seeds}
    found: dict[ClaimName, RecordedClaim] = {}
    for claim in claims:
        for grammar in claim.grammars:
            evaluations = {seed: evaluate(claim, of_seed, grammar) for seed, of_seed in numbers.items()}
            values = {seed: one.worst.value for seed, one in evaluations.items() if one.worst is not None}
            is_moved = any(len({values.get(key) for values in record.by_seed.values()}) > 1
                           for one in evaluations.values() for key in one.keys)
            before = record.claims.get((claim.id, grammar))
            found[claim.id, grammar] = RecordedClaim(
                {seed: one.outcome for seed, one in evaluations.items()}, values, before.explanation if before else "",
                is_moved)
    return replace(record, claims=found)


# ---- as text ---------------------------------------------------------------------------------------------------------


def numbers_csv(record: Record) -> str:
    """expected.csv: the columns of metrics.csv, with one column of values a seed."""
    header = [f"Recorded by `./run_all.sh record --profile {record.profile}`; do not edit.  docs/dev/judging.md says "
              f"how a run is judged by it.", f"treebank: {record.treebank}", f"config: {record.config}", *record.notes]
    rows = []
    for key in sorted(record.units, key=lambda key: [(part is None or part == "", str(part).zfill(6)) for part in key]):
        values = [_text(record.by_seed[seed].get(key)) for seed in record.seeds]
        is_same = len(set(values)) == 1
        rows.append([*key, record.units[key],
                     *(values[:1] if is_same else ["", *values])])
    return csv_text([*KEY, "unit", EVERY_SEED, *(f"seed_{seed}" for seed in record.seeds)], rows, header)


def claims_csv(record: Record) -> str:
    """claims.csv: the outcome of every claim, at each seed where they differ, and the value nearest to failing."""
    header = ["How each claim came out in the recorded runs; `explanation` is written by a person, and kept.",
              "seed_N: the value nearest to failing; by_seed: the outcomes where they differ; moved: no where no seed "
              "moves its numbers."]
    rows = [[id_, grammar, claim.outcome, " ".join(of_seeds) if len(set(of_seeds)) > 1 else "",
             "" if claim.is_moved else "no", *(_text(claim.values.get(seed), 6) for seed in record.seeds),
             claim.explanation]
            for (id_, grammar), claim in record.claims.items() if (of_seeds := list(claim.outcomes.values()))]
    columns = ["claim", "grammar", "outcome", "by_seed", "moved", *(f"seed_{seed}" for seed in record.seeds),
               "explanation"]
    return csv_text(columns, rows, header)


def _text(value: float | None, digits: int = DIGITS) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def parse_record(profile: str, numbers: str, claims: str = "") -> Record:
    """The texts of expected.csv and claims.csv of one profile."""
    where = f"expected_results/{profile}/expected.csv"
    header = {match[1]: match[2] for line in numbers.splitlines() if (match := HEADER.match(line))}
    rows = _rows(numbers)
    if set(header) != {"treebank", "config"} or not rows:
        raise CorruptArtifact(f"{where} has no treebank or config line, or no rows; record the profile again")
    columns = {int(match[1]): name for name in rows[0] if (match := SEED.fullmatch(name))}
    units: dict[Key, str] = {}
    by_seed: dict[int, dict[Key, float]] = {seed: {} for seed in columns}
    for row in rows:
        try:
            key = tuple(typed_key(row).values())
            if key in units:
                raise CorruptArtifact(f"{where}: {name_of(row)} occurs twice; record the profile again")
            units[key] = row["unit"]
            for seed, column in columns.items():
                if text := row[EVERY_SEED] or row[column]:
                    by_seed[seed][key] = float(text)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptArtifact(f"{where}: the row {dict(row)} is damaged ({error!r}); record the profile again") \
                from error
    notes = tuple(match[1] for line in numbers.splitlines() if (match := NOTE.match(line)))
    return Record(profile, header["treebank"], header["config"], units, by_seed, notes,
                  {(row["claim"], row["grammar"]): _claim(row, columns) for row in _rows(claims)})


def _claim(row: Mapping[str, str], columns: Mapping[int, str]) -> RecordedClaim:
    outcomes = row["by_seed"].split() or [row["outcome"]] * len(columns)
    values = {seed: float(row[column]) for seed, column in columns.items() if row[column]}
    return RecordedClaim(dict(zip(columns, outcomes, strict=True)), values, row["explanation"], row["moved"] != "no")


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(line for line in text.splitlines() if line and not line.startswith("#")))
