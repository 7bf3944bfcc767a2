"""The cells that a relation speaks of: patterns over names, variables, and the roles that models play."""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from pcfg_artifact.cells import Cell, natural
from pcfg_artifact.errors import ConfigError
from pcfg_artifact.roles import MODEL, Roles
from pcfg_artifact.verification.measured import Tables, format_number
from pcfg_artifact.verification.relations import PICKS, Relation, Selector

ONE_MODEL = ("base", "last", "fewest_layers", "fewest_heads")


@dataclass(frozen=True)
class Found:
    """A selected number and where it came from."""

    label: str
    number: float
    unit: str

    def __str__(self) -> str:
        return format_number(self.number, self.unit)


class Missing(Exception):
    """A selector found no cell."""


class Inapplicable(Exception):
    """A role that the relation speaks of has no model in this run."""


def bindings(relation: Relation, roles: Roles) -> list[dict[str, str]]:
    """Every combination of the relation's variables; a role may stand for a list of models, those deep enough."""
    lists: dict[str, Sequence[str]] = {}
    for name, values in relation.for_each.items():
        if isinstance(values, str):
            role = values
            values = tuple(found for found in models_of(role, roles)
                           if not MODEL.match(found) or roles.layers(found) >= relation.needs_layers)
            if not values:
                raise Inapplicable(f"the claim is about models of {relation.needs_layers} layers or more, and this "
                                   f"profile trains none for the role {role}")
        lists[name] = values
    return [dict(zip(lists, combination, strict=True)) for combination in itertools.product(*lists.values())]


def models_of(role: str, roles: Roles) -> tuple[str, ...]:
    """The names a role stands for: models, or the layers of the base model."""
    if role in ("causal", "shapes_of_both"):
        masked = {model[1:] for model in roles.models}
        found = roles.causal if role == "causal" else tuple(m[1:] for m in roles.causal if m[1:] in masked)
        if not found:
            raise Inapplicable(f"this profile trains no model for the role {role}")
        return found
    if not roles.models or roles.base is None:
        raise Missing("no model was measured")
    sizes = {model: tuple(map(int, MODEL.match(model).groups())) for model in roles.models}  # type: ignore[union-attr]
    heads, layers = sizes[roles.base]
    known = {
        "models": roles.models, "small": roles.small, "others": roles.others,
        "layers": tuple(f"L{layer}" for layer in range(layers + 1)),
        "by_layers": tuple(sorted((m for m in sizes if sizes[m][0] == heads), key=lambda m: sizes[m][1])),
        "followed": roles.followed,
        "by_heads": tuple(sorted((m for m in sizes if sizes[m][1] == layers), key=lambda m: sizes[m][0]))}
    known["deeper"] = tuple(model for model in known["by_layers"] if model not in roles.small)
    if role not in known:
        raise ConfigError(f"relations.yaml: {role!r} is neither a variable nor a role; see docs/CLAIMS.md")
    if not known[role]:
        raise Inapplicable(f"this profile trains no model for the role {role}")
    return known[role]


def names(pattern: str, binding: Mapping[str, str], roles: Roles) -> list[str]:
    """A pattern with its {variables} filled in; a role that stands for several models gives several patterns."""
    wanted = [name for _, name, _, _ in string.Formatter().parse(pattern) if name]
    choices: dict[str, Sequence[str]] = {}
    for name in wanted:
        if name in binding:
            choices[name] = (binding[name],)
        elif name in ONE_MODEL:
            if roles.base is None:
                raise Missing("no model was measured")
            model = str(roles.layers(roles.base)) if name == "last" else getattr(roles, name)
            if model is None:
                raise Inapplicable(f"this profile trains no model for the role {name}")
            choices[name] = (model,)
        else:
            choices[name] = models_of(name, roles)
    return [pattern.format(**dict(zip(choices, combination, strict=True)))
            for combination in itertools.product(*choices.values())]


def select(selector: Selector, tables: Tables, binding: Mapping[str, str], roles: Roles) -> list[Found]:
    """The numbers a selector stands for; a pattern without a cell is never an empty success."""
    rows = tables.get(selector.table, {})
    groups: dict[str, list[Found]] = {}
    column_patterns = [name for pattern in selector.columns for name in names(pattern, binding, roles)]
    for row_pattern in (name for pattern in selector.rows for name in names(pattern, binding, roles)):
        for column_pattern in column_patterns:
            found = [(row, column) for row in _matching(rows, row_pattern)
                     for column in _matching(rows[row], column_pattern)]
            if not found:
                raise Missing(f"{Cell(selector.table, row_pattern, column_pattern)} was not measured")
            for row, column in found:
                value = rows[row][column]
                key = {"row": row, "column": column, None: ""}[selector.by]
                groups.setdefault(key, []).append(Found(f"{row} {column}", value.number, value.unit))
    if selector.pick is None:
        return [found for group in groups.values() for found in group]
    pick = PICKS[selector.pick]
    return [Found(f"{selector.pick} of {key or group[0].label}".replace("_", " "),
                  pick(np.array([f.number for f in group])), group[0].unit) for key, group in groups.items()]


def _matching(known: Mapping[str, Any], pattern: str) -> list[str]:
    if "*" not in pattern:
        return [pattern] if pattern in known else []
    return sorted((name for name in known if fnmatchcase(name, pattern)), key=natural)
