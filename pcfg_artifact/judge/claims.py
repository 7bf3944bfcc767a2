"""Claims, the paper's and ours, as relations between numbers: what claims.yaml may say, and whether a claim holds.

Nothing in the file is executed.  Every kind of relation comes down to values that must keep a bound.
docs/dev/judging.md describes the file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.metrics.models import Roles
from pcfg_artifact.metrics.schema import KEY, Metric, format_number, is_blank, name_of
from pcfg_artifact.metrics.selection import ROLE_NAMES, Inapplicable, Missing, Numbers, Selector, check

SCALES = ("any", "paper")
THE_PAPER = "the paper"
HOLDS, FAILS, MISSING, INAPPLICABLE = "holds", "fails", "missing", "inapplicable"
LAYERS = "layers"  # in for_each: every layer of the base model
PICKS: dict[str, Callable[[np.ndarray], float]] = {
    "max": lambda v: float(np.max(v)), "min": lambda v: float(np.min(v)), "mean": lambda v: float(np.mean(v)),
    "sum": lambda v: float(np.sum(v)),
    # "several" is three: the third smallest of a bound's numbers keeps it
    "third_least": lambda v: float(np.sort(v)[2]) if len(v) > 2 else math.nan,
    "second_most": lambda v: float(np.sort(v)[-2]) if len(v) > 1 else math.nan}
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
          "grammars", "source", "strict", "central"}
STRICT = math.nextafter(0.0, 1.0)  # the least that is more than nothing


@dataclass(frozen=True)
class Claim:
    """Which numbers, how they must stand to each other, at which scale, and the sentence it stands for."""

    id: str
    claim: str  # a few words
    paper: str  # the item of the paper; empty for a claim of another source
    says: str  # what the paper says, in our words
    scale: str
    kind: str
    for_each: Mapping[str, Any]
    selectors: Mapping[str, Sequence[Mapping[str, Any]]]
    number: float  # bound, margin or slack, as the kind says
    reason: str  # why this number
    falling: bool = False
    needs_layers: int = 0
    source: str = THE_PAPER
    central: str = ""  # where the paper's abstract, introduction or conclusion says it
    grammars: tuple[str, ...] = ("",)  # evaluated on each

    @property
    def is_paper(self) -> bool:
        return self.source == THE_PAPER

    @property
    def place(self) -> str:
        """Where the claim is from: the item of the paper, or its source."""
        return self.paper if self.is_paper else self.source

    @property
    def relation(self) -> str:
        """The kind of relation, its number, and the reason for it."""
        number = 0.0 if abs(self.number) == STRICT else self.number
        return f"{self.kind.replace('_', ' ')}, {KINDS[self.kind][1]} {number:g} ({self.reason})"

    @property
    def table(self) -> str:
        """The first table it reads."""
        return next(iter(self.selectors.values()))[0]["table"]


# ---- reading the file ------------------------------------------------------------------------------------------------


def parse_claims(items: Any) -> list[Claim]:
    """The content of claims.yaml; anything unknown or missing is an error that names the claim."""
    if not isinstance(items, list) or not items:
        raise ConfigError("claims.yaml must hold a list of claims")
    claims = [_parse(item) for item in items]
    ids = [claim.id for claim in claims]
    for id_ in ids:
        if ids.count(id_) > 1:
            raise ConfigError(f"claims.yaml: the id {id_!r} occurs twice; give each claim its own")
    return claims


def _parse(item: Any) -> Claim:
    name = item.get("id", "?") if isinstance(item, Mapping) else "?"

    def refuse(what: str) -> ConfigError:
        return ConfigError(f"claims.yaml, claim {name!r}: {what}")

    if not isinstance(item, Mapping):
        raise refuse(f"found {item!r}, expected a mapping")
    kind = item.get("kind")
    if kind not in KINDS:
        raise refuse(f"unknown kind {kind!r}; choose one of {', '.join(KINDS)}")
    selector_names, number_name, default = KINDS[kind]
    if unknown := set(item) - COMMON - set(selector_names) - {number_name}:
        raise refuse(f"unknown keys {sorted(unknown)} for kind {kind}")
    of_paper = item.get("source", THE_PAPER) == THE_PAPER
    for key in ("id", "claim", *(("paper",) if of_paper else ()), "says", "scale", "reason", *selector_names):
        if not item.get(key):
            raise refuse(f"{key} is missing")
    if not of_paper and "paper" in item:
        raise refuse(f"its source is {item['source']!r}, so it has no place in the paper; leave out one of the two")
    if item["scale"] not in SCALES:
        raise refuse(f"scale is {item['scale']!r}, expected any or paper")
    if not isinstance(item.get("central", ""), str):
        raise refuse(f"central is {item['central']!r}, expected the place in the paper that makes it central")
    number = item.get(number_name, default)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise refuse(f"{number_name} is {number!r}, expected a number")
    if item.get("strict"):
        if number != 0 or kind not in ("below", "monotone"):
            raise refuse("strict belongs to the kinds below and monotone without a margin or slack")
        number = STRICT if kind == "below" else -STRICT
    selectors = {key: tuple(item[key] if isinstance(item[key], list) else [item[key]]) for key in selector_names}
    for selector in itertools.chain.from_iterable(selectors.values()):
        plain = {key: value for key, value in selector.items() if key not in ("pick", "by")} \
            if isinstance(selector, Mapping) else selector
        if wrong := check(plain):
            raise refuse(wrong)
        if selector.get("pick", "max") not in PICKS:
            raise refuse(f"unknown pick {selector['pick']!r}; choose one of {', '.join(PICKS)}")
        if "by" in selector and (selector["by"] not in KEY or "pick" not in selector):
            raise refuse(f"by is {selector['by']!r}, expected a dimension, beside a pick")
    for variable, values in (item.get("for_each") or {}).items():
        if not isinstance(values, list) and values not in (*ROLE_NAMES, LAYERS):
            raise refuse(f"for_each has {variable}: {values!r}, expected a list, a role or {LAYERS}")
    return Claim(id=item["id"], claim=item["claim"], paper=item.get("paper", ""), says=" ".join(item["says"].split()),
                 scale=item["scale"], kind=kind, for_each=item.get("for_each") or {}, selectors=selectors,
                 number=float(number), reason=" ".join(item["reason"].split()),
                 falling=item.get("direction", "rising") == "falling", needs_layers=int(item.get("needs_layers", 0)),
                 source=item.get("source", THE_PAPER), central=item.get("central", ""),
                 grammars=tuple(item.get("grammars", ("",))))


# ---- the numbers a claim speaks of -----------------------------------------------------------------------------------


def bindings(claim: Claim, roles: Roles, grammar: str) -> list[dict[str, Any]]:
    """Every combination of the claim's variables; a role stands for its models, those that are deep enough."""
    if claim.needs_layers and not any(isinstance(values, str) for values in claim.for_each.values()) \
            and (roles.base is None or roles.layers(roles.base) < claim.needs_layers):
        raise Inapplicable(f"the claim is about models of {claim.needs_layers} layers or more")
    lists: dict[str, Sequence[Any]] = {"grammar": [grammar]}
    for name, values in claim.for_each.items():
        if values == LAYERS:
            values = [] if roles.base is None else list(range(roles.layers(roles.base) + 1))
        elif isinstance(values, str):
            values = [model for model in roles.named()[values] if roles.layers(model) >= claim.needs_layers] \
                if roles.base is not None or values == "causal" else []
        if not values:
            deep = f" of {claim.needs_layers} layers or more" if claim.needs_layers else ""
            raise Inapplicable(f"this profile trains no model{deep} for the role {claim.for_each[name]}")
        lists[name] = values
    return [dict(zip(lists, combination, strict=True)) for combination in itertools.product(*lists.values())]


