"""The two verdicts as text: for a terminal at most a screen, and every judgement as CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pcfg_artifact.judge import claims
from pcfg_artifact.judge.claims import EVALUATED, FAILS, GROUPS, HOLDS, Claim
from pcfg_artifact.judge.judge import ClaimVerdict, Verdict, Verdicts
from pcfg_artifact.judge.recorded_runs import VARIES
from pcfg_artifact.metrics.schema import KEY, csv_text
from pcfg_artifact.metrics.selection import Numbers

MAXIMUM_NUMBERS, MAXIMUM_CLAIMS = 5, 8  # that a terminal shows of what disagrees
WIDTH, NAME_WIDTH = 132, 71
SHOWN, NOT_SHOWN, DEPENDS, NO_MODEL, NOT_TESTABLE, NOT_MEASURED = (
    "shown", "not shown", "depends on the seed", "no such model", "not testable here", "not measured here")
NOTHING_LEARNED, NO_CONTROL, NOTHING_PARSED = "also holds without training", "holds, no control", "vacuous"
PASSED, NOT_PASSED = "passed", "not passed"  # of a sanity check, which shows nothing
ORDER = (NOT_SHOWN, NOT_PASSED, NOTHING_PARSED, NOTHING_LEARNED, DEPENDS, NO_CONTROL, NOT_MEASURED, NOT_TESTABLE,
         SHOWN, PASSED, NO_MODEL)
STATUS = {HOLDS: SHOWN, FAILS: NOT_SHOWN, VARIES: DEPENDS, claims.MISSING: NOT_MEASURED, claims.VACUOUS: NOTHING_PARSED,
          claims.UNTRAINED: NOTHING_LEARNED, claims.UNCONTROLLED: NO_CONTROL}


def status(found: ClaimVerdict, profile: str) -> str:
    """What a claim's outcome means to a reader: of the run alone, but for claims that are recorded to vary."""
    varies = found.recorded is not None and found.recorded.outcome == VARIES and found.outcome in EVALUATED
    return status_of(found.claim, VARIES if varies else found.outcome, profile)


def status_of(claim: Claim, outcome: str, profile: str) -> str:
    """The same of an outcome of one run or of several."""
    if claim.scale == "paper" and profile != "paper" and outcome in (*EVALUATED, VARIES):
        return NOT_TESTABLE
    if claim.is_check and outcome in (HOLDS, FAILS):
        return PASSED if outcome == HOLDS else NOT_PASSED
    return STATUS.get(outcome, NO_MODEL)


def tally(statuses: Iterable[str]) -> str:
    """How many of some claims have which status, what is shown first."""
    found = Counter(statuses)
    order = sorted(ORDER, key=lambda kind: kind not in (SHOWN, PASSED))
    return ", ".join(f"{found[kind]} {kind}" for kind in order if found[kind])


def name(found: ClaimVerdict) -> str:
    several = len(found.claim.grammars) > 1
    return f"{found.claim.claim} [{found.grammar}]" if several else found.claim.claim


def by_claim(verdicts: Verdicts) -> dict[str, list[ClaimVerdict]]:
    """The verdicts of every claim, which counts once however many grammars it is evaluated on."""
    found: dict[str, list[ClaimVerdict]] = {}
    for one in verdicts.claims:
        found.setdefault(one.claim.id, []).append(one)
    return found


def worst_status(found: Sequence[ClaimVerdict], profile: str) -> str:
    return min((status(one, profile) for one in found), key=ORDER.index)


# ---- the two verdicts ------------------------------------------------------------------------------------------------


def agreement(verdicts: Verdicts) -> str:
    """Does this run agree with the recorded runs, and at paper scale with the paper's numbers?"""
    judged = Counter(j.against for j in verdicts.judgements if j.verdict != Verdict.NOT_JUDGED)
    if verdicts.why_not and not judged and not verdicts.agrees:
        wrong = [found.claim.claim for found in verdicts.claims if not found.agrees]
        return f"{len(wrong)} claims about exact constructions FAIL ({'; '.join(wrong)}): {verdicts.why_not}."
    if verdicts.why_not and not judged:
        return f"No recorded run to compare with: {verdicts.why_not}."
    what = {"number": "numbers", "mean": "means", "paper": "numbers of the paper"}
    compared = f"{_counted(judged, what)} compared" + (f" ({verdicts.how})" if verdicts.how else "")
    n_outside = sum(j.verdict == Verdict.DIFFERS for j in verdicts.judgements if j.against == "mean")
    if 0 < n_outside <= verdicts.n_allowed:
        compared += f"; {n_outside} of the means {'lies' if n_outside == 1 else 'lie'} outside, at most " \
                    f"{verdicts.n_allowed} may"
    others = "the recorded runs" if not verdicts.why_not else "the paper's numbers"
    if verdicts.agrees:
        return f"This run agrees with {others}: {compared}."
    failing = Counter(j.against for j in verdicts.outside)
    failing["claim"] = sum(not found.agrees for found in verdicts.claims)
    return f"This run DISAGREES with {others} in {_counted(failing, {**what, 'claim': 'claims'})}: {compared}."


