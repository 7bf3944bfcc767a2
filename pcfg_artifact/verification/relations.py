"""The paper's claims as relations between cells: eight kinds, patterns over names, and nothing that is executed.

docs/ADDING_A_CLAIM.md describes the file they are written in.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from pcfg_artifact.cells import LAYER, Cell, Roles, natural
from pcfg_artifact.errors import ConfigError
from pcfg_artifact.verification.measured import Tables, format_number

HOLDS, FAILS, MISSING, INAPPLICABLE = "holds", "fails", "missing", "inapplicable"
SCALES = ("any", "paper")
PICKS: dict[str, Callable[[np.ndarray], float]] = {
    "max": lambda v: float(np.max(v)), "min": lambda v: float(np.min(v)), "mean": lambda v: float(np.mean(v)),
    "sum": lambda v: float(np.sum(v)), "first": lambda v: float(v[0]), "last": lambda v: float(v[-1])}


@dataclass(frozen=True)
class Selector:
    """Cells by patterns (`*`), in the order written, then in natural order; `pick` makes one number of them."""

    table: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    pick: str | None = None
    by_row: bool = False  # pick within each row instead of over all cells


@dataclass(frozen=True)
class Relation:
    """One claim: which cells, how they must stand to each other, at which scale, and the sentence it stands for."""

    id: str
    claim: str  # a few words
    paper: str  # the item of the paper
    says: str  # what the paper says, in our words
    scale: str
    kind: str
    for_each: dict[str, tuple[str, ...] | str]
    selectors: dict[str, tuple[Selector, ...]]
    number: float | None  # bound, margin or slack, as the kind says
    falling: bool
    needs_layers: int
    reason: str  # why this number


@dataclass(frozen=True)
class Found:
    """A selected number and where it came from."""

    label: str
    number: float
    unit: str

    def __str__(self) -> str:
        return format_number(self.number, self.unit)


@dataclass(frozen=True)
class Evaluation:
    """Whether a relation holds in one run, with the figures that decided it (the worst of all that were compared)."""

    outcome: str
    measured: str
    expected: str
    where: str = ""
    n_compared: int = 0


class _Missing(Exception):
    """A selector found no cell."""


class _Inapplicable(Exception):
    """A role that the relation speaks of has no model in this run."""


# ---- reading --------------------------------------------------------------------------------------------------------

# kind -> (names of its selectors, name of its number, the number's default or None if it must be given)
KINDS: dict[str, tuple[tuple[str, ...], str | None, float | None]] = {
    "at_most": (("cells",), "bound", None),
    "at_least": (("cells",), "bound", None),
    "below": (("lower", "upper"), "margin", 0.0),
    "monotone": (("cells",), "slack", 0.0),
    "spread_within": (("cells",), "percent", None),
    "same_order": (("first", "second"), None, 0.0),
    "rising_trend": (("cells",), "bound", 0.0),
    "alike": (("first", "second"), "bound", None),
}
COMMON = {"id", "claim", "paper", "says", "scale", "kind", "for_each", "reason", "needs_layers", "direction"}


def parse_relations(items: Any) -> list[Relation]:
    """The content of relations.yaml; anything unknown or missing is an error that names the relation."""
    if not isinstance(items, list) or not items:
        raise ConfigError("relations.yaml must hold a list of relations")
    relations = [_parse(item) for item in items]
    for id_ in {r.id for r in relations}:
        if sum(r.id == id_ for r in relations) > 1:
            raise ConfigError(f"relations.yaml: the id {id_!r} occurs twice; give each relation its own")
    return relations


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
    unknown = set(item) - COMMON - set(selector_names) - ({number_name} if number_name else set())
    if unknown:
        raise refuse(f"unknown keys {sorted(unknown)} for kind {kind}")
    for key in ("id", "claim", "paper", "says", "scale", "reason", *selector_names):
        if not item.get(key):
            raise refuse(f"{key} is missing")
    if item["scale"] not in SCALES:
        raise refuse(f"scale is {item['scale']!r}, expected any or paper")
    number = item.get(number_name, default) if number_name else default
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise refuse(f"{number_name} is {number!r}, expected a number")
    for_each = {key: tuple(map(str, value)) if isinstance(value, list) else str(value)
                for key, value in (item.get("for_each") or {}).items()}
    selectors = {}
    for key in selector_names:
        value = item[key]
        selectors[key] = tuple(_selector(s, refuse) for s in (value if isinstance(value, list) else [value]))
    return Relation(item["id"], item["claim"], item["paper"], " ".join(item["says"].split()), item["scale"], kind,
                    for_each, selectors, float(number), item.get("direction", "rising") == "falling",
                    int(item.get("needs_layers", 0)), " ".join(item["reason"].split()))


def _selector(value: Any, refuse: Callable[[str], ConfigError]) -> Selector:
    allowed = {"table", "row", "column", "pick", "by_row"}
    if not isinstance(value, Mapping) or set(value) - allowed or not {"table", "row", "column"} <= set(value):
        raise refuse(f"the selector {value!r} must have table, row, column and may have pick, by_row")
    pick = value.get("pick")
    if pick is not None and pick not in PICKS:
        raise refuse(f"unknown pick {pick!r}; choose one of {', '.join(PICKS)}")

    def patterns(name: str) -> tuple[str, ...]:
        return tuple(map(str, value[name])) if isinstance(value[name], list) else (str(value[name]),)

    return Selector(value["table"], patterns("row"), patterns("column"), pick, bool(value.get("by_row", False)))


# ---- selecting ------------------------------------------------------------------------------------------------------


def _bindings(relation: Relation, roles: Roles) -> list[dict[str, str]]:
    """Every combination of the relation's variables; a role may stand for a list of models."""
    lists: dict[str, Sequence[str]] = {}
    for name, values in relation.for_each.items():
        if isinstance(values, str):
            values = _role_list(values, roles)
        lists[name] = values
    return [dict(zip(lists, combination, strict=True)) for combination in itertools.product(*lists.values())]