def chosen(selector: Mapping[str, Any], numbers: Numbers, binding: Mapping[str, Any]) -> list[Metric]:
    """The numbers of one selector; `pick` makes one of them, or one for each value of the dimension `by`."""
    plain: Selector = {key: value for key, value in selector.items() if key not in ("pick", "by")}
    found = numbers.select(plain, binding)
    if not found:
        raise Missing(f"{selector['table']} has no number that the claim asks for ({dict(plain)})")
    if "pick" not in selector:
        return found
    groups: dict[Any, list[Metric]] = {}
    for metric in found:
        groups.setdefault(getattr(metric, selector["by"]) if "by" in selector else None, []).append(metric)
    return [_picked(group, selector["pick"]) for group in groups.values()]


def _picked(group: Sequence[Metric], pick: str) -> Metric:
    """What a pick makes of some numbers: one of them, with its dimensions, where its value is one of theirs."""
    value = PICKS[pick](np.array([m.value for m in group]))
    return next((m for m in group if m.value == value), _joined(group).at(value=value))


def _joined(group: Sequence[Metric]) -> Metric:
    """The first of some metrics without the dimensions in which they differ."""
    differing = [name for name in KEY if len({getattr(m, name) for m in group}) > 1]
    return group[0].at(**{name: "" if isinstance(getattr(group[0], name), str) else None for name in differing})