def _counted(found: Counter[str], words: Mapping[str, str]) -> str:
    return ", ".join(f"{found[kind]:,} {text}" for kind, text in words.items() if found[kind]) or "no numbers"


def findings(verdicts: Verdicts) -> str:
    """What this run shows: findings of the paper, findings of this project and sanity checks, each counted apart."""
    found: dict[str, list[str]] = {group: [] for group in GROUPS}
    for one in by_claim(verdicts).values():
        found[one[0].claim.group].append(worst_status(one, verdicts.run.profile))
    return " ".join(f"{len(some)} {group}: {tally(some)}." for group, some in found.items() if some)


def central(verdicts: Verdicts) -> str:
    """One sentence on the findings that the paper's abstract and conclusion name."""
    found = [one for one in by_claim(verdicts).values() if one[0].claim.central]
    profile = verdicts.run.profile
    missing = [one[0].claim.claim for one in found if worst_status(one, profile) != SHOWN]
    if not found:
        return ""
    return (f"{len(found) - len(missing)} of {len(found)} central findings shown"
            + (f"; not: {'; '.join(missing)}" if missing else "") + ".")


# ---- on a terminal ---------------------------------------------------------------------------------------------------


def summarise(verdicts: Verdicts) -> str:
    """What disagrees first, then the central findings; the last lines are the verdicts."""
    lines = [_line(j.name, f"{j.measured} (expected {j.expected} {j.allowed})", j.verdict.value)
             for j in verdicts.outside[:MAXIMUM_NUMBERS]]
    if len(verdicts.outside) > MAXIMUM_NUMBERS:
        lines.append(f"… and {len(verdicts.outside) - MAXIMUM_NUMBERS} more, listed in verdicts.csv")
    profile = verdicts.run.profile
    turned = [found for found in verdicts.claims if not found.agrees]
    lines += [_claim_line(found, profile) for found in turned[:MAXIMUM_CLAIMS]]
    if len(turned) > MAXIMUM_CLAIMS:
        lines.append(f"… and {len(turned) - MAXIMUM_CLAIMS} more claims, listed in the report")
    lines += [_claim_line(found, profile) for found in verdicts.claims
              if found.claim.central and found.agrees and status(found, profile) != NO_MODEL]
    n_failing = sum(any(one.outcome == FAILS and one.agrees for one in found) for found in by_claim(verdicts).values())
    known = "" if verdicts.why_not else ", as in the recorded runs"
    foot = [f"{n_failing} claims fail{known}." if n_failing else "", findings(verdicts), central(verdicts),
            agreement(verdicts)]
    return "\n".join([f"{'central findings':<{NAME_WIDTH}} {'in this run':<20} measured (claimed)", *lines,
                      *filter(None, foot)])


def _claim_line(found: ClaimVerdict, profile: str) -> str:
    worst = found.evaluation.worst
    figures = f"{worst.measured} ({worst.expected})" if worst is not None else found.evaluation.why
    turned = "" if found.agrees else ", NOT AS RECORDED"
    return _line(name(found), figures, status(found, profile) + turned)


def _line(text: str, figures: str, kind: str = "") -> str:
    return _cut(f"{_cut(text, NAME_WIDTH):<{NAME_WIDTH}} {kind:<20} {figures}", WIDTH)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[:width - 1] + "…"


def to_csv(verdicts: Verdicts) -> str:
    """verdicts.csv: one row for each number judged alone, mean, printed number and claim."""
    rows = [[j.against, j.name, j.verdict.value, j.measured, j.expected, j.allowed, j.reason]
            for j in verdicts.judgements]
    for found in verdicts.claims:
        worst = found.evaluation.worst
        rows.append(["claim", f"{found.claim.id} {found.grammar}".strip(), found.outcome,
                     worst.measured if worst else "", worst.expected if worst else "",
                     "" if found.recorded is None else found.recorded.outcome,
                     "as recorded" if found.agrees else f"not as recorded: {found.reason}"])
    return csv_text(["against", "name", "verdict", "measured", "expected", "allowed", "reason"], rows)


def numbers_csv(verdicts: Verdicts, numbers: Numbers) -> str:
    """numbers.csv: the verdict on every number, by its dimensions."""
    of_numbers = verdicts.of_numbers
    return csv_text([*KEY, "verdict"], ([*m.key, of_numbers.get(m.key)] for m in numbers.metrics))
