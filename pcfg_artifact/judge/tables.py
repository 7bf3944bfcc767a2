"""The tables of the report: what was measured beside what the paper prints, deviations marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pcfg_artifact.judge.judge import FAILING
from pcfg_artifact.judge.paper import Printed
from pcfg_artifact.metrics.models import Roles, shape_of
from pcfg_artifact.metrics.schema import WHOLE_NUMBERS, Key, Metric, csv_text, format_number
from pcfg_artifact.metrics.selection import BEST, Inapplicable, Missing, Numbers
from pcfg_artifact.metrics.views import DEVIATION, LAYER, TABLES, VALUE, View, all_views, grouped, load_views

PAPER_MODELS = {"base": "A12L12", "fewest_layers": "A12L1", "fewest_heads": "A3L12"}
Place = tuple[Any, ...]  # the values of the dimensions that tell a row, or a column, from others
Theirs = dict[Key, tuple[Metric, Printed]]  # numbers of this run beside the paper's, in the paper's order


@dataclass(frozen=True)
class Entry:
    """One number of a table: measured, the paper's (of the model in the same role), and its verdict."""

    metric: Metric
    paper: Printed | None = None
    verdict: str = ""
    layer: int | None = None  # that was chosen for it

    @property
    def is_deviation(self) -> bool:
        return self.verdict.endswith(FAILING)  # its own, or that of the mean it is part of


@dataclass(frozen=True)
class Table:
    """A table as the report shows it."""

    id: str
    title: str
    rows: Mapping[Place, str]  # place -> what the reader finds there
    columns: Mapping[Place, str]
    entries: Mapping[tuple[Place, Place], Entry]
    stages: tuple[str, ...]
    functions: Mapping[str, str]

    @property
    def beside_paper(self) -> list[Place]:
        """The columns of which the paper prints a number."""
        there = {column for (_, column), entry in self.entries.items() if entry.paper is not None}
        return [column for column in self.columns if column in there]

    @property
    def is_paper(self) -> bool:
        """One of the paper's, or a table that its text is about."""
        return bool(self.beside_paper)

    def rows_of(self, columns: Sequence[Place]) -> dict[Place, str]:
        """The rows that have a number in some of the columns."""
        there = {row for row, column in self.entries if column in columns}
        return {row: label for row, label in self.rows.items() if row in there}


def lay_out(numbers: Numbers, paper: Iterable[Printed], verdict_of: Mapping[Key, str]) -> list[Table]:
    """All tables that have a number, rows and columns in the paper's order first."""
    printed = measured_beside(numbers, (one for one in paper if not one.bound))
    tables = []
    for view, metrics in all_views(numbers):
        if view.figure:
            continue
        theirs = _of_view(view, printed, {metric.key for metric in metrics})
        tells_grammar = "grammar" in (*view.rows, *view.columns)
        parts = {"": metrics} if tells_grammar else grouped(metrics, "grammar")
        for index, (grammar, part) in enumerate(parts.items()):
            shown = [one for metric in part if (one := _shown(view, metric, numbers)) is not None]
            tables.append(_table(view, grammar if index else "", shown, theirs, verdict_of))
    return [table for table in tables if table.entries]


def _table(view: View, grammar: str, metrics: Sequence[Metric], theirs: Theirs,
           verdict_of: Mapping[Key, str]) -> Table:
    """One table; `grammar`: whose it is, for all but the first."""
    of_itself = view.shows == VALUE
    is_best = of_itself and any(selector.get("layer") == BEST for selector in view.select)
    entries = {}
    for metric in metrics:
        _, printed = theirs.get(metric.key, (metric, None))
        entries[_place(view.rows, metric), _place(view.columns, metric)] = Entry(
            metric, printed, verdict_of.get(metric.key, "") if of_itself else "", metric.layer if is_best else None)
    order = [*(metric for metric, _ in theirs.values()), *metrics]
    rows, columns = ({place: view.label(dict(zip(names, place, strict=True)))
                      for place in _ordered(names, order, {found[axis] for found in entries})}
                     for axis, names in enumerate((view.rows, view.columns)))
    title = f"{view.title} ({view.word('grammar', {'grammar': grammar})})" if grammar else view.title
    return Table(_safe(f"{view.id}_{grammar}" if grammar else view.id), title, rows, columns, entries,
                 tuple(dict.fromkeys(TABLES[m.table] for m in metrics if m.table in TABLES)), view.functions)


