"""Tables and figures as data: which numbers each shows, in which rows and columns, and the functions behind them.

views.yaml has an entry for every table and figure of the report.  A number that none of them shows appears in a table
of its own kind, so that a new stage, probe, engine or grammar needs no entry to be seen.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from importlib import resources
from itertools import product
from typing import Any

import yaml

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.metrics.schema import DIMENSIONS, KEY, WHOLE_NUMBERS, Metric, is_blank, name_of
from pcfg_artifact.metrics.selection import ALL, Inapplicable, Missing, Numbers, Selector, check

# Every table of numbers, and the stage that writes it.
TABLES = {
    "treebank": "grammar", "grammar": "grammar", "frequency": "grammar", "sample": "sample", "parsers": "marginals",
    "optimum": "marginals", "sizes": "construct", "agreement": "construct", "constructed": "construct",
    "approximation": "approximate", "approximation_cost": "approximate", "ablation": "approximate",
    "perplexity": "pretrain", "loss_curve": "pretrain", "masked_words": "pretrain", "layers_used": "pretrain",
    "parsing": "probe",
    "marginals": "probe", "probing_corpora": "probe", "control": "control", "sensitivity": "control",
    "attention": "attention", "next_words": "incremental", "incremental": "incremental", "settled": "incremental",
    "interventions": "intervene", "dynamics": "dynamics", "half_way": "dynamics",
}
UNTRAINED_STAGES = ("grammar", "sample", "marginals", "construct", "approximate")
VALUE, LAYER, DEVIATION = "value", "layer", "deviation"  # what a view shows of a number


def is_exact(table: str) -> bool:
    """Whether a table's numbers are the same wherever a seed is run again; of an unknown table they may not be.

    No training comes before them, and none rests on eigenvectors that another library would choose otherwise.
    """
    return TABLES.get(table) in UNTRAINED_STAGES and table != "ablation"


@dataclass(frozen=True, kw_only=True)
class View:
    """One table of the report, or one figure in its place; views.yaml says what the fields mean."""

    id: str
    title: str
    select: tuple[Selector, ...]
    functions: Mapping[str, str] = field(default_factory=dict)
    paper: str = ""
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    labels: Mapping[str, Mapping[Any, str] | str] = field(default_factory=dict)
    shows: str = VALUE
    figure: str = ""

    @property
    def tables(self) -> set[str]:
        return {selector["table"] for selector in self.select}

    def word(self, name: str, place: Mapping[str, Any]) -> str:
        """A dimension's value as a reader finds it; empty for one that is blank, or that says nothing here."""
        value, known = place[name], self.labels.get(name, {})
        if isinstance(known, str):
            return "" if is_blank(value) else known.format(value)
        if value in known or is_blank(value):
            return known.get("" if is_blank(value) else value, "").format_map(place)
        return f"{name} {value}" if name in WHOLE_NUMBERS else value.replace("_", " ") if name == "metric" else value

    def label(self, place: Mapping[str, Any]) -> str:
        """A row or column: the words of its dimensions."""
        return ", ".join(filter(None, (self.word(name, place) for name in place))) or "all"


@functools.cache
def load_views() -> tuple[View, ...]:
    """The views of views.yaml, in its order."""
    content = yaml.safe_load((resources.files(__package__) / "views.yaml").read_text(encoding="utf-8"))
    views = [_parse(item, content["labels"]) for item in content["views"]]
    if twice := [view.id for view in views if sum(view.id == other.id for other in views) > 1]:
        raise ConfigError(f"views.yaml: the id {twice[0]!r} occurs twice; give each view its own")
    return tuple(views)


def _parse(item: Mapping[str, Any], labels: Mapping[str, Any]) -> View:
    def refuse(what: str) -> ConfigError:
        return ConfigError(f"views.yaml, view {item.get('id', '?')!r}: {what}")

    if unknown := set(item) - {f.name for f in fields(View)}:
        raise refuse(f"unknown keys {sorted(unknown)}")
    selectors = tuple(item["select"] if isinstance(item["select"], list) else [item["select"]])
    known = {**labels, **{name: words if isinstance(words, str) else {**_mapping(labels.get(name)), **words}
                          for name, words in item.get("labels", {}).items()}}
    names = {name: tuple(item.get(name, ())) for name in ("rows", "columns")}
    if unknown := {*names["rows"], *names["columns"], *known} - set(KEY):
        raise refuse(f"{', '.join(sorted(unknown))} is no dimension; choose some of {', '.join(DIMENSIONS)}")
    if item.get("shows", VALUE) not in (VALUE, LAYER, DEVIATION):
        raise refuse(f"shows is {item['shows']!r}, expected {VALUE}, {LAYER} or {DEVIATION}")
    for selector in selectors:
        if wrong := check(selector):
            raise refuse(wrong)
        told_apart = {"grammar", *names["rows"], *names["columns"]}
        if "figure" not in item and (lost := {n for n, v in selector.items() if _is_many(v)} - told_apart):
            raise refuse(f"several values of {', '.join(sorted(lost))} would fall on one place; add it to the rows")
    return View(**{**item, **names, "select": selectors, "labels": known})


def _mapping(words: Any) -> Mapping[Any, str]:
    return words if isinstance(words, Mapping) else {}


def _is_many(value: Any) -> bool:
    return value == ALL or isinstance(value, list | Mapping)


# ---- the numbers of a view -------------------------------------------------------------------------------------------


def measured(numbers: Numbers, selector: Selector) -> list[Metric]:
    """The numbers of a selector, in the order of its lists; what was not measured is left out."""
    lists = {name: value for name, value in selector.items() if isinstance(value, list)}
    found: list[Metric] = []
    for values in product(*lists.values()):
        with suppress(Missing, Inapplicable):
            found += numbers.select({**selector, **dict(zip(lists, values, strict=True))})
    return list({metric.key: metric for metric in found}.values())


def numbers_of(view: View, numbers: Numbers) -> list[Metric]:
    """The numbers that a view is about."""
    return [metric for selector in view.select for metric in measured(numbers, selector)]


def all_views(numbers: Numbers) -> list[tuple[View, list[Metric]]]:
    """Every view with its numbers; those that none shows are last, a view a table: their dimensions as rows."""
    found = [(view, numbers_of(view, numbers)) for view in load_views()]
    seen = {metric.key for _, metrics in found for metric in metrics}
    left = grouped((metric for metric in numbers.metrics if metric.key not in seen), "table")
    return [*found, *((_generic(table, metrics), metrics) for table, metrics in left.items())]


def _generic(table: str, metrics: Sequence[Metric]) -> View:
    varying = tuple(n for n in KEY if n not in ("table", "metric") and len({getattr(m, n) for m in metrics}) > 1)
    shared = {name: None if name in (*varying, "metric") else getattr(metrics[0], name) for name in KEY}
    title = f"{name_of(shared)}{': numbers that no other table shows' if table in TABLES else ''}"
    return View(id=f"{table}_others" if table in TABLES else table, title=title, select=(), rows=varying,
                columns=("metric",))


def grouped(metrics: Iterable[Metric], *names: str) -> dict[Any, list[Metric]]:
    """Metrics by the value of a dimension, or by a tuple of several, in the order they come."""
    groups: dict[Hashable, list[Metric]] = {}
    for metric in metrics:
        place = tuple(getattr(metric, name) for name in names)
        groups.setdefault(place if len(names) > 1 else place[0], []).append(metric)
    return groups