def _role_list(role: str, roles: Roles) -> tuple[str, ...]:
    if not roles.models:
        raise _Missing("no model was measured")
    if role == "layers":
        return tuple(LAYER(layer) for layer in range(roles.layers(roles.base) + 1))
    found = getattr(roles, role, None) if role in ("models", "small", "others") else None
    if found is None:
        raise ConfigError(f"relations.yaml: {role!r} is neither a variable nor a role; see the head of the file")
    if not found:
        raise _Inapplicable(f"this profile trains no model for the role {role}")
    return found


def _names(pattern: str, binding: Mapping[str, str], roles: Roles) -> list[str]:
    """A pattern with its {variables} filled in; a role that stands for several models gives several patterns."""
    wanted = [name for _, name, _, _ in string.Formatter().parse(pattern) if name]
    choices: dict[str, Sequence[str]] = {}
    for name in wanted:
        if name in binding:
            choices[name] = (binding[name],)
        elif name in ("base", "last", "fewest_layers", "fewest_heads"):
            if not roles.models:
                raise _Missing("no model was measured")
            model = str(roles.layers(roles.base)) if name == "last" else getattr(roles, name)
            if model is None:
                raise _Inapplicable(f"this profile trains no model for the role {name}")
            choices[name] = (model,)
        else:
            choices[name] = _role_list(name, roles)
    return [pattern.format(**dict(zip(choices, combination, strict=True)))
            for combination in itertools.product(*choices.values())]


def select(selector: Selector, tables: Tables, binding: Mapping[str, str], roles: Roles) -> list[Found]:
    """The numbers a selector stands for; a pattern without a cell is never an empty success."""
    rows = tables.get(selector.table, {})
    groups: dict[str, list[Found]] = {}
    column_patterns = [name for pattern in selector.columns for name in _names(pattern, binding, roles)]
    for row_pattern in (name for pattern in selector.rows for name in _names(pattern, binding, roles)):
        for column_pattern in column_patterns:
            found = [(row, column) for row in _matching(rows, row_pattern)
                     for column in _matching(rows[row], column_pattern)]
            if not found:
                raise _Missing(f"{Cell(selector.table, row_pattern, column_pattern)} was not measured")
            for row, column in found:
                value = rows[row][column]
                groups.setdefault(row, []).append(Found(f"{row} {column}", value.number, value.unit))
    if selector.pick is None:
        return [found for group in groups.values() for found in group]
    pick = PICKS[selector.pick]
    if not selector.by_row:
        groups = {next(iter(groups)): [found for group in groups.values() for found in group]}
    return [Found(f"{selector.pick} of {row}", pick(np.array([f.number for f in group])), group[0].unit)
            for row, group in groups.items()]


def _matching(names: Mapping[str, Any], pattern: str) -> list[str]:
    if "*" not in pattern:
        return [pattern] if pattern in names else []
    return sorted((name for name in names if fnmatchcase(name, pattern)), key=natural)


# ---- judging --------------------------------------------------------------------------------------------------------

class Comparison(NamedTuple):
    """One comparison of a relation; it holds where slack >= 0, which NaN is not."""

    slack: float
    measured: str
    expected: str
    where: str


Groups = Mapping[str, list[list[Found]]]  # name of the selector(s) -> per selector, the numbers it found


def _flat(groups: Groups, name: str) -> list[Found]:
    return list(itertools.chain.from_iterable(groups[name]))


def _bound(relation: Relation, groups: Groups) -> list[Comparison]:
    sign, word = (1, "at most") if relation.kind == "at_most" else (-1, "at least")
    return [Comparison(sign * (relation.number - f.number), str(f), f"{word} {relation.number:g}", f.label)
            for f in _flat(groups, "cells")]


def _below(relation: Relation, groups: Groups) -> list[Comparison]:
    margin = relation.number
    wanted = "second not lower" if not margin else f"{margin:+g} or {'more' if margin > 0 else 'better'}"
    return [Comparison(up.number - low.number - margin, f"{low} and {up}", wanted, f"{low.label}; {up.label}")
            for low, up in itertools.product(_flat(groups, "lower"), _flat(groups, "upper"))]


