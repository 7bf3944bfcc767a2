"""docs/RESULTS.md: what is not shown, every claim with value, bound and verdict, and the paper's tables beside ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from pcfg_artifact.judge.claims import FAILS, GROUPS, HOLDS, MISSING, OF_PAPER, Claim, compare
from pcfg_artifact.judge.paper import ABOVE, BELOW, MATCH, Printed, as_numbers
from pcfg_artifact.judge.recorded_runs import Record, RecordedClaim
from pcfg_artifact.judge.summary import NO_MODEL, NOT_TESTABLE, ORDER, PASSED, SHOWN, status_of, tally
from pcfg_artifact.judge.tables import counterparts, measured_beside
from pcfg_artifact.metrics.schema import Metric, format_number
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.metrics.views import View, load_views

HEAD = """# Results

Written by `./run_all.sh record` from the recorded runs in `expected_results/`; do not edit.
[VALIDITY](VALIDITY.md) says what threatens the conclusions, [DEVIATIONS](DEVIATIONS.md) how this reproduction differs
from the paper, and [judging](dev/judging.md) where the bound of each claim is from."""
OUTDATED = """**`{profile}` has other settings now than when it was recorded**
([training](dev/training.md)): a run is not compared with these numbers until it is recorded again."""
NOT_SHOWN_HEAD = """## What is not shown

*Shown*: the claim holds, and the same model fails it before training and after training on text without syntax, where
these were measured. *Also holds without training*: such a model has it too. *Vacuous*: it holds because most sentences
were not parsed. The number of claims, each counted once, by the worse of two grammars:"""
CLAIMS_HEAD = """*Bound*: the value must be at least (≥), at most (≤) or more than (>) this. *Paper*: the value by
the paper's own printed numbers; blank where it prints none. Then each profile: the verdict, at how many seeds the claim
holds, and the value nearest to failing, its mean over seeds with the 95% interval. `vm` is the finer grammar, `novm`
the coarser one."""
CENTRAL_HEAD = """## The ten central findings

Named by the abstract and the conclusion of the paper. Nobody has run the profile `paper`: its column predicts."""
PREDICTED_HEAD = """## The paper's numbers, predicted

Whether a run of the profile `paper` on the Penn Treebank will find what the paper prints: within the tolerance, above,
or below. Said before anyone has run it; `expected_results/paper/` has the figures that each prediction rests on. That
run ends with exit code 1 where something comes out otherwise."""
TABLES_HEAD = """## The paper's tables beside ours

Ours are means over the recorded seeds, of another treebank and smaller models, so the paper's are for orientation. The
paper's figures are drawn in the report of every run; what it reads from them are claims above.

In the place of the paper's models: """
ROUNDING = 1e-9  # relative: a smaller interval is none
NOTHING_ASKED = (SHOWN, PASSED, NO_MODEL, NOT_TESTABLE)


def results_page(records: Sequence[Record], paper: Sequence[Printed], claims: Sequence[Claim],
                 outdated: Collection[str] = ()) -> str:
    """What is not shown comes first, central findings before others; then all other claims, predictions and tables.

    outdated: profiles that have other settings now than when they were recorded.
    """
    printed = as_numbers(paper)
    ranked = sorted(claims, key=lambda claim: (not claim.central, min(
        (ORDER.index(status(claim, record)) for record in records), default=0)))
    missed = [claim for claim in ranked if claim.group == OF_PAPER and any(
        status(claim, record) not in NOTHING_ASKED for record in records)]
    parts = [HEAD, *(OUTDATED.format(profile=name) for name in outdated), NOT_SHOWN_HEAD, _counts(claims, records),
             CLAIMS_HEAD, _claims(missed, records, printed), CENTRAL_HEAD, _central(ranked, records)]
    for group in GROUPS:
        title = "shown, or not testable here" if group == OF_PAPER else group
        rest = [claim for claim in ranked if claim.group == group and claim not in missed]
        parts += [f"## {title.capitalize()}", _claims(rest, records, printed)]
    return "\n\n".join([*parts, PREDICTED_HEAD, _predicted(paper), *_tables(records, paper)]) + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


# ---- claims ----------------------------------------------------------------------------------------------------------


def status(claim: Claim, record: Record) -> str:
    """The worst status of a claim over its grammars; one without numbers is about models that are not trained."""
    found = [status_of(claim, record.claims[claim.id, grammar].outcome, record.profile) for grammar in claim.grammars
             if (claim.id, grammar) in record.claims]
    return min(found, default=NO_MODEL, key=ORDER.index)


def _counts(claims: Sequence[Claim], records: Sequence[Record]) -> str:
    """How many claims of each group have which status, by profile."""
    rows = []
    for group in GROUPS:
        of_group = [claim for claim in claims if claim.group == group]
        rows.append([f"{len(of_group)} {group}", *(tally(status(claim, record) for claim in of_group)
                                                   for record in records)])
    return _table(["", *(f"`{record.profile}`, {len(record.seeds)} seeds" for record in records)], rows)


