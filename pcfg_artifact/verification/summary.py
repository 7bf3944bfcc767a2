"""The verdict as text: at most forty lines for a terminal, and every judgement as CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence

from pcfg_artifact.verification.comparison import FAILING, Judgement, Run, Verdict, passed
from pcfg_artifact.verification.relations import Relation

MAXIMUM_LINES = 39  # and one more, for the pipeline to say where the report is
WIDTH = 132
# Claims in the order a reader wants them: what fails, what is known to fail, what holds.
ORDER = (*FAILING, Verdict.AS_RECORDED, Verdict.VARIES, Verdict.MATCH)
SHORT = {Verdict.AS_RECORDED: "fails, as recorded", Verdict.VARIES: "depends on seed"}


def summarise(run: Run, judgements: Sequence[Judgement], relations: Sequence[Relation]) -> str:
    """Claim, verdict, measured against expected; what differs first, and nothing that fails is left uncounted."""
    claims = {relation.id: relation.claim for relation in relations}
    judged = [j for j in judgements if j.against == "relation" and j.verdict != Verdict.NOT_APPLICABLE]
    judged.sort(key=lambda j: ORDER.index(j.verdict))
    numbers = [j for j in judgements if j.against != "relation" and j.verdict in FAILING]
    head = [f"{'claim':<64} {'verdict':<18} measured (expected)"]
    foot = [counts(judgements, against, name) for against, name in
            (("relation", "claims"), ("record", "recorded numbers"), ("paper", "numbers of the paper"))]
    conclusion = "everything that applies is as expected" if passed(judgements) else "NOT as expected: see above"
    foot.append(f"{run.profile}: {conclusion}")
    lines = [_line(claims.get(j.name, j.name), j) for j in judged]
    lines[0:0] = [_line(j.name, j) for j in numbers[:5]]
    if len(numbers) > 5:
        lines.insert(5, f"… and {len(numbers) - 5} more numbers, listed in verdicts.csv")
    room = MAXIMUM_LINES - len(head) - len(foot)
    if len(lines) > room:
        lines = [*lines[:room - 1], f"… and {len(lines) - room + 1} more claims, listed in the report"]
    return "\n".join(head + lines + foot)


def _line(name: str, judgement: Judgement) -> str:
    figures = judgement.measured + (f" ({judgement.expected})" if judgement.expected else "")
    figures = figures or judgement.reason
    text = f"{name:<64.64} {SHORT.get(judgement.verdict, judgement.verdict.value):<18} {figures}"
    return text if len(text) <= WIDTH else text[:WIDTH - 1] + "…"


def counts(judgements: Sequence[Judgement], against: str, name: str) -> str:
    found = Counter(j.verdict for j in judgements if j.against == against)
    parts = [f"{found[verdict]} {verdict.value}" for verdict in Verdict if found[verdict]]
    return f"{name}: {', '.join(parts) or 'none'}"


def to_csv(judgements: Sequence[Judgement], relations: Mapping[str, Relation]) -> str:
    """verdicts.csv: one row per number and per relation."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["against", "name", "verdict", "measured", "expected", "where", "reason", "paper", "claim"])
    for j in judgements:
        relation = relations.get(j.name) if j.against == "relation" else None
        writer.writerow([j.against, j.name, j.verdict.value, j.measured, j.expected, j.where, j.reason,
                         relation.paper if relation else "", relation.claim if relation else ""])
    return buffer.getvalue()
