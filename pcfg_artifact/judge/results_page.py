"""docs/RESULTS.md: the claims and the paper's tables, with what every recorded profile gave."""

from __future__ import annotations

from collections.abc import Sequence

from pcfg_artifact.judge.claims import HOLDS, Claim
from pcfg_artifact.judge.paper import Printed
from pcfg_artifact.judge.recorded_runs import Record, RecordedClaim
from pcfg_artifact.judge.summary import NO_MODEL, ORDER, status_of
from pcfg_artifact.judge.tables import lay_out, to_frame
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.metrics.views import load_views

HEAD = """# Results

Written by `./run_all.sh record` from the recorded runs in `expected_results/`; do not edit.
[dev/judging.md](dev/judging.md) says how a run is judged by them, [DEVIATIONS.md](DEVIATIONS.md) how this reproduction
differs from the paper.

"""
def results_page(records: Sequence[Record], paper: Sequence[Printed], claims: Sequence[Claim]) -> str:
    """Central claims, all other claims, those that fail first, and every table of the paper, for each profile."""
    profiles = [f"* `{record.profile}`: {len(record.seeds)} seeds, {record.notes[0].partition(';')[0]}"
                for record in records]
    central = [claim for claim in claims if claim.central]
    others = {"Other claims of the paper": [claim for claim in claims if claim.is_paper and not claim.central],
              "Claims of this project": [claim for claim in claims if not claim.is_paper]}
    parts = [HEAD + "Recorded profiles:\n\n" + "\n".join(profiles), "## Central claims",
             "What the paper's abstract, introduction and conclusion rest on.", *_claims(central, records)]
    for title, some in others.items():
        parts += [f"## {title}", counts(some, records), *_claims(some, records)]
    return "\n\n".join([*parts, "## Tables of the paper", TABLES_HEAD, *_tables(records, paper)]) + "\n"


TABLES_HEAD = """Means over the recorded seeds; *(paper)* is the number that the paper prints for its model in the same
role, and *(difference)* ours less the paper's. Another treebank and smaller models give other numbers: the paper's are
for orientation."""


# ---- claims ----------------------------------------------------------------------------------------------------------


def counts(claims: Sequence[Claim], records: Sequence[Record]) -> str:
    """How many claims have which outcome, by profile; a claim counts once, whatever its grammars."""
    lines = []
    for record in records:
        found = [status(claim, record) for claim in claims]
        parts = [f"{found.count(kind)} {kind}" for kind in reversed(ORDER) if found.count(kind)]
        lines.append(f"* `{record.profile}`, of {len(claims)}: {', '.join(parts)}")
    return "\n".join(lines)


def status(claim: Claim, record: Record) -> str:
    """The worst status of a claim over its grammars; one without numbers is about models that are not trained."""
    found = [status_of(claim, record.claims[claim.id, grammar].outcome, record.profile) for grammar in claim.grammars
             if (claim.id, grammar) in record.claims]
    return min(found, default=NO_MODEL, key=ORDER.index)


def _claims(claims: Sequence[Claim], records: Sequence[Record]) -> list[str]:
    """A paragraph a claim, those that fail in some profile first."""
    def rank(claim: Claim) -> int:
        return min(ORDER.index(status(claim, record)) for record in records)

    return [_claim(claim, records) for claim in sorted(claims, key=rank)]


def _claim(claim: Claim, records: Sequence[Record]) -> str:
    place = f"{claim.place}; {claim.central}" if claim.central else claim.place
    lines = [f"**{claim.claim}** ({place}). {claim.says} As a relation: {claim.relation}."]
    for record in records:
        for grammar in claim.grammars:
            if recorded := record.claims.get((claim.id, grammar)):
                where = " ".join(filter(None, (record.profile, grammar)))
                lines.append(f"* {where}: {status_of(claim, recorded.outcome, record.profile)}, {_values(recorded)}. "
                             f"{recorded.explanation}".rstrip())
    return "\n".join(lines)


def _values(recorded: RecordedClaim) -> str:
    """The values nearest to failing over the seeds, and at how many it holds."""
    values, n = list(recorded.values.values()), len(recorded.values)
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    held = sum(outcome == HOLDS for outcome in recorded.outcomes.values())
    return f"{low if low == high else f'{low} to {high}'} at {n} seeds, holds at {held}"


# ---- tables ----------------------------------------------------------------------------------------------------------


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
