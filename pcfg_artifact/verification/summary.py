"""The verdict as text: one sentence, at most forty lines for a terminal, and every judgement as CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence

from pcfg_artifact.verification.comparison import FAILING, Judgement, Run, Verdict, passed
from pcfg_artifact.verification.relations import THE_PAPER, Relation

MAXIMUM_LINES = 39  # and one more, for the pipeline to say where the report is
MAXIMUM_NUMBERS = 5
WIDTH, NAME_WIDTH = 132, 64
# Claims in the order a terminal has room for: what changed, what is not shown, what is.
ORDER = (*FAILING, Verdict.AS_RECORDED, Verdict.VARIES, Verdict.MATCH, Verdict.NOT_JUDGED)
# What a verdict on a claim means to a reader.
OF_A_CLAIM = {Verdict.MATCH: "shown", Verdict.AS_RECORDED: "not shown", Verdict.VARIES: "depends on seed",
              Verdict.NOT_APPLICABLE: "no such model"}
NEEDS_SCALE = "needs the full scale"
AGAINST = {"relation": "claims", "table": "means of tables", "record": "recorded numbers",
           "paper": "numbers of the paper"}


def banner(judgements: Sequence[Judgement], relations: Sequence[Relation]) -> tuple[str, str]:
    """Two sentences: what was shown, what not, what could not be judged; and whether the run is as recorded."""
    sources = {relation.id: relation.source for relation in relations}
    claims = [j for j in judgements if j.against == "relation" and sources.get(j.name, THE_PAPER) == THE_PAPER]
    found = Counter(j.verdict for j in claims)
    needs_scale = sum(j.verdict == Verdict.NOT_APPLICABLE and j.needs_paper_scale for j in claims)
    parts = [f"{found[Verdict.MATCH]} of the paper's {len(claims)} claims shown",
             _some(found[Verdict.AS_RECORDED], "not shown at this scale"),
             _some(found[Verdict.VARIES], "shown for some seeds only"),
             _some(needs_scale, f"{'needs' if needs_scale == 1 else 'need'} the full scale"),
             _some(found[Verdict.NOT_APPLICABLE] - needs_scale, "about models that this profile does not train"),
             _some(sum(found[verdict] for verdict in FAILING), "not as recorded")]
    others = [j for j in judgements if j.against == "relation" and sources.get(j.name, THE_PAPER) != THE_PAPER]
    if others:
        shown = sum(j.verdict == Verdict.MATCH for j in others)
        parts.append(f"and {shown} of {len(others)} claims of this project")
    return ", ".join(filter(None, parts)) + ".", _numbers(judgements)


def central(judgements: Sequence[Judgement], relations: Sequence[Relation]) -> str:
    """One sentence on the claims that the paper's answer rests on: how many are shown, and which are not."""
    names = {relation.id: relation.claim for relation in relations if relation.is_central}
    judged = [j for j in judgements if j.name in names and j.verdict != Verdict.NOT_APPLICABLE]
    if not judged:
        return ""
    missing = [names[j.name] for j in judged if j.verdict != Verdict.MATCH]
    return (f"{len(judged) - len(missing)} of {len(judged)} central claims shown"
            + (f"; not shown, or not for every seed: {'; '.join(missing)}" if missing else "") + ".")


def _some(n: int, words: str) -> str:
    return f"{n} {words}" if n else ""


def _numbers(judgements: Sequence[Judgement]) -> str:
    numbers = [j for j in judgements if j.against == "record"]
    judged = [j for j in numbers if j.verdict not in (Verdict.NOT_APPLICABLE, Verdict.NOT_JUDGED)]
    changed = [j for j in judged if j.verdict in FAILING]
    means = [j for j in judgements if j.against == "table" and j.verdict in FAILING]
    unjudged = sum(j.verdict == Verdict.NOT_JUDGED for j in numbers)
    if not judged:
        return "No recorded numbers apply: " + (numbers[0].reason if numbers else "nothing was measured") + "."
    kept = f", {unjudged:,} scatter too far to be judged" if unjudged else ""
    if not changed and not means:
        return f"Every recorded number is as recorded ({len(judged):,} judged{kept})."
    what = [_some(len(changed), f"of {len(judged):,} recorded numbers"), _some(len(means), "means of tables")]
    return f"NOT as recorded: {' and '.join(filter(None, what))}{kept}."


def summarise(run: Run, judgements: Sequence[Judgement], relations: Sequence[Relation]) -> str:
    """Claim, verdict, measured against expected; what differs first, and nothing that fails is left uncounted."""
    claims = {relation.id: relation.claim for relation in relations}
    judged = [j for j in judgements if j.against == "relation" and j.verdict != Verdict.NOT_APPLICABLE]
    judged.sort(key=lambda j: ORDER.index(j.verdict))
    head = [f"{'claim':<{NAME_WIDTH}} {'verdict':<18} measured (expected)"]
    foot = [counts(judgements, against, name) for against, name in AGAINST.items()]
    foot += [*filter(None, (*banner(judgements, relations), central(judgements, relations))),
             f"{run.profile}: " + conclusion(judgements)]
    lines = [_line(claims.get(j.name, j.name), j) for j in judged]
    numbers = []
    for against in ("table", "record", "paper"):
        failing = [j for j in judgements if j.against == against and j.verdict in FAILING]
        numbers += [_line(j.name, j) for j in failing[:MAXIMUM_NUMBERS]]
        if len(failing) > MAXIMUM_NUMBERS:
            numbers.append(f"… and {len(failing) - MAXIMUM_NUMBERS} more {AGAINST[against]}, listed in verdicts.csv")
    lines = numbers + lines
    room = MAXIMUM_LINES - len(head) - len(foot)
    if len(lines) > room:
        lines = [*lines[:room - 1], f"… and {len(lines) - room + 1} more claims, listed in the report"]
    return "\n".join(head + lines + foot)


def conclusion(judgements: Sequence[Judgement]) -> str:
    return "everything that applies is as expected" if passed(judgements) else "NOT as expected: see above"


def _line(name: str, judgement: Judgement) -> str:
    figures = judgement.measured + (f" ({judgement.expected})" if judgement.expected else "")
    figures = figures or judgement.reason
    return _cut(f"{_cut(name, NAME_WIDTH):<{NAME_WIDTH}} {verdict_words(judgement):<18} {figures}", WIDTH)


def verdict_words(judgement: Judgement) -> str:
    """A verdict as a reader finds it: of a claim, what it means for the claim."""
    if judgement.against != "relation":
        return judgement.verdict.value
    return NEEDS_SCALE if judgement.needs_paper_scale else OF_A_CLAIM.get(judgement.verdict, judgement.verdict.value)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[:width - 1] + "…"


def counts(judgements: Sequence[Judgement], against: str, name: str) -> str:
    found = Counter(j.verdict for j in judgements if j.against == against)
    parts = [f"{found[verdict]} {verdict.value}" for verdict in Verdict if found[verdict]]
    return f"{name}: {', '.join(parts) or 'none'}"


def to_csv(judgements: Sequence[Judgement], relations: Mapping[str, Relation]) -> str:
    """verdicts.csv: one row per number, per mean of a table and per relation."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["against", "name", "verdict", "measured", "expected", "where", "reason", "paper", "claim"])
    for j in judgements:
        relation = relations.get(j.name) if j.against == "relation" else None
        writer.writerow([j.against, j.name, j.verdict.value, j.measured, j.expected, j.where, j.reason,
                         relation.place if relation else "", relation.claim if relation else ""])
    return buffer.getvalue()