def _monotone(relation: Relation, groups: Groups) -> list[Comparison]:
    chain = _flat(groups, "cells")
    if len(chain) < 2:
        raise _Missing("a chain of one number has no order")
    sign = -1 if relation.falling else 1
    steps = [sign * (b.number - a.number) + relation.number for a, b in itertools.pairwise(chain)]
    worst = math.nan if any(math.isnan(step) for step in steps) else min(steps)
    order = "falling" if relation.falling else "rising"
    return [Comparison(worst, ", ".join(map(str, chain)),
                       f"{order}, steps back of {relation.number:g} allowed" if relation.number else order,
                       f"{chain[0].label} to {chain[-1].label}")]


def _spread(relation: Relation, groups: Groups) -> list[Comparison]:
    found = _flat(groups, "cells")
    if len(found) < 2:
        raise _Inapplicable("this profile has one number where the claim compares several")
    numbers = np.array([f.number for f in found])
    percent = 100 * float(numbers.max() - numbers.min()) / float(numbers.min())
    return [Comparison(relation.number - percent, f"{numbers.min():.4g} to {numbers.max():.4g}, {percent:.1f}% apart",
                       f"within {relation.number:g}%", ", ".join(f.label for f in found))]


def _same_order(relation: Relation, groups: Groups) -> list[Comparison]:
    first, second = ([_single(group) for group in groups[name]] for name in ("first", "second"))
    comparisons = []
    for i, j in itertools.combinations(range(len(first)), 2):
        a, b = first[j].number - first[i].number, second[j].number - second[i].number
        agree = min(abs(a), abs(b)) if a * b > 0 else -1.0  # NaN and ties do not agree
        comparisons.append(Comparison(agree, f"{first[i]} to {first[j]}, {second[i]} to {second[j]}",
                                      "same direction", f"{first[i].label}, {first[j].label}"))
    return comparisons


def _trend(relation: Relation, groups: Groups) -> list[Comparison]:
    chain = _flat(groups, "cells")
    if len(chain) < 2:
        raise _Inapplicable("a trend needs at least two numbers")
    numbers = np.array([f.number for f in chain])
    correlation = _correlation(_ranks(numbers), np.arange(len(numbers), dtype=float))
    slack = correlation - relation.number
    return [Comparison(slack if slack != 0 else -1.0, f"{chain[0]} to {chain[-1]}, rank correlation {correlation:.2f}",
                       f"more than {relation.number:g}", f"{chain[0].label} to {chain[-1].label}")]


def _alike(relation: Relation, groups: Groups) -> list[Comparison]:
    first, second = _flat(groups, "first"), _flat(groups, "second")
    if len(first) != len(second):
        raise _Missing(f"{len(first)} numbers stand against {len(second)}")
    correlation = _correlation(np.array([f.number for f in first]), np.array([f.number for f in second]))
    return [Comparison(correlation - relation.number, f"correlation {correlation:.3f}", f"at least {relation.number:g}",
                       f"{len(first)} numbers")]


CHECKS: dict[str, Callable[[Relation, Groups], list[Comparison]]] = {
    "at_most": _bound, "at_least": _bound, "below": _below, "monotone": _monotone, "spread_within": _spread,
    "same_order": _same_order, "rising_trend": _trend, "alike": _alike}


def evaluate(relation: Relation, tables: Tables, roles: Roles) -> Evaluation:
    """Judge one relation over all its bindings; the figures are those of the comparison nearest to failing."""
    try:
        if relation.needs_layers:
            if roles.base is None:
                raise _Missing("no model was measured")
            if roles.layers(roles.base) < relation.needs_layers:
                raise _Inapplicable(f"the claim is about models of {relation.needs_layers} layers or more, "
                                    f"the largest here is {roles.base}")
        comparisons: list[Comparison] = []
        for binding in _bindings(relation, roles):
            groups = {name: [select(s, tables, binding, roles) for s in selectors]
                      for name, selectors in relation.selectors.items()}
            comparisons += CHECKS[relation.kind](relation, groups)
    except _Missing as missing:
        return Evaluation(MISSING, str(missing), "")
    except _Inapplicable as reason:
        return Evaluation(INAPPLICABLE, str(reason), "")
    worst = min(comparisons, key=lambda c: -math.inf if math.isnan(c.slack) else c.slack)
    n_failed = sum(not c.slack >= 0 for c in comparisons)
    share = f"; fails in {n_failed} of {len(comparisons)}" if n_failed and len(comparisons) > 1 else ""
    return Evaluation(FAILS if n_failed else HOLDS, worst.measured, worst.expected, worst.where + share,
                      len(comparisons))


def _single(group: list[Found]) -> Found:
    if len(group) != 1:
        raise _Missing(f"expected one number, found {len(group)}")
    return group[0]


def _ranks(numbers: np.ndarray) -> np.ndarray:
    """Ranks with ties averaged; NaN stays NaN, so that it fails."""
    if np.isnan(numbers).any():
        return np.full(len(numbers), np.nan)
    return np.array([(np.sum(numbers < x) + np.sum(numbers <= x) - 1) / 2 for x in numbers])


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else math.nan
