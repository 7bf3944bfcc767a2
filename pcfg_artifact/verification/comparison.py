"""The judge: a verdict for every number and every relation.  Only `match` is a pass of what was claimed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pcfg_artifact.cells import Cell, find_roles, treebank_count
from pcfg_artifact.verification.expectations import MINIMUM_SEEDS, Expected, Record
from pcfg_artifact.verification.measured import Measured, format_number, tabulate
from pcfg_artifact.verification.relations import FAILS, HOLDS, INAPPLICABLE, MISSING, Relation, evaluate

# Sections 02-21 and 22 of the Penn Treebank: the only trees whose numbers the paper prints.
PAPER_TREES = (39_832, 1_700)
RANGES = {"percent": (0.0, 100.0), "fraction": (0.0, 1.0)}  # what scores can be


class Verdict(StrEnum):
    MATCH = "match"
    DIFFERS = "differs"
    NOT_MEASURED = "not measured"
    NOT_EXPECTED = "not expected"
    NOT_APPLICABLE = "not applicable"
    AS_RECORDED = "does not hold, as recorded"
    VARIES = "depends on the seed, as recorded"


FAILING = (Verdict.DIFFERS, Verdict.NOT_MEASURED, Verdict.NOT_EXPECTED)


@dataclass(frozen=True)
class Judgement:
    """One verdict with the figures it rests on.  `against`: paper, record or relation."""

    against: str
    name: str  # the cell, or the relation's id
    verdict: Verdict
    measured: str
    expected: str
    reason: str
    cell: Cell | None = None
    where: str = ""  # of a relation: the comparison nearest to failing


@dataclass(frozen=True)
class Run:
    """What was run: the judge compares it with what was recorded."""

    profile: str
    treebank: str
    config: str


def passed(judgements: Sequence[Judgement]) -> bool:
    """True iff no verdict fails and something was judged at all."""
    return any(j.verdict == Verdict.MATCH for j in judgements) and not any(j.verdict in FAILING for j in judgements)


def judge(run: Run, measured: Measured, paper: Mapping[Cell, Expected], record: Record | None,
          relations: Sequence[Relation]) -> list[Judgement]:
    """All verdicts of a run: relations first, then recorded cells, then the paper's cells."""
    why_not = record_applies(run, record)
    applicable = record if why_not is None else None
    return [*judge_relations(run, measured, relations, applicable),
            *judge_record(measured, applicable, why_not or ""),
            *judge_paper(run, measured, paper, applicable)]


def record_applies(run: Run, record: Record | None) -> str | None:
    """None where the record is one of this very run, else the reason why its numbers do not apply."""
    if record is None:
        return f"no results are recorded for the profile {run.profile}"
    if record.treebank != run.treebank:
        return "the recorded results are of another treebank"
    if record.config != run.config:
        return "settings of this run differ from the recorded ones"
    if len(record.seeds) < MINIMUM_SEEDS:
        return f"{len(record.seeds)} seeds are recorded, at least {MINIMUM_SEEDS} are needed to know the spread"
    return None


# ---- numbers --------------------------------------------------------------------------------------------------------


def judge_number(expected: Expected, measured: Measured) -> Verdict:
    """Verdict for one expected number; a number nobody measured is never a match, and NaN matches nothing."""
    if expected.cell not in measured:
        return Verdict.NOT_APPLICABLE if expected.is_optional else Verdict.NOT_MEASURED
    number = measured[expected.cell].number
    if math.isnan(number) and expected.may_be_undefined:
        return Verdict.AS_RECORDED  # known, and not a pass
    close = number == expected.value or abs(number - expected.value) <= expected.tolerance  # False for NaN
    return Verdict.MATCH if close else Verdict.DIFFERS


def judge_record(measured: Measured, record: Record | None, why_not: str) -> list[Judgement]:
    """Every recorded cell must be measured and every measured cell recorded."""
    if record is None:
        return [Judgement("record", str(cell), Verdict.NOT_APPLICABLE, format_number(value.number, value.unit), "",
                          why_not, cell) for cell, value in measured.items()]
    judgements = []
    for cell, expected in record.cells.items():
        verdict, reason = judge_number(expected, measured), ""
        if expected.is_optional and cell not in measured:
            reason = "some recorded seeds have no such number either"
        elif verdict == Verdict.MATCH and scatters_everywhere(expected, record.units[cell]):
            verdict, reason = Verdict.NOT_APPLICABLE, "the recorded seeds scatter so far that every score would pass"
        judgements.append(_number("record", expected, measured, verdict, record.units[cell], reason))
    judgements += [Judgement("record", str(cell), Verdict.NOT_EXPECTED, format_number(value.number, value.unit), "",
                             "no recorded run measured this; record the profile again if it belongs here", cell)
                   for cell, value in measured.items() if cell not in record.cells]
    return judgements


