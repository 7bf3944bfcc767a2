"""Claims, the paper's and ours, as relations between numbers: what claims.yaml may say, and whether a claim holds.

Nothing in the file is executed.  Every kind of relation comes down to values that must keep a bound.
docs/dev/judging.md describes the file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.metrics.models import Roles
from pcfg_artifact.metrics.schema import KEY, Key, Metric, format_number, is_blank, name_of
from pcfg_artifact.metrics.selection import ROLE_NAMES, Inapplicable, Missing, Numbers, Selector, check

SCALES = ("any", "paper")
THE_PAPER = "the paper"
# What comes of a claim.  The last three hold as relations and show nothing: a model that was not trained, or trained on
# text without syntax, has them too; no such model was measured; nothing was parsed.
HOLDS, FAILS, MISSING, INAPPLICABLE = "holds", "fails", "missing", "inapplicable"
UNTRAINED, UNCONTROLLED, VACUOUS = "untrained", "uncontrolled", "vacuous"
EVALUATED = (HOLDS, FAILS, UNTRAINED, UNCONTROLLED, VACUOUS)
GROUPS = OF_PAPER, OF_PROJECT, CHECK = "findings of the paper", "findings of this project", "sanity checks"
# Where the number of a relation is from (docs/dev/judging.md): rounded from printed cells, said in words, a question of
# order alone, our reading of words where no cell is printed, or a theorem that leaves rounding alone.
BASES = ("printed", "stated", "order", "reading", "theorem")
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
    "share_of_gain": (("start", "part", "whole"), "bound", None),
    "alike": (("first", "second"), "bound", None),
}
UPPER = ("at_most", "within", "spread_within")  # their values must not exceed the bound; others must reach it
LEAST_POINTS = 4  # of a trend
COMMON = {"id", "claim", "paper", "says", "scale", "kind", "for_each", "reason", "needs_layers", "direction",
          "grammars", "source", "strict", "central", "basis", "check", "at_paper", "headline"}
EXTRA = ("pick", "by", "baseline")  # what a claim adds to a selector
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
    central: str = ""  # where the paper's abstract or conclusion says it
    basis: str = "reading"
    is_check: bool = False  # true by a theorem or by construction of the text: it tests the software
    at_paper: str = ""  # of a central claim: how it will come out at the profile paper, which nobody has run, and why
    grammars: tuple[str, ...] = ("",)  # evaluated on each
    headline: str = ""  # of the five that the first screen of the report shows, as a question

    @property
    def is_paper(self) -> bool:
        return self.source == THE_PAPER

    @property
    def group(self) -> str:
        return CHECK if self.is_check else OF_PAPER if self.is_paper else OF_PROJECT

    @property
    def roles(self) -> set[str]:
        """The roles of trained models that it speaks of; with any, it is asked of controls too."""
        models = [model for some in self.selectors.values() for one in some for model in _listed(one.get("model"))]
        named = {role for role in (*models, *self.for_each.values()) if isinstance(role, str)}
        return named & set(ROLE_NAMES) | ({"base"} if LAYERS in named else set())

    @property
    def place(self) -> str:
        """Where the claim is from: the item of the paper, or its source."""
        return self.paper if self.is_paper else self.source

    @property
    def limit(self) -> str:
        """The bound for a reader."""
        if abs(self.number) == STRICT:
            return "> 0"
        return f"{'≤' if self.kind in UPPER else '≥'} {self.bound:g}"

    @property
    def bound(self) -> float:
        return -self.number if self.kind == "monotone" else self.number

    def margin(self, value: float) -> float:
        """How much room a value leaves; it holds where this is not negative, which NaN is not."""
        return self.bound - value if self.kind in UPPER else value - self.bound

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
    if item.get("basis", "reading") not in BASES:
        raise refuse(f"basis is {item['basis']!r}, expected one of {', '.join(BASES)}")
    is_predicted = item.get("at_paper", "").startswith((f"{HOLDS}: ", f"{FAILS}: "))
    if item.get("central") is True or bool(item.get("central")) != is_predicted:
        raise refuse(f"central is {item.get('central')!r}, expected the place in the paper, and in at_paper how it "
                     f"will come out at its scale ({HOLDS}: why, or {FAILS}: why), or neither")
    number = item.get(number_name, default)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise refuse(f"{number_name} is {number!r}, expected a number")
    if item.get("strict"):
        if number != 0 or kind not in ("below", "monotone"):
            raise refuse("strict belongs to the kinds below and monotone without a margin or slack")
        number = STRICT if kind == "below" else -STRICT
    selectors = {key: tuple(item[key] if isinstance(item[key], list) else [item[key]]) for key in selector_names}
    for selector in itertools.chain.from_iterable(selectors.values()):
        plain = _plain(selector) if isinstance(selector, Mapping) else selector
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
                 basis=item.get("basis", "reading"), is_check=bool(item.get("check")),
                 at_paper=" ".join(item.get("at_paper", "").split()), grammars=tuple(item.get("grammars", ("",))),
                 headline=item.get("headline", ""))


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


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _plain(selector: Mapping[str, Any]) -> Selector:
    return {key: value for key, value in selector.items() if key not in EXTRA}


def chosen(selector: Mapping[str, Any], numbers: Numbers, binding: Mapping[str, Any]) -> list[Metric]:
    """The numbers of one selector; a baseline stays that of the trained model when a control takes its place."""
    source = numbers.origin if selector.get("baseline") else numbers
    if not (found := source.select(_plain(selector), binding)):
        raise Missing(f"{selector['table']} has no number that the claim asks for ({dict(_plain(selector))})")
    return found


def combined(selector: Mapping[str, Any], found: list[Metric]) -> list[Metric]:
    """What `pick` makes of the numbers of a selector: one, or one for each value of the dimension `by`."""
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
    slack: float  # how much room is left
    measured: str
    expected: str
    where: str


@dataclass(frozen=True)
class Evaluation:
    """What comes of a claim in one run, with the comparison nearest to failing; `why` where that needs a word."""

    outcome: str
    worst: Comparison | None = None
    n_compared: int = 0
    n_failed: int = 0
    why: str = ""
    keys: frozenset[Key] = frozenset()  # the numbers it rests on


def evaluate(claim: Claim, numbers: Numbers, grammar: str = "") -> Evaluation:
    """What a run says of a claim on one of its grammars.

    A relation that holds shows nothing where nothing was parsed.  If it is about trained models, it is evaluated again
    with each control in their place, and shows something only if every control that was measured fails it.  Where no
    control can take the place of a role, because the claim compares sizes that have none, it stands without them.
    """
    found = compare(claim, numbers, grammar)
    if found.outcome != HOLDS or claim.is_check:
        return found
    if any(numbers.is_empty(numbers.by_key[key]) for key in found.keys if key in numbers.by_key):
        return replace(found, outcome=VACUOUS, why="most sentences behind one of its numbers could not be parsed")
    controls = {name: compare(claim, control, grammar).outcome for name, control in numbers.controls.items()
                if all(control.roles.named()[role] for role in claim.roles)}
    if not claim.roles or (numbers.controls and not controls):
        return found
    if also := [name for name, outcome in controls.items() if outcome == HOLDS]:
        return replace(found, outcome=UNTRAINED, why=f"it holds for the control {' and '.join(also)} too")
    if FAILS in controls.values() or INAPPLICABLE in controls.values():
        return found
    return replace(found, outcome=UNCONTROLLED, why="no control was measured")


def compare(claim: Claim, numbers: Numbers, grammar: str = "", *, partial: bool = False) -> Evaluation:
    """Whether the relation of a claim holds between some numbers, over all its variables.

    partial: leave out what the numbers do not have, as long as something is left; for those that the paper prints.
    """
    comparisons: list[Comparison] = []
    keys: set[Key] = set()
    absent: Missing | Inapplicable | None = None
    try:
        if numbers.is_given and len({s.get("setting") for of in claim.selectors.values() for s in of}) > 1:
            raise Inapplicable("the claim compares sampled text with treebank text")
        for binding in bindings(claim, numbers.roles, grammar):
            try:
                found = {name: [(selector, chosen(selector, numbers, binding)) for selector in selectors]
                         for name, selectors in claim.selectors.items()}
                groups = {name: [m for selector, some in parts for m in combined(selector, some)]
                          for name, parts in found.items()}
                comparisons += CHECKS[claim.kind](claim, groups)
                keys.update(m.key for parts in found.values() for _, some in parts for m in some)
            except Inapplicable as reason:  # of this model; others may be there
                absent = reason
            except Missing as reason:
                if not partial:
                    raise
                absent = reason
        if absent is not None and not comparisons:
            raise absent
    except Missing as missing:
        return Evaluation(INAPPLICABLE if numbers.is_given else MISSING, why=str(missing))
    except Inapplicable as reason:
        return Evaluation(INAPPLICABLE, why=str(reason))
    worst = min(comparisons, key=lambda c: -math.inf if math.isnan(c.slack) else c.slack)
    n_failed = sum(not c.slack >= 0 for c in comparisons)
    return Evaluation(FAILS if n_failed else HOLDS, worst, len(comparisons), n_failed, keys=frozenset(keys))


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
    wanted = f"{'at most' if claim.kind in UPPER else 'at least'} {claim.number:g}"
    return [_compared(claim, m.value, _told_apart(m, claim.number), wanted, m) for m in groups["cells"]]


def _compared(claim: Claim, value: float, measured: str, wanted: str, *metrics: Metric) -> Comparison:
    return Comparison(value, claim.margin(value), measured, wanted, _where(*metrics))


def _pairs(claim: Claim, groups: Groups) -> list[Comparison]:
    """The second less the first; of `within` how far they are apart."""
    number, is_within = claim.number, claim.kind == "within"
    wanted = f"at most {number:g} apart" if is_within else "the second " + (
        "higher" if number == STRICT else "not lower" if number == 0 else
        f"higher by {number:g} or more" if number > 0 else f"lower by at most {-number:g}")
    return [_compared(claim, abs(b.value - a.value) if is_within else b.value - a.value, _order(a, b), wanted, a, b)
            for a, b in itertools.product(*(groups[name] for name in KINDS[claim.kind][0]))]


def _order(a: Metric, b: Metric) -> str:
    sign = "<" if a.value < b.value else ">" if a.value > b.value else "=" if a.value == b.value else "?"
    return f"{_label(a, b)} {_text(a)} {sign} {_label(b, a)} {_text(b)}".strip()


def _monotone(claim: Claim, groups: Groups) -> list[Comparison]:
    chain = groups["cells"]
    if len(chain) < 2:
        raise Missing("a chain of one number has no order")
    sign = -1 if claim.falling else 1
    steps = [sign * (b.value - a.value) for a, b in itertools.pairwise(chain)]
    worst = math.nan if any(math.isnan(step) for step in steps) else min(steps)
    order = "falling" if claim.falling else "rising"
    allowed = f", steps back of {claim.number:g} allowed" if claim.number > STRICT else ""
    return [_compared(claim, worst, ", ".join(map(_text, chain)), order + allowed, *chain)]


def _spread(claim: Claim, groups: Groups) -> list[Comparison]:
    found = groups["cells"]
    if len(found) < 2:
        raise Inapplicable("this profile has one number where the claim compares several")
    numbers = np.array([m.value for m in found])
    percent = 100 * float(numbers.max() - numbers.min()) / float(numbers.min())
    return [_compared(claim, percent, f"{numbers.min():.4g} to {numbers.max():.4g}, {percent:.1f}% apart",
                      f"within {claim.number:g}%", *found)]


def _trend(claim: Claim, groups: Groups) -> list[Comparison]:
    chain = groups["cells"]
    if len(chain) < LEAST_POINTS:
        raise Inapplicable(f"{len(chain)} numbers show no trend, {LEAST_POINTS} are needed")
    numbers = np.array([m.value for m in chain])
    ranks = rankdata(numbers) if not np.isnan(numbers).any() else numbers
    correlation = _correlation(ranks, np.arange(len(numbers), dtype=float))
    return [_compared(claim, correlation,
                      f"{_text(chain[0])} to {_text(chain[-1])}, rank correlation {correlation:.2f}",
                      f"at least {claim.number:g}", *chain)]


def _share(claim: Claim, groups: Groups) -> list[Comparison]:
    """(part - start) / (whole - start); undefined without a gain."""
    found = []
    for start, part, whole in itertools.product(*(groups[name] for name in KINDS[claim.kind][0])):
        gain = whole.value - start.value
        share = (part.value - start.value) / gain if gain > 0 else math.nan
        measured = f"{_text(part)} of {_text(start)} to {_text(whole)}, a share of {share:.2f}"
        found.append(_compared(claim, share, measured, f"at least {claim.number:g}", start, part, whole))
    return found


def _alike(claim: Claim, groups: Groups) -> list[Comparison]:
    first, second = groups["first"], groups["second"]
    if len(first) != len(second):
        raise Missing(f"{len(first)} numbers stand against {len(second)}")
    correlation = _correlation(np.array([m.value for m in first]), np.array([m.value for m in second]))
    return [_compared(claim, correlation, f"correlation {correlation:.3f} of {len(first)} numbers",
                      f"at least {claim.number:g}", *first, *second)]


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else math.nan


CHECKS: dict[str, Callable[[Claim, Groups], list[Comparison]]] = {
    "at_most": _bound, "at_least": _bound, "below": _pairs, "within": _pairs, "monotone": _monotone,
    "spread_within": _spread, "rising_trend": _trend, "share_of_gain": _share, "alike": _alike}