# ---- whether it holds ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """One comparison of a claim: a value (a number, a difference, a correlation) against its bound."""

    value: float
    bound: float
    is_upper: bool  # the value must not exceed the bound; else it must reach it
    measured: str
    expected: str
    where: str

    @property
    def slack(self) -> float:
        """How much room is left; it holds where this is not negative, which NaN is not."""
        return self.bound - self.value if self.is_upper else self.value - self.bound


@dataclass(frozen=True)
class Evaluation:
    """Whether a claim holds in one run, with the comparison nearest to failing; `why` where there is none."""

    outcome: str
    worst: Comparison | None = None
    n_compared: int = 0
    n_failed: int = 0
    why: str = ""


def evaluate(claim: Claim, numbers: Numbers, grammar: str = "") -> Evaluation:
    """Evaluate a claim over all its variables, on one of its grammars."""
    comparisons: list[Comparison] = []
    try:
        inapplicable = None
        for binding in bindings(claim, numbers.roles, grammar):
            try:
                groups = {name: [m for selector in selectors for m in chosen(selector, numbers, binding)]
                          for name, selectors in claim.selectors.items()}
                comparisons += CHECKS[claim.kind](claim, groups)
            except Inapplicable as reason:  # of this model; others may be there
                inapplicable = reason
        if inapplicable is not None and not comparisons:
            raise inapplicable
    except Missing as missing:
        return Evaluation(MISSING, why=str(missing))
    except Inapplicable as reason:
        return Evaluation(INAPPLICABLE, why=str(reason))
    worst = min(comparisons, key=lambda c: -math.inf if math.isnan(c.slack) else c.slack)
    n_failed = sum(not c.slack >= 0 for c in comparisons)
    return Evaluation(FAILS if n_failed else HOLDS, worst, len(comparisons), n_failed)


Groups = Mapping[str, Sequence[Metric]]  # name of the selector -> the numbers it found


def _text(metric: Metric) -> str:
    return format_number(metric.value, metric.unit)


def _label(metric: Metric, *others: Metric) -> str:
    """What tells a number from the others it is compared with."""
    differing = [name for name in KEY if any(getattr(metric, name) != getattr(other, name) for other in others)]
    return " ".join(f"{name} {value}" if isinstance(value, int) else str(value) for name in differing
                    if not is_blank(value := getattr(metric, name)))


def _where(*metrics: Metric) -> str:
    return name_of(vars(_joined(metrics)))


def _told_apart(metric: Metric, bound: float) -> str:
    """The number as it is printed, with more digits where it would look like the bound and is not."""
    looks_equal = metric.value != bound and f"{metric.value:.3g}" == f"{bound:.3g}"
    return f"{metric.value:.6g}" if looks_equal else _text(metric)


