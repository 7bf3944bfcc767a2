"""The judge: a verdict for every number, every table's mean and every claim.  Only `match` is a pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pcfg_artifact.cells import Cell, treebank_count
from pcfg_artifact.roles import find_roles
from pcfg_artifact.verification.claim_outcomes import FAILS, HOLDS, MISSING, Comparison, evaluate
from pcfg_artifact.verification.expectations import MINIMUM_SEEDS, Expected, Record
from pcfg_artifact.verification.explanations import explain
from pcfg_artifact.verification.families import BY_KIND_OF_WORD, Part, in_words, is_trained, scaled, unscaled_width
from pcfg_artifact.verification.history import History, history_of
from pcfg_artifact.verification.measured import Measured, format_number, tabulate
from pcfg_artifact.verification.relations import Relation
from pcfg_artifact.verification.spread import (
    DRIFT,
    SAME_MODEL,
    SEEDS,
    Limit,
    has_repeated,
    repeated_in_run,
    spread_of,
)
from pcfg_artifact.verification.trivial import distance

# Sections 02-21 and 22 of the Penn Treebank: the only trees whose numbers the paper prints.
PAPER_TREES = (39_832, 1_700)


class Verdict(StrEnum):
    MATCH = "match"
    DIFFERS = "differs"
    NOT_MEASURED = "not measured"
    NOT_EXPECTED = "not expected"
    NOT_JUDGED = "not judged"
    NOT_APPLICABLE = "not applicable"
    AS_RECORDED = "does not hold, as recorded"
    VARIES = "depends on the seed, as recorded"


FAILING = (Verdict.DIFFERS, Verdict.NOT_MEASURED, Verdict.NOT_EXPECTED)
SCATTERS = {SEEDS: "the recorded seeds scatter too far: a trivial answer lies within",
            DRIFT: "other arithmetic moves it too far: a trivial answer lies within",
            SAME_MODEL: "the arithmetic of the probes moves it too far: a trivial answer lies within"}


@dataclass(frozen=True)
class Judgement:
    """One verdict with the figures it rests on.  `against`: relation, table, record or paper."""

    against: str
    name: str  # the cell, the table's part, or the relation's id
    verdict: Verdict
    measured: str
    expected: str
    reason: str
    cell: Cell | None = None
    where: str = ""  # of a relation: the comparison nearest to failing
    comparison: Comparison | None = None  # that comparison, and what recorded runs had there, for its picture
    recorded: tuple[float, ...] = ()
    table: str = ""
    needs_paper_scale: bool = False


@dataclass(frozen=True)
class Run:
    """What was run: the judge compares it with what was recorded."""

    profile: str
    treebank: str
    config: str
    seed: int | None = None
    stages: Mapping[Cell, str] = field(default_factory=dict, compare=False)  # the stage that wrote each cell


def passed(judgements: Sequence[Judgement]) -> bool:
    """True iff no verdict fails and something was judged at all."""
    return any(j.verdict == Verdict.MATCH for j in judgements) and not any(j.verdict in FAILING for j in judgements)


def judge(run: Run, measured: Measured, paper: Mapping[Cell, Expected], record: Record | None,
          relations: Sequence[Relation]) -> list[Judgement]:
    """All verdicts of a run: relations first, then the tables' means, then recorded cells, then the paper's cells."""
    why_not = record_applies(run, record)
    applicable = record if why_not is None else None
    return [*judge_relations(run, measured, relations, applicable),
            *judge_means(run, measured, applicable),
            *judge_record(run, measured, applicable, why_not or ""),
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


def judge_record(run: Run, measured: Measured, record: Record | None, why_not: str) -> list[Judgement]:
    """Every recorded cell must be measured and every measured cell recorded."""
    if record is None:
        return [Judgement("record", str(cell), Verdict.NOT_APPLICABLE, format_number(value.number, value.unit), "",
                          why_not, cell) for cell, value in measured.items()]
    own = record.by_seed.get(run.seed) if run.seed is not None else None
    references = [own] if own is not None else list(record.by_seed.values())
    means = _means(record) if own is None else own
    judgements = []
    repeated = repeated_in_run(record, run.seed, measured)
    for cell, limit in spread_of(record).limits(run.seed, repeated).items():
        known = [values[cell] for values in references if cell in values]
        judgements.append(_recorded(cell, limit, known, len(known) < len(references), measured, record, means))
    judgements += [Judgement("record", str(cell), Verdict.NOT_EXPECTED, format_number(value.number, value.unit), "",
                             "no recorded run measured this; record the profile again if it belongs here", cell)
                   for cell, value in measured.items() if cell not in record.units]
    return judgements


def _recorded(cell: Cell, limit: Limit, known: Sequence[float], may_be_absent: bool, measured: Measured,
              record: Record, means: Mapping[Cell, float]) -> Judgement:
    """The verdict on one recorded cell; `known`: its numbers in the runs this one is compared with."""
    unit = record.units[cell]
    defined = [number for number in known if not math.isnan(number)]
    source = f"{limit.why}, {len(known)} recorded" if len(known) != 1 else limit.why
    source += ", as large as the spread over seeds" if limit.is_as_seeds else ""
    shown = format_number(measured[cell].number, unit) if cell in measured else ""
    expected = means.get(cell, math.nan)
    width = unscaled_width(abs(expected), limit.width, unit)
    wanted = f"{format_number(expected, unit)} ± {width:.2g}" if known else ""

    def verdict(found: Verdict, reason: str = source) -> Judgement:
        return Judgement("record", str(cell), found, shown, wanted, reason, cell)

    if cell not in measured:
        if may_be_absent:
            return verdict(Verdict.NOT_APPLICABLE, "not every recorded run has such a number either")
        if limit.why == SEEDS and _parsed_nothing(cell, measured):
            return verdict(Verdict.NOT_APPLICABLE, "no sentence was parsed")
        return verdict(Verdict.NOT_MEASURED)
    if not known:
        return verdict(Verdict.NOT_EXPECTED, "the recorded run of this seed has no such number")
    number = measured[cell].number
    if math.isnan(number):
        return verdict(Verdict.AS_RECORDED if len(defined) < len(known) else Verdict.DIFFERS, "undefined")
    if limit.why in SCATTERS and limit.is_measured and limit.width >= distance(cell, unit, means):
        return verdict(Verdict.NOT_JUDGED, SCATTERS[limit.why])
    is_close = bool(defined) and abs(scaled(number, unit) - limit.expected) <= limit.width
    return verdict(Verdict.MATCH if is_close or number in defined else Verdict.DIFFERS)  # an infinity is only itself


def _parsed_nothing(cell: Cell, measured: Measured) -> bool:
    failed = measured.get(Cell(cell.table, cell.row, "failed"))
    return cell.column.endswith("_parsed") and failed is not None and failed.number == 1


def _means(record: Record) -> dict[Cell, float]:
    """Mean over the recorded seeds, on the scale on which they scatter."""
    means = {}
    for cell, unit in record.units.items():
        numbers = [values[cell] for values in record.by_seed.values() if math.isfinite(values.get(cell, math.nan))]
        if not numbers:
            means[cell] = next((values[cell] for values in record.by_seed.values() if cell in values), math.nan)
        elif unit == "perplexity" and min(numbers) > 0:
            means[cell] = math.exp(sum(map(math.log, numbers)) / len(numbers))
        else:
            means[cell] = sum(numbers) / len(numbers)
    return means


def judge_means(run: Run, measured: Measured, record: Record | None) -> list[Judgement]:
    """Many cells that move together are evidence even where each alone is within its limit."""
    if record is None:
        return []
    judgements = []
    repeated = repeated_in_run(record, run.seed, measured)
    for part, limit in spread_of(record).mean_limits(run.seed, repeated).items():
        shifts = [scaled(measured[cell].number, part.unit) - expected for cell, expected in limit.expected.items()
                  if cell in measured and math.isfinite(expected)]
        if not shifts or not any(is_trained(record.stages[cell]) for cell in limit.expected):
            continue  # numbers without training are judged one by one, to rounding
        if part.table == BY_KIND_OF_WORD:
            continue  # the mean of its bins is no mean of words; that one stands beside the optimum
        shift = sum(shifts) / len(shifts)
        verdict = Verdict.MATCH if abs(shift) <= limit.width else Verdict.DIFFERS  # NaN differs
        allowed = in_words(limit.width, part.unit).lstrip("+")
        judgements.append(Judgement("table", part_name(part), verdict, in_words(shift, part.unit),
                                    f"{'' if allowed.startswith('more') else 'at most '}{allowed} either way",
                                    f"{limit.why}, mean of {len(shifts)} cells", table=part.table))
    return judgements


def part_name(part: Part) -> str:
    return ", ".join(filter(None, (part.table, part.model, part.measure)))


# ---- the paper's numbers --------------------------------------------------------------------------------------------


def judge_paper(run: Run, measured: Measured, paper: Mapping[Cell, Expected],
                record: Record | None) -> list[Judgement]:
    """The paper's numbers, which apply to the paper profile on the paper's trees only."""
    why_not = paper_applies(run, measured)
    means = {} if record is None or why_not is not None else _means(record)
    judgements = []
    for expected in paper.values():
        if why_not is not None:
            verdict, reason = Verdict.NOT_APPLICABLE, why_not
        elif expected.tolerance is None:
            verdict, reason = Verdict.NOT_APPLICABLE, expected.reason
        elif expected.cell not in measured:
            verdict, reason = Verdict.NOT_MEASURED, expected.reason
        else:
            close = abs(measured[expected.cell].number - expected.value) <= expected.tolerance  # False for NaN
            verdict, reason = _against_record(expected, close, means)
        value = measured.get(expected.cell)
        unit = value.unit if value else ""
        wanted = format_number(expected.value, unit)
        if expected.tolerance is not None:
            wanted += f" ± {expected.tolerance:.2g}"
        judgements.append(Judgement("paper", str(expected.cell), verdict,
                                    format_number(value.number, unit) if value else "", wanted, reason, expected.cell))
    return judgements


def _against_record(expected: Expected, is_close: bool, means: Mapping[Cell, float]) -> tuple[Verdict, str]:
    """A number of the paper that recorded runs missed too is known; one that they met, or missed, must stay so."""
    recorded = means.get(expected.cell)
    if recorded is None or expected.tolerance is None or abs(recorded - expected.value) <= expected.tolerance:
        return Verdict.MATCH if is_close else Verdict.DIFFERS, expected.reason
    if is_close:
        return Verdict.DIFFERS, "the paper's number is met now, but is recorded as missed; record the profile again"
    return Verdict.AS_RECORDED, f"recorded as {recorded:.4g} over the seeds; {expected.reason}"


def paper_applies(run: Run, measured: Measured) -> str | None:
    if run.profile != "paper":
        return f"the paper's numbers are of the paper's scale, this is the profile {run.profile}"
    counts = tuple(measured[cell].number if (cell := treebank_count(part)) in measured else None
                   for part in ("train", "test"))
    if counts != PAPER_TREES:
        return (f"the paper's numbers are of {PAPER_TREES[0]:,} training and {PAPER_TREES[1]:,} test trees of the "
                f"Penn Treebank, this run read {counts[0]} and {counts[1]}")
    return None


# ---- relations ------------------------------------------------------------------------------------------------------


def judge_relations(run: Run, measured: Measured, relations: Sequence[Relation],
                    record: Record | None) -> list[Judgement]:
    roles, tables = find_roles(measured), tabulate(measured)
    same_models = record is not None and has_repeated(record, run.seed, measured)
    judgements = []
    for relation in relations:
        if relation.scale == "paper" and run.profile != "paper":
            judgements.append(Judgement("relation", relation.id, Verdict.NOT_APPLICABLE, "", "",
                                        "claimed at paper scale only: " + relation.reason, table=relation.table,
                                        needs_paper_scale=True))
            continue
        found = evaluate(relation, tables, roles)
        if found.worst is None:
            verdict = Verdict.NOT_MEASURED if found.outcome == MISSING else Verdict.NOT_APPLICABLE
            judgements.append(Judgement("relation", relation.id, verdict, "", "", found.measured, table=relation.table))
            continue
        history = history_of(record, relation) if record is not None else History({}, {})
        explanation = ""
        if record is not None and (known := record.outcomes.get(relation.id)) and known.outcome != HOLDS:
            explanation = explain(known.explanation, record, history)
        verdict, reason = _outcome(found.worst, found.outcome, run.seed, history, same_models, explanation)
        judgements.append(Judgement("relation", relation.id, verdict, found.measured, found.expected, reason,
                                    where=found.where, comparison=found.worst, table=relation.table,
                                    recorded=tuple(c.value for c in history.by_seed.values())))
    if record is not None:
        listed = {relation.id for relation in relations}
        judgements += [Judgement("relation", id_, Verdict.NOT_MEASURED, "", "",
                                 "recorded, but relations.yaml has no such relation any more; record again")
                       for id_ in record.outcomes if id_ not in listed]
    return judgements


def _outcome(now: Comparison, outcome: str, seed: int | None, history: History, same_models: bool,
             explanation: str) -> tuple[Verdict, str]:
    """Compare what holds now with what was recorded: a change in either direction is a difference, unless the claim
    is nearer to its bound than honest runs lie apart."""
    explanation = explanation or "no explanation was written yet"
    if not history.by_seed:
        return (Verdict.MATCH, "") if outcome == HOLDS else (Verdict.DIFFERS, "the claim does not hold in this run")
    holds = history.holds()
    recorded = {HOLDS if held else FAILS for held in holds.values()}
    own = history.by_seed.get(seed) if seed is not None else None
    has_changed = (own.slack >= 0) != (outcome == HOLDS) if own is not None else outcome not in recorded
    if has_changed:
        if not history.is_honest(seed, now, same_models):
            if outcome == HOLDS:
                return Verdict.DIFFERS, "the claim holds now, but is recorded as failing; record the profile again"
            return Verdict.DIFFERS, "the claim does not hold in this run"
        if len(recorded) == 1:
            return Verdict.VARIES, f"{outcome} here and not in the recorded runs, by less than they lie apart"
    if recorded == {HOLDS}:
        return Verdict.MATCH, ""
    if recorded == {FAILS}:
        return Verdict.AS_RECORDED, explanation
    by_run = " ".join(f"{name}:{HOLDS if held else FAILS}" for name, held in holds.items())
    return Verdict.VARIES, f"{explanation} (recorded {by_run}; this run {outcome})"