def _place(names: Sequence[str], metric: Metric) -> Place:
    return tuple(getattr(metric, name) for name in names)


def _safe(name: str) -> str:
    """A name fit for a file and for a place in a page."""
    return "".join(character if character.isalnum() or character in "._-" else "-" for character in name)


def _shown(view: View, metric: Metric, numbers: Numbers) -> Metric | None:
    """What the view shows of a number: itself, the layer it is from, or how far the seeds of its probe scatter."""
    if view.shows == LAYER:
        return metric.at(value=float(metric.layer or 0), unit="count", error=None)
    if view.shows == DEVIATION:
        deviation = numbers.deviation_over_seeds(metric)
        return None if math.isnan(deviation) else metric.at(error=deviation)
    return metric


def _ordered(names: Sequence[str], metrics: Iterable[Metric], places: set[Place]) -> list[Place]:
    """Places by their dimensions in turn: whole numbers by size, others as they come first in `metrics`."""
    come_first: dict[Place, int] = {}
    for metric in metrics:
        place = _place(names, metric)
        for i in range(len(place)):
            come_first.setdefault(place[:i + 1], len(come_first))

    def rank(place: Place) -> list[int]:
        return [(-1 if place[i] is None else place[i]) if name in WHOLE_NUMBERS else come_first[place[:i + 1]]
                for i, name in enumerate(names)]

    return sorted(places, key=rank)


# ---- the paper's numbers ---------------------------------------------------------------------------------------------


def counterparts(roles: Roles) -> dict[str, str]:
    """The paper's model -> the model of this run in the same role; at paper scale every model is its own."""
    if "A12L12" in roles.models:
        return {model: model for model in roles.models}
    return {name: model for role, name in PAPER_MODELS.items() if (model := getattr(roles, role)) is not None}


def measured_beside(numbers: Numbers, paper: Iterable[Printed]) -> list[tuple[Metric, Printed]]:
    """Numbers of this run, each beside one that the paper prints of the model in the same role."""
    ours = counterparts(numbers.roles)
    found = []
    for printed in paper:
        model = printed.dims.get("model", "")
        if shape_of(model) is None or model in ours:
            with suppress(Missing, Inapplicable):
                metric, = numbers.select({**printed.dims, **({"model": ours[model]} if model in ours else {})})
                found.append((metric, printed))
    return found


def _of_view(view: View, printed: Iterable[tuple[Metric, Printed]], keys: set[Key]) -> Theirs:
    """The printed numbers beside a view's: those of its own item, or else of items that no view is named after."""
    named = {(other.paper, table) for other in load_views() if other.paper for table in other.tables}
    return {metric.key: (metric, theirs) for metric, theirs in printed
            if view.shows == VALUE and metric.key in keys
            and (theirs.item == view.paper if (theirs.item, metric.table) in named else not view.paper)}


# ---- as text ---------------------------------------------------------------------------------------------------------

# What stands in a table of text beside each number, where any entry of the column has it, and its form.
BESIDE: dict[str, tuple[Callable[[Entry], float | None], str]] = {
    "±": (lambda entry: entry.metric.error, ".4g"), "layer": (lambda entry: entry.layer, "d"),
    "paper": (lambda entry: None if entry.paper is None else entry.paper.value, "g"),
    "difference": (lambda entry: None if entry.paper is None else entry.metric.value - entry.paper.value, "+.4g")}


def to_csv(table: Table) -> str:
    """The table as text: per column what was measured, and beside it its error and layer, what the paper prints, and
    their difference, where there are any; a star marks a deviation."""
    columns: dict[str, list[str]] = {"row": list(table.rows.values())}
    for place, label in table.columns.items():
        entries = [table.entries.get((row, place)) for row in table.rows]
        columns[label] = [_value(entry) for entry in entries]
        for name, (of, form) in BESIDE.items():
            beside = [None if entry is None else of(entry) for entry in entries]
            if any(number is not None for number in beside):
                columns[f"{label} ({name})"] = ["" if number is None else format(number, form) for number in beside]
    return csv_text(list(columns), zip(*columns.values(), strict=True))


def _value(entry: Entry | None) -> str:
    if entry is None:
        return ""
    return format_number(entry.metric.value, entry.metric.unit).replace(",", "") + ("*" if entry.is_deviation else "")