def _bound(claim: Claim, groups: Groups) -> list[Comparison]:
    is_upper = claim.kind == "at_most"
    wanted = f"{'at most' if is_upper else 'at least'} {claim.number:g}"
    return [Comparison(m.value, claim.number, is_upper, _told_apart(m, claim.number), wanted, _where(m))
            for m in groups["cells"]]


def _below(claim: Claim, groups: Groups) -> list[Comparison]:
    margin = claim.number
    wanted = "higher" if margin == STRICT else "not lower" if margin == 0 else \
        f"higher by {margin:g} or more" if margin > 0 else f"lower by at most {-margin:g}"
    return [Comparison(up.value - low.value, margin, False, _order(low, up), f"the second {wanted}", _where(low, up))
            for low, up in itertools.product(groups["lower"], groups["upper"])]


def _order(a: Metric, b: Metric) -> str:
    sign = "<" if a.value < b.value else ">" if a.value > b.value else "=" if a.value == b.value else "?"
    return f"{_label(a, b)} {_text(a)} {sign} {_label(b, a)} {_text(b)}".strip()


def _within(claim: Claim, groups: Groups) -> list[Comparison]:
    return [Comparison(abs(b.value - a.value), claim.number, True, _order(a, b), f"at most {claim.number:g} apart",
                       _where(a, b)) for a, b in itertools.product(groups["first"], groups["second"])]


def _monotone(claim: Claim, groups: Groups) -> list[Comparison]:
    chain = groups["cells"]
    if len(chain) < 2:
        raise Missing("a chain of one number has no order")
    sign = -1 if claim.falling else 1
    steps = [sign * (b.value - a.value) for a, b in itertools.pairwise(chain)]
    worst = math.nan if any(math.isnan(step) for step in steps) else min(steps)
    order = "falling" if claim.falling else "rising"
    allowed = f", steps back of {claim.number:g} allowed" if claim.number > STRICT else ""
    return [Comparison(worst, -claim.number, False, ", ".join(map(_text, chain)), order + allowed, _where(*chain))]


def _spread(claim: Claim, groups: Groups) -> list[Comparison]:
    found = groups["cells"]
    if len(found) < 2:
        raise Inapplicable("this profile has one number where the claim compares several")
    numbers = np.array([m.value for m in found])
    percent = 100 * float(numbers.max() - numbers.min()) / float(numbers.min())
    return [Comparison(percent, claim.number, True, f"{numbers.min():.4g} to {numbers.max():.4g}, {percent:.1f}% apart",
                       f"within {claim.number:g}%", _where(*found))]


def _trend(claim: Claim, groups: Groups) -> list[Comparison]:
    chain = groups["cells"]
    if len(chain) < 2:
        raise Inapplicable("a trend needs at least two numbers")
    numbers = np.array([m.value for m in chain])
    ranks = rankdata(numbers) if not np.isnan(numbers).any() else numbers
    correlation = _correlation(ranks, np.arange(len(numbers), dtype=float))
    return [Comparison(correlation, claim.number, False,
                       f"{_text(chain[0])} to {_text(chain[-1])}, rank correlation {correlation:.2f}",
                       f"at least {claim.number:g}", _where(*chain))]


def _alike(claim: Claim, groups: Groups) -> list[Comparison]:
    first, second = groups["first"], groups["second"]
    if len(first) != len(second):
        raise Missing(f"{len(first)} numbers stand against {len(second)}")
    correlation = _correlation(np.array([m.value for m in first]), np.array([m.value for m in second]))
    return [Comparison(correlation, claim.number, False, f"correlation {correlation:.3f} of {len(first)} numbers",
                       f"at least {claim.number:g}", _where(*first, *second))]


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else math.nan


CHECKS: dict[str, Callable[[Claim, Groups], list[Comparison]]] = {
    "at_most": _bound, "at_least": _bound, "below": _below, "within": _within, "monotone": _monotone,
    "spread_within": _spread, "rising_trend": _trend, "alike": _alike}
