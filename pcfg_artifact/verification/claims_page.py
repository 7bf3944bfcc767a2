"""The two tables of docs/CLAIMS.md that follow from data: every claim in one line, and what shift is noticed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pcfg_artifact.verification.expectations import Record
from pcfg_artifact.verification.families import Part, in_words, is_trained
from pcfg_artifact.verification.relations import STRICT, Relation
from pcfg_artifact.verification.spread import SAME_MODEL, SEEDS, spread_of

BEGIN, END = "<!-- {name}: written by `record`, do not edit -->", "<!-- end of {name} -->"
# The tables of the paper, and what stands behind them; the others are judged the same way.
SHOWN = ("table3", "table4", "table5", "table6", "table7", "table8", "figure_layers", "figure_marginals",
         "figure_attention", "against_optimum", "loss_curve")
STRENGTHS = {
    "at_most": "every cell at most {0:g}", "at_least": "every cell at least {0:g}",
    "below": "second at least {0:g} above the first", "within": "at most {0:g} apart, either way",
    "monotone": "in that order, steps back of at most {0:g}", "spread_within": "within {0:g} percent",
    "rising_trend": "rank correlation at least {0:g}", "alike": "correlation at least {0:g}"}


def claims_table(relations: Sequence[Relation]) -> str:
    """One line a claim: what it says in our words, where, its relation and how strong that is."""
    lines = ["| relation | the paper, in our words | place | holds when | scale |", "|---|---|---|---|---|"]
    lines += [f"| `{r.id}` | {r.claim}. {r.says} | {r.place} | {strength(r)} ({r.reason}) | {r.scale} |"
              for r in relations]
    return "\n".join(line.replace("…", "...") for line in lines)


def strength(relation: Relation) -> str:
    if relation.number == STRICT:
        return "second above the first"
    if relation.kind == "below" and relation.number <= 0:
        return "second not below the first" if not relation.number else (
            f"second at most {-relation.number:g} below the first")
    if relation.kind == "monotone" and abs(relation.number) <= STRICT:
        return "falling in that order" if relation.falling else "rising in that order"
    return STRENGTHS[relation.kind].format(relation.number)


def detection_table(record: Record) -> str:
    """The largest shift of a mean that still passes, per part of a table: by what the run shares with the record."""
    spread, seed = spread_of(record), record.seeds[0]
    models = {part.model for part in spread.parts if part.model}
    same = spread.mean_limits(seed, models)
    other, another = spread.mean_limits(seed), spread.mean_limits(None)
    lines = ["| part of a table | same seed, same arithmetic | same seed, other arithmetic | another seed |",
             "|---|---|---|---|"]
    for part in sorted(same):
        if part.table in SHOWN and any(is_trained(record.stages[cell]) for cell in same[part].expected):
            widths = [_width(part, same[part].width) if same[part].why == SAME_MODEL else "not measured",
                      _width(part, other[part].width) if other[part].why != SEEDS else "not measured",
                      _width(part, another[part].width)]
            name = ", ".join(filter(None, (part.table, part.model, part.measure)))
            lines.append(f"| {name} | {' | '.join(widths)} |")
    return "\n".join(lines)


def _width(part: Part, width: float) -> str:
    return in_words(width, part.unit).lstrip("+")


def fill(page: str, name: str, table: str) -> str:
    """The page with the table between its two marks."""
    begin, end = BEGIN.format(name=name), END.format(name=name)
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n{table}\n{end}", page)
