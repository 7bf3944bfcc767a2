"""docs/RESULTS.md: what is not shown, the central findings, all claims, and the paper's tables, by recorded profile."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from pcfg_artifact.judge.claims import FAILS, GROUPS, HOLDS, MISSING, OF_PAPER, Claim, compare
from pcfg_artifact.judge.paper import ABOVE, BELOW, MATCH, Printed, as_numbers
from pcfg_artifact.judge.recorded_runs import Record, RecordedClaim
from pcfg_artifact.judge.summary import NO_MODEL, NOT_TESTABLE, ORDER, PASSED, SHOWN, status_of, tally
from pcfg_artifact.judge.tables import lay_out, to_frame
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.metrics.views import load_views

HEAD = """# Results

Written by `./run_all.sh record` from the recorded runs in `expected_results/`; do not edit.
[dev/judging.md](dev/judging.md) says how a run is judged by them and where the number of each relation is from,
[DEVIATIONS.md](DEVIATIONS.md) how this reproduction differs from the paper, [VALIDITY.md](VALIDITY.md) what threatens
its conclusions.

"""
NOT_SHOWN_HEAD = """## What is not shown

Findings of the paper that a recorded profile does not show, those of the abstract and conclusion first. A finding
about trained models is *shown* only if the same model fails it before training, and after training on text without
syntax; else it *also holds without training*. *Vacuous*: it holds because most sentences were not parsed."""
CENTRAL_HEAD = """## Central findings

What the paper's abstract and conclusion name. Nobody has run the profile `paper`: its column is a prediction."""
PREDICTED_HEAD = """## The paper's numbers, predicted

What a run of the profile `paper` on the Penn Treebank will find of every number that the paper prints: within the
tolerance, above, or below. Said before anyone has run it, with the figures it rests on, in `expected_results/paper/`;
only what comes out otherwise makes that run end with exit code 1."""
TABLES_HEAD = """## Tables of the paper

Means over the recorded seeds; *(paper)* is the number that the paper prints for its model in the same role, and
*(difference)* ours less the paper's. Another treebank and smaller models give other numbers: the paper's are for
orientation."""
NOTHING_ASKED = (SHOWN, PASSED, NO_MODEL, NOT_TESTABLE)


def results_page(records: Sequence[Record], paper: Sequence[Printed], claims: Sequence[Claim]) -> str:
    """What is not shown, central findings, all other claims by group, predictions, and every table of the paper."""
    profiles = "\n".join(f"* `{record.profile}`: {len(record.seeds)} seeds, {record.notes[0].partition(';')[0]}"
                         for record in records)
    printed = as_numbers(paper)
    ranked = sorted(claims, key=lambda claim: (not claim.central, min(
        (ORDER.index(status(claim, record)) for record in records), default=0)))
    missed = [claim for claim in ranked if claim.group == OF_PAPER and any(
        status(claim, record) not in NOTHING_ASKED for record in records)]
    parts = [HEAD + "Recorded profiles:\n\n" + profiles, NOT_SHOWN_HEAD, counts(claims, records),
             *(_claim(claim, records, printed) for claim in missed), CENTRAL_HEAD, _central(claims, records)]
    for group in GROUPS:
        title = "other findings of the paper" if group == OF_PAPER else group
        parts += [f"## {title.capitalize()}", *(_claim(claim, records, printed) for claim in ranked
                                                if claim.group == group and claim not in missed)]
    return "\n\n".join([*parts, PREDICTED_HEAD, _predicted(paper), TABLES_HEAD, *_tables(records, paper)]) + "\n"


# ---- claims ----------------------------------------------------------------------------------------------------------


def counts(claims: Sequence[Claim], records: Sequence[Record]) -> str:
    """How many claims of each group have which status, by profile; a claim counts once, whatever its grammars."""
    return "\n".join(
        f"* `{record.profile}`, {len(some)} {group}: {tally(status(claim, record) for claim in some)}"
        for group in GROUPS for record in records
        if (some := [claim for claim in claims if claim.group == group]))


def status(claim: Claim, record: Record) -> str:
    """The worst status of a claim over its grammars; one without numbers is about models that are not trained."""
    found = [status_of(claim, record.claims[claim.id, grammar].outcome, record.profile) for grammar in claim.grammars
             if (claim.id, grammar) in record.claims]
    return min(found, default=NO_MODEL, key=ORDER.index)


def _central(claims: Sequence[Claim], records: Sequence[Record]) -> str:
    rows = [{"finding": claim.claim, "where": claim.central,
             **{f"`{record.profile}`": status(claim, record) for record in records},
             "`paper`, predicted": claim.at_paper} for claim in claims if claim.central]
    return pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True)


def _claim(claim: Claim, records: Sequence[Record], printed: Numbers) -> str:
    """The claim, its relation with the number that the paper itself has, and what every recorded profile gave."""
    place = f"{claim.place}; {claim.central}" if claim.central else claim.place
    theirs = compare(claim, printed, claim.grammars[0], partial=True).worst
    own = "" if not claim.is_paper else " The paper prints no number for it." if theirs is None else \
        f" The paper's own number: {theirs.value:.3g} ({theirs.measured})."
    lines = [f"**{claim.claim}** ({place}). {claim.says} As a relation: {claim.relation} ({claim.basis}: "
             f"{claim.reason}).{own}"]
    for record in records:
        for grammar in claim.grammars:
            if recorded := record.claims.get((claim.id, grammar)):
                where = " ".join(filter(None, (record.profile, grammar)))
                found = [status_of(claim, recorded.outcome, record.profile), *_values(claim, recorded)]
                lines.append(f"* {where}: {', '.join(found)}. {recorded.explanation}".rstrip())
    return "\n".join(lines)


def _values(claim: Claim, recorded: RecordedClaim) -> list[str]:
    """At how many seeds it holds, and the mean margin with its interval, or that no seed moves it."""
    if not recorded.values:
        return []
    mean, half = recorded.scatter(claim)
    if not recorded.is_moved or half == 0:
        return [f"the same at every seed, margin {mean:.3g}"]
    outcomes = list(recorded.outcomes.values())
    held, shown = sum(outcome not in (FAILS, MISSING) for outcome in outcomes), outcomes.count(HOLDS)
    interval = "" if math.isnan(half) else f" ± {half:.2g}"
    return [f"holds at {held} of {len(outcomes)} seeds", *([f"shown at {shown}"] if 0 < shown < held else []),
            f"margin {mean:.3g}{interval}",
            *(["within the scatter of seeds"] if abs(mean) < half else [])]


# ---- the paper's numbers ---------------------------------------------------------------------------------------------


def _predicted(paper: Sequence[Printed]) -> str:
    numbers = [one for one in paper if one.prediction]
    found = Counter((one.item, one.prediction) for one in numbers)
    rows = [{"item": item, **{kind: found[item, kind] for kind in (MATCH, ABOVE, BELOW)}}
            for item in sorted({one.item for one in numbers})]
    return pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True)


def _tables(records: Sequence[Record], paper: Sequence[Printed]) -> list[str]:
    laid_out = {}
    for record in records:  # Numbers are means over seeds, here those of the record
        numbers = Numbers([metric for seed in record.seeds for metric in record.metrics(seed)])
        laid_out[record.profile] = {table.id: table for table in lay_out(numbers, paper, {})}
    parts = []
    for view in load_views():
        tables = {profile: found[view.id] for profile, found in laid_out.items() if view.id in found}
        if view.paper and tables:
            parts.append(f"### {view.title}")
            for profile, table in tables.items():
                parts += [f"`{profile}`", to_frame(table).to_markdown(index=False, disable_numparse=True)]
    return parts
