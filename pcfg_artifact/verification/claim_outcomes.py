"""Whether a relation holds in one run.  Every kind comes down to values that must keep a bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pcfg_artifact.roles import Roles
from pcfg_artifact.verification.measured import Tables
from pcfg_artifact.verification.relations import STRICT, Relation
from pcfg_artifact.verification.selection import Found, Inapplicable, Missing, bindings, select

HOLDS, FAILS, MISSING, INAPPLICABLE = "holds", "fails", "missing", "inapplicable"


@dataclass(frozen=True)
class Comparison:
    """One comparison of a relation: a value (a cell, a difference, a correlation) against its bound."""

    value: float
    bound: float
    is_upper: bool  # the value must not exceed the bound; else it must reach it
    measured: str
    expected: str
    where: str
    rise: float | None = None  # of a rank correlation, which jumps: how far the numbers rise from first to last

    @property
    def slack(self) -> float:
        """How much room is left; it holds where this is not negative, which NaN is not."""
        return self.bound - self.value if self.is_upper else self.value - self.bound

    @property
    def lean(self) -> float:
        """What changes gradually as the numbers do: the slack, or the rise whose ranks are correlated."""
        return self.slack if self.rise is None else self.rise


@dataclass(frozen=True)
class Evaluation:
    """Whether a relation holds in one run, with the figures of the comparison nearest to failing."""

    outcome: str
    measured: str
    expected: str
    where: str = ""
    n_compared: int = 0
    worst: Comparison | None = None


Groups = Mapping[str, list[list[Found]]]  # name of the selector(s) -> per selector, the numbers it found


def _flat(groups: Groups, name: str) -> list[Found]:
    return list(itertools.chain.from_iterable(groups[name]))


def _bound(relation: Relation, groups: Groups) -> list[Comparison]:
    is_upper = relation.kind == "at_most"
    wanted = f"{'at most' if is_upper else 'at least'} {relation.number:g}"
    return [Comparison(f.number, relation.number, is_upper, _told_apart(f, relation.number), wanted, f.label)
            for f in _flat(groups, "cells")]


def _told_apart(found: Found, bound: float) -> str:
    """The number as it is printed, with more digits where it would look like the bound and is not."""
    looks_equal = found.number != bound and f"{found.number:.3g}" == f"{bound:.3g}"
    return f"{found.number:.6g}" if looks_equal else str(found)


def _below(relation: Relation, groups: Groups) -> list[Comparison]:
    margin = relation.number
    if abs(margin) <= STRICT:
        wanted = "second higher" if margin else "second not lower"
    else:
        wanted = f"{margin:+g} or {'more' if margin > 0 else 'better'}"
    return [Comparison(up.number - low.number, margin, False, f"{low} and {up}", wanted, f"{low.label}; {up.label}")
            for low, up in itertools.product(_flat(groups, "lower"), _flat(groups, "upper"))]


def _within(relation: Relation, groups: Groups) -> list[Comparison]:
    return [Comparison(abs(b.number - a.number), relation.number, True, f"{a} and {b}",
                       f"at most {relation.number:g} apart", f"{a.label}; {b.label}")
            for a, b in itertools.product(_flat(groups, "first"), _flat(groups, "second"))]


def _monotone(relation: Relation, groups: Groups) -> list[Comparison]:
    chain = _flat(groups, "cells")
    if len(chain) < 2:
        raise Missing("a chain of one number has no order")
    sign = -1 if relation.falling else 1
    steps = [sign * (b.number - a.number) for a, b in itertools.pairwise(chain)]
    worst = math.nan if any(math.isnan(step) for step in steps) else min(steps)
    order = "falling" if relation.falling else "rising"
    return [Comparison(worst, -relation.number, False, ", ".join(map(str, chain)),
                       f"{order}, steps back of {relation.number:g} allowed" if relation.number > STRICT else order,
                       f"{chain[0].label} to {chain[-1].label}")]


def _spread(relation: Relation, groups: Groups) -> list[Comparison]:
    found = _flat(groups, "cells")
    if len(found) < 2:
        raise Inapplicable("this profile has one number where the claim compares several")
    numbers = np.array([f.number for f in found])
    percent = 100 * float(numbers.max() - numbers.min()) / float(numbers.min())
    return [Comparison(percent, relation.number, True,
                       f"{numbers.min():.4g} to {numbers.max():.4g}, {percent:.1f}% apart",
                       f"within {relation.number:g}%", ", ".join(f.label for f in found))]


def _trend(relation: Relation, groups: Groups) -> list[Comparison]:
    chain = _flat(groups, "cells")
    if len(chain) < 2:
        raise Inapplicable("a trend needs at least two numbers")
    numbers = np.array([f.number for f in chain])
    places = np.arange(len(numbers), dtype=float)
    correlation = _correlation(_ranks(numbers), places)
    centred = places - places.mean()
    rise = float(centred @ numbers / (centred @ centred)) * (len(numbers) - 1)
    return [Comparison(correlation, relation.number, False,
                       f"{chain[0]} to {chain[-1]}, rank correlation {correlation:.2f}",
                       f"at least {relation.number:g}", f"{chain[0].label} to {chain[-1].label}", rise)]


def _alike(relation: Relation, groups: Groups) -> list[Comparison]:
    first, second = _flat(groups, "first"), _flat(groups, "second")
    if len(first) != len(second):
        raise Missing(f"{len(first)} numbers stand against {len(second)}")
    correlation = _correlation(np.array([f.number for f in first]), np.array([f.number for f in second]))
    return [Comparison(correlation, relation.number, False, f"correlation {correlation:.3f}",
                       f"at least {relation.number:g}", f"{len(first)} numbers")]


CHECKS: dict[str, Callable[[Relation, Groups], list[Comparison]]] = {
    "at_most": _bound, "at_least": _bound, "below": _below, "within": _within, "monotone": _monotone,
    "spread_within": _spread, "rising_trend": _trend, "alike": _alike}


def evaluate(relation: Relation, tables: Tables, roles: Roles) -> Evaluation:
    """Judge one relation over all its bindings; the figures are those of the comparison nearest to failing."""
    try:
        if relation.needs_layers and not any(isinstance(values, str) for values in relation.for_each.values()):
            if roles.base is None:
                raise Missing("no model was measured")
            if roles.layers(roles.base) < relation.needs_layers:
                raise Inapplicable(f"the claim is about models of {relation.needs_layers} layers or more, "
                                   f"the largest here is {roles.base}")
        comparisons: list[Comparison] = []
        for binding in bindings(relation, roles):
            groups = {name: [select(s, tables, binding, roles) for s in selectors]
                      for name, selectors in relation.selectors.items()}
            comparisons += CHECKS[relation.kind](relation, groups)
    except Missing as missing:
        return Evaluation(MISSING, str(missing), "")
    except Inapplicable as reason:
        return Evaluation(INAPPLICABLE, str(reason), "")
    worst = min(comparisons, key=lambda c: -math.inf if math.isnan(c.slack) else c.slack)
    n_failed = sum(not c.slack >= 0 for c in comparisons)
    share = f"; fails in {n_failed} of {len(comparisons)}" if n_failed and len(comparisons) > 1 else ""
    return Evaluation(FAILS if n_failed else HOLDS, worst.measured, worst.expected, worst.where + share,
                      len(comparisons), worst)


def _ranks(numbers: np.ndarray) -> np.ndarray:
    """Ranks with ties averaged; NaN stays NaN, so that it fails."""
    if np.isnan(numbers).any():
        return np.full(len(numbers), np.nan)
    return np.array([(np.sum(numbers < x) + np.sum(numbers <= x) - 1) / 2 for x in numbers])


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else math.nan
