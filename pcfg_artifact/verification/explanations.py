"""Explanations of claims that fail: their numbers are read from the record, so that they cannot go stale.

In brackets stands what a recorded run says:  [min TABLE / ROW / COLUMN] and [max ...] over all matching cells and
seeds (`*` and {roles} as in relations.yaml); [least], [most]: the smallest and largest value that the claim compares
with its bound, over recorded runs; [behind]: how far below zero it gets; [failing], [runs]: how many of them fail, and
how many there are.
"""

from __future__ import annotations

import re

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.roles import find_roles
from pcfg_artifact.verification.expectations import Record
from pcfg_artifact.verification.history import History
from pcfg_artifact.verification.measured import Value, tabulate
from pcfg_artifact.verification.relations import Selector
from pcfg_artifact.verification.selection import Inapplicable, Missing, select

PLACE = re.compile(r"\[([^\]]*)\]")
SAME_TWICE = re.compile(r"(?<!\S)(-?[\d.,]*\d) to \1(?![\d.,]*\d)")
CELLS = re.compile(r"(min|max) (\S+) / (.+) / (.+)$")
# Numbers that may stand in the text itself: names, and what the paper says.
NAMES = re.compile(r"\(the paper[^)]*\)|(Table|Theorem) [\d.]+|2-layer|layers? \d+(( and| or) \d+)?|[Rr]ank \d+|F1"
                   r"|float64|\d+ (in|pre)-terminals|\d+ most frequent|lengths? \d+|A\d+L\d+|[a-z-]+-layer-0")


def explain(text: str, record: Record, history: History) -> str:
    """The explanation with its numbers; where all runs agree, "-1 to -1" is one number."""
    filled = PLACE.sub(lambda match: _number(match.group(1), record, history), text)
    return SAME_TWICE.sub(r"\1", filled)


def bare_numbers(text: str) -> list[str]:
    """Numbers in an explanation that are neither read from the record nor part of a name."""
    return re.findall(r"\S*\d\S*", NAMES.sub("", PLACE.sub("", text)))


def _number(place: str, record: Record, history: History) -> str:
    simple = {
        "failing": lambda: str(sum(not held for held in history.holds().values())),
        "runs": lambda: str(len(history.holds())),
        "behind": lambda: _short(-min(_values(history))),
        "least": lambda: _short(min(_values(history))),
        "most": lambda: _short(max(_values(history)))}
    if place in simple:
        return simple[place]()
    match = CELLS.match(place)
    if match is None:
        raise ConfigError(f"outcomes.csv of {record.profile}: [{place}] is not understood; expected [min TABLE / ROW / "
                          f"COLUMN], [max ...], [least], [most], [behind], [failing] or [runs]")
    selector = Selector(match.group(2), (match.group(3),), (match.group(4),))
    roles, numbers, unit = find_roles(record.units), [], ""
    for values in record.by_seed.values():
        tables = tabulate({cell: Value(number, record.units[cell]) for cell, number in values.items()
                           if cell.table == selector.table})
        try:
            found = select(selector, tables, {}, roles)
        except (Missing, Inapplicable) as error:
            raise ConfigError(f"outcomes.csv of {record.profile}: [{place}]: {error}") from error
        numbers += [f.number for f in found]
        unit = found[0].unit
    return _short((min if match.group(1) == "min" else max)(numbers), unit)


def _values(history: History) -> list[float]:
    return [c.value for c in (*history.by_seed.values(), *history.reruns.values())]


def _short(number: float, unit: str = "") -> str:
    """As a reader says it: whole points of F1, two digits of a correlation."""
    if unit in ("percent", "perplexity") and abs(number) >= 1:
        return f"{number:.0f}"
    if 0.99 < number < 1:
        return f"{number:.4f}"[1:]
    if abs(number) < 1:  # two digits, or the first one that is not zero
        text = f"{number:.2f}" if abs(number) >= 0.01 or number == 0 else f"{number:.4f}".rstrip("0")
        return text.replace("0.", ".", 1)
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