def _central(claims: Sequence[Claim], records: Sequence[Record]) -> str:
    rows = [[claim.claim, claim.central, *(status(claim, record) for record in records), claim.at_paper]
            for claim in claims if claim.central]
    return _table(["finding", "where", *(f"`{record.profile}`" for record in records), "`paper`, predicted"], rows)


def _claims(claims: Sequence[Claim], records: Sequence[Record], printed: Numbers) -> str:
    rows = []
    for claim in claims:
        theirs = compare(claim, printed, claim.grammars[0], partial=True).worst if claim.is_paper else None
        found = [[(grammar, recorded) for grammar in claim.grammars
                  if (recorded := record.claims.get((claim.id, grammar)))] for record in records]
        results = ["; ".join(" ".join(filter(None, (f"{grammar}:" if grammar else "", *_result(claim, one, record))))
                             for grammar, one in some) for record, some in zip(records, found, strict=True)]
        why = dict.fromkeys(one.explanation for some in found for _, one in some if one.explanation)
        rows.append([f"**{claim.claim}** ({claim.place})", claim.limit,
                     "" if theirs is None else f"{theirs.value:.3g}", *results, " ".join(why)])
    return _table(["claim", "bound", "paper", *(f"`{record.profile}`" for record in records), "why"], rows)


def _result(claim: Claim, recorded: RecordedClaim, record: Record) -> list[str]:
    """The verdict, at how many seeds the claim holds, and its mean value with the 95% interval."""
    verdict = status_of(claim, recorded.outcome, record.profile)
    if not recorded.values:
        return [verdict]
    mean, half = recorded.scatter()
    value = f"{mean:.3g} ± {_short(half)}" if half > ROUNDING * abs(mean) else f"{mean:.3g}"  # half may be NaN
    if not recorded.is_moved:
        return [f"{verdict}, {value} whatever the seed"]
    outcomes = list(recorded.outcomes.values())
    held, shown = sum(outcome not in (FAILS, MISSING) for outcome in outcomes), outcomes.count(HOLDS)
    return [f"{verdict}, {held} of {len(outcomes)}" + (f", {shown} with controls" if 0 < shown < held else "")
            + f", {value}"]


def _short(number: float) -> str:
    return f"{number:.2g}" if number < 100 else f"{number:.0f}"


# ---- the paper's numbers ---------------------------------------------------------------------------------------------


def _predicted(paper: Sequence[Printed]) -> str:
    kinds = (MATCH, ABOVE, BELOW)
    found: dict[str, Counter[str]] = {}
    for one in paper:
        if one.prediction:
            item = one.item if one.item.startswith("Table") else "text and theorems"
            found.setdefault(item.partition(",")[0], Counter())[one.prediction] += 1
    return _table(["", *kinds], [[item, *(str(found[item][kind]) for kind in kinds)] for item in sorted(found)])


def _tables(records: Sequence[Record], paper: Sequence[Printed]) -> list[str]:
    """Every table of the paper, then the numbers of its text: theirs, and those of each profile that has one."""
    ours: dict[str, Mapping[str, Metric]] = {}
    places = []
    for record in records:  # Numbers are means over seeds, here those of the record
        numbers = Numbers([metric for seed in record.seeds for metric in record.metrics(seed)])
        ours[record.profile] = {printed.name: metric for metric, printed in measured_beside(numbers, paper)}
        places.append(f"`{record.profile}` has " + ", ".join(
            f"{model} for {theirs}" for theirs, model in counterparts(numbers.roles).items()))
    theirs = [one for one in paper if not one.bound and any(one.name in found for found in ours.values())]
    parts = [TABLES_HEAD + "; ".join(places) + "."]
    for view in load_views():
        if of_view := [one for one in theirs if one.item == view.paper and one.dims["table"] in view.tables]:
            parts += [f"### {view.title}", _beside(view, of_view, ours)]
            theirs = [one for one in theirs if one not in of_view]
    text = [[one.name, f"{one.value:g}", *(_number(found.get(one.name)) for found in ours.values())]
            for one in theirs]
    return [*parts, "### Numbers in the text", _table(["", "paper", *ours], text)]


def _beside(view: View, theirs: Sequence[Printed], ours: Mapping[str, Mapping[str, Metric]]) -> str:
    """One table: for each column the paper's number, and those of the profiles."""
    by_place = {tuple(view.label({name: one.dims.get(name) for name in names}) for names in (view.rows, view.columns)):
                one for one in theirs}
    columns = list(dict.fromkeys(column for _, column in by_place))
    rows = []
    for label in dict.fromkeys(row for row, _ in by_place):
        cells = [label]
        for column in columns:
            one = by_place.get((label, column))
            cells += [""] * (1 + len(ours)) if one is None else [
                f"{one.value:g}", *(_number(found.get(one.name)) for found in ours.values())]
        rows.append(cells)
    return _table(["", *(head for column in columns for head in (f"{column}: paper", *ours))], rows)


def _number(metric: Metric | None) -> str:
    return "" if metric is None else format_number(metric.value, metric.unit)
