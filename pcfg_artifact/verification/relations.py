"""Claims, the paper's and ours, as relations between cells: what relations.yaml may say.  Nothing in it is executed.

docs/CLAIMS.md describes the file; selection.py finds the cells, evaluation.py judges them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfg_artifact.errors import ConfigError

SCALES = ("any", "paper")
THE_PAPER = "the paper"
PICKS: dict[str, Callable[[np.ndarray], float]] = {
    "max": lambda v: float(np.max(v)), "min": lambda v: float(np.min(v)), "mean": lambda v: float(np.mean(v)),
    "sum": lambda v: float(np.sum(v)), "first": lambda v: float(v[0]), "last": lambda v: float(v[-1]),
    # "several" is three: the third smallest of a bound's cells keeps it
    "third_least": lambda v: float(np.sort(v)[2]) if len(v) > 2 else math.nan,
    "second_most": lambda v: float(np.sort(v)[-2]) if len(v) > 1 else math.nan}
# A claim with `variants: both` is judged for the parent-annotated grammar and for the coarser one, each on its own.
COARSER = "novm"
COARSER_WORDS = "coarser grammar: "


@dataclass(frozen=True)
class Selector:
    """Cells by patterns (`*`), in the order written, then in natural order; `pick` makes one number of them."""

    table: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    pick: str | None = None
    by: str | None = None  # row or column: pick within each instead of over all cells


@dataclass(frozen=True)
class Relation:
    """One claim: which cells, how they must stand to each other, at which scale, and the sentence it stands for."""

    id: str
    claim: str  # a few words
    paper: str  # the item of the paper; empty for a claim of another source
    says: str  # what the paper says, in our words
    scale: str
    kind: str
    for_each: dict[str, tuple[str, ...] | str]
    selectors: dict[str, tuple[Selector, ...]]
    number: float  # bound, margin or slack, as the kind says
    falling: bool
    needs_layers: int
    reason: str  # why this number
    source: str = THE_PAPER  # whose claim it is
    is_central: bool = False  # one of those that the paper's answer rests on; a report names them first

    @property
    def is_paper(self) -> bool:
        return self.source == THE_PAPER

    @property
    def place(self) -> str:
        """Where the claim is from: the item of the paper, or its source."""
        return self.paper if self.is_paper else self.source

    @property
    def table(self) -> str:
        """The first table it reads: where a reader finds its numbers."""
        return next(iter(self.selectors.values()))[0].table


# kind -> (names of its selectors, name of its number, the number's default or None if it must be given)
KINDS: dict[str, tuple[tuple[str, ...], str, float | None]] = {
    "at_most": (("cells",), "bound", None),
    "at_least": (("cells",), "bound", None),
    "below": (("lower", "upper"), "margin", 0.0),
    "within": (("first", "second"), "bound", None),
    "monotone": (("cells",), "slack", 0.0),
    "spread_within": (("cells",), "percent", None),
    "rising_trend": (("cells",), "bound", None),
    "alike": (("first", "second"), "bound", None),
}
COMMON = {"id", "claim", "paper", "says", "scale", "kind", "for_each", "reason", "needs_layers", "direction",
          "variants", "source", "strict", "central"}
STRICT = math.nextafter(0.0, 1.0)  # the least that is more than nothing


def parse_relations(items: Any) -> list[Relation]:
    """The content of relations.yaml; anything unknown or missing is an error that names the relation."""
    if not isinstance(items, list) or not items:
        raise ConfigError("relations.yaml must hold a list of relations")
    relations = [relation for item in items for relation in _variants(item)]
    for id_ in {r.id for r in relations}:
        if sum(r.id == id_ for r in relations) > 1:
            raise ConfigError(f"relations.yaml: the id {id_!r} occurs twice; give each relation its own")
    return relations


def _variants(item: Any) -> list[Relation]:
    """The relation, and its twin about the coarser grammar where it has one: other tables, or other columns."""
    relation = _parse(item)
    if item.get("variants") is None:
        return [relation]
    if item["variants"] != "both":
        raise ConfigError(f"relations.yaml, relation {relation.id!r}: variants is {item['variants']!r}, expected both")
    twin = {**item, "id": f"{relation.id}-{COARSER}", "claim": COARSER_WORDS + relation.claim}
    for key in relation.selectors:
        value = item[key]
        twin[key] = [_coarser(s) for s in value] if isinstance(value, list) else _coarser(value)
    return [relation, _parse(twin)]


def _coarser(selector: Mapping[str, Any]) -> dict[str, Any]:
    if selector["column"] == "vm":
        return {**selector, "column": COARSER}
    # Baselines know no grammar: their table has no variant.
    return {**selector, "table": selector["table"] if selector["table"] == "marginals"
            else f"{selector['table']}_{COARSER}"}


def _parse(item: Any) -> Relation:
    name = item.get("id", "?") if isinstance(item, Mapping) else "?"

    def refuse(what: str) -> ConfigError:
        return ConfigError(f"relations.yaml, relation {name!r}: {what}")

    if not isinstance(item, Mapping):
        raise refuse(f"found {item!r}, expected a mapping")
    kind = item.get("kind")
    if kind not in KINDS:
        raise refuse(f"unknown kind {kind!r}; choose one of {', '.join(KINDS)}")
    selector_names, number_name, default = KINDS[kind]
    unknown = set(item) - COMMON - set(selector_names) - {number_name}
    if unknown:
        raise refuse(f"unknown keys {sorted(unknown)} for kind {kind}")
    of_paper = item.get("source", THE_PAPER) == THE_PAPER
    for key in ("id", "claim", *(("paper",) if of_paper else ()), "says", "scale", "reason", *selector_names):
        if not item.get(key):
            raise refuse(f"{key} is missing")
    if not of_paper and "paper" in item:
        raise refuse(f"its source is {item['source']!r}, so it has no place in the paper; leave out one of the two")
    if item["scale"] not in SCALES:
        raise refuse(f"scale is {item['scale']!r}, expected any or paper")
    if not isinstance(item.get("central", False), bool):
        raise refuse(f"central is {item['central']!r}, expected true or false")
    number = item.get(number_name, default)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise refuse(f"{number_name} is {number!r}, expected a number")
    if item.get("strict"):
        if number != 0 or kind not in ("below", "monotone"):
            raise refuse("strict belongs to the kinds below and monotone without a margin or slack")
        number = STRICT if kind == "below" else -STRICT
    for_each = {key: tuple(map(str, value)) if isinstance(value, list) else str(value)
                for key, value in (item.get("for_each") or {}).items()}
    selectors = {}
    for key in selector_names:
        value = item[key]
        selectors[key] = tuple(_selector(s, refuse) for s in (value if isinstance(value, list) else [value]))
    return Relation(item["id"], item["claim"], item.get("paper", ""), " ".join(item["says"].split()), item["scale"],
                    kind, for_each, selectors, float(number), item.get("direction", "rising") == "falling",
                    int(item.get("needs_layers", 0)), " ".join(item["reason"].split()),
                    item.get("source", THE_PAPER), item.get("central", False))


def _selector(value: Any, refuse: Callable[[str], ConfigError]) -> Selector:
    allowed = {"table", "row", "column", "pick", "by"}
    if not isinstance(value, Mapping) or set(value) - allowed or not {"table", "row", "column"} <= set(value):
        raise refuse(f"the selector {value!r} must have table, row, column and may have pick, by")
    pick, by = value.get("pick"), value.get("by")
    if pick is not None and pick not in PICKS:
        raise refuse(f"unknown pick {pick!r}; choose one of {', '.join(PICKS)}")
    if by not in (None, "row", "column") or (by is not None and pick is None):
        raise refuse(f"by is {by!r}, expected row or column, beside a pick")

    def patterns(name: str) -> tuple[str, ...]:
        return tuple(map(str, value[name])) if isinstance(value[name], list) else (str(value[name]),)

    return Selector(value["table"], patterns("row"), patterns("column"), pick, by)