def scatters_everywhere(expected: Expected, unit: str) -> bool:
    """Whether the tolerance covers all that a number of this unit can be: such a match would say nothing."""
    low, high = RANGES.get(unit, (-math.inf, math.inf))
    return expected.value - expected.tolerance <= low and expected.value + expected.tolerance >= high


def judge_paper(run: Run, measured: Measured, paper: Mapping[Cell, Expected],
                record: Record | None) -> list[Judgement]:
    """The paper's numbers, which apply to the paper profile on the paper's trees only."""
    why_not = paper_applies(run, measured)
    judgements = []
    for expected in paper.values():
        if why_not is not None:
            verdict, reason = Verdict.NOT_APPLICABLE, why_not
        elif expected.tolerance is None:
            verdict, reason = Verdict.NOT_APPLICABLE, expected.reason
        else:
            verdict, reason = _against_record(expected, judge_number(expected, measured), record)
        judgements.append(_number("paper", expected, measured, verdict, "", reason))
    return judgements


def _against_record(expected: Expected, verdict: Verdict, record: Record | None) -> tuple[Verdict, str]:
    """A number of the paper that recorded runs missed too is known; one that they met, or missed, must stay so."""
    recorded = record.cells.get(expected.cell) if record is not None else None
    if recorded is None or verdict not in (Verdict.MATCH, Verdict.DIFFERS):
        return verdict, expected.reason
    was_close = abs(recorded.value - expected.value) <= expected.tolerance
    if was_close:
        return verdict, expected.reason
    if verdict == Verdict.MATCH:
        return Verdict.DIFFERS, "the paper's number is met now, but is recorded as missed; record the profile again"
    return Verdict.AS_RECORDED, f"recorded as {recorded.value:.4g} over {len(record.seeds)} seeds; {expected.reason}"


def paper_applies(run: Run, measured: Measured) -> str | None:
    if run.profile != "paper":
        return f"the paper's numbers are of the paper's scale, this is the profile {run.profile}"
    counts = tuple(measured[cell].number if (cell := treebank_count(part)) in measured else None
                   for part in ("train", "test"))
    if counts != PAPER_TREES:
        return (f"the paper's numbers are of {PAPER_TREES[0]:,} training and {PAPER_TREES[1]:,} test trees of the "
                f"Penn Treebank, this run read {counts[0]} and {counts[1]}")
    return None


def _number(against: str, expected: Expected, measured: Measured, verdict: Verdict, unit: str,
            reason: str = "") -> Judgement:
    value = measured.get(expected.cell)
    unit = unit or (value.unit if value else "")
    shown = "" if value is None else format_number(value.number, unit)
    wanted = format_number(expected.value, unit)
    if expected.tolerance is not None:
        wanted += f" ± {expected.tolerance:.2g}"
    return Judgement(against, str(expected.cell), verdict, shown, wanted, reason or expected.reason, expected.cell)


# ---- relations ------------------------------------------------------------------------------------------------------


def judge_relations(run: Run, measured: Measured, relations: Sequence[Relation],
                    record: Record | None) -> list[Judgement]:
    roles, tables = find_roles(measured), tabulate(measured)
    judgements = []
    for relation in relations:
        if relation.scale == "paper" and run.profile != "paper":
            judgements.append(Judgement("relation", relation.id, Verdict.NOT_APPLICABLE, "", "",
                                        "claimed at paper scale only: " + relation.reason))
            continue
        found = evaluate(relation, tables, roles)
        verdict, reason = _outcome(relation, found.outcome, record)
        if found.outcome in (MISSING, INAPPLICABLE):
            judgements.append(Judgement("relation", relation.id, verdict, "", "", found.measured))
        else:
            judgements.append(Judgement("relation", relation.id, verdict, found.measured, found.expected, reason,
                                        where=found.where))
    if record is not None:
        known = {relation.id for relation in relations}
        judgements += [Judgement("relation", id_, Verdict.NOT_MEASURED, "", "",
                                 "recorded, but relations.yaml has no such relation any more; record again")
                       for id_ in record.outcomes if id_ not in known]
    return judgements


def _outcome(relation: Relation, outcome: str, record: Record | None) -> tuple[Verdict, str]:
    """Compare what holds now with what was recorded: a change in either direction is a difference."""
    if outcome == MISSING:
        return Verdict.NOT_MEASURED, ""
    if outcome == INAPPLICABLE:
        return Verdict.NOT_APPLICABLE, ""
    recorded = record.outcomes.get(relation.id) if record is not None else None
    if recorded is None or recorded.outcome == HOLDS:
        return (Verdict.MATCH, "") if outcome == HOLDS else (Verdict.DIFFERS, "the claim does not hold in this run")
    if recorded.outcome == FAILS and outcome == HOLDS:
        return Verdict.DIFFERS, "the claim holds now, but is recorded as failing; record the profile again"
    explanation = recorded.explanation or "no explanation was written yet"
    if recorded.outcome == FAILS:
        return Verdict.AS_RECORDED, explanation
    return Verdict.VARIES, f"{explanation} (recorded {recorded.by_seed}; this run {outcome})"
