"""Numbers by their dimensions: the one language in which claims, tables and the paper's numbers say what they mean.

A selector is a mapping from dimensions to what they must be.  A dimension that it does not name is blank.

    3, linear            this value
    [10, 20, 40]         one of these, in this order; each must be there
    all                  anything, blank or not
    {from: 1, to: 20}    whole numbers in this range
    layer: best          the layer with the highest leading score of its table (LEADING); `last`; `middle`; `used`: all
                         layers whose attention is worth something (USED)
    model: base          whoever plays the role in this run (metrics/models.py); its control `{untrained: base}`,
                         `{shuffled: base}`, `{bigram: base}`; `{masked: X}`: the masked model of the causal one's shape
    $name                the value of a variable
    with: $name          a variable that is itself a mapping: its dimensions join the others
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.metrics.models import (
    CONTROL_TEXTS,
    UNTRAINED,
    Roles,
    masked_counterpart,
    middle_layer,
    roles_of,
    shape_of,
    trained_on,
    untrained,
)
from pcfg_artifact.metrics.schema import GIVEN, KEY, WHOLE_NUMBERS, Key, Metric, is_blank, mean_over_seeds, name_of

Selector = Mapping[str, Any]
ALL, BEST, LAST, MIDDLE, USED_LAYERS = "all", "best", "last", "middle", "used"
# A layer's attention is used where making it uniform loses this many points of the way to the exact loss.
USED = {"table": "layers_used", "group": "uniform attention", "metric": "share_lost"}
LEAST_USE = 1.0
CONTROLS = (UNTRAINED, *CONTROL_TEXTS)  # who may take a trained model's place, by the end of its name
TWINS: dict[str, Callable[[str], str]] = {
    "masked": masked_counterpart, "untrained": untrained,
    **{text: partial(trained_on, text=text) for text in CONTROL_TEXTS}}
# Where the numbers of an algorithm stand that says how many sentences it could not parse.
FAILURES = {"approximation": "approximation", "approximation_cost": "approximation", "ablation": "ablation"}
MOSTLY = 0.5
# The score by which a table's best layer is chosen; other scores are then taken at that layer.
LEADING = {"parsing": {"metric": "sentence_f1", "convention": "PB"}, "incremental": {"metric": "explained"}}
# Dimensions in which cases may differ and have best layers of their own.
OF_A_CASE = ("table", "grammar", "model", "probe", "setting", "input", "width", "size", "group", "bin", "index")


# In a run of a given grammar its one grammar stands for the main one, and sampled text for the treebank's.
OF_GIVEN = {"grammar": {"vm": GIVEN}, "setting": {"treebank": "sampled"}}
WITHOUT_TREEBANK = ("novm", "ood")


class Missing(Exception):
    """A selector found no number."""


class Inapplicable(Exception):
    """A role that a selector speaks of has no model in this run."""


class Numbers:
    """All numbers of a run, one a key: the mean over the seeds of its probes.

    `origin`: the numbers of the run itself, where these are what it says of a control (see `controls`).
    """

    def __init__(self, metrics: Iterable[Metric], roles: Roles | None = None, origin: Numbers | None = None) -> None:
        self._measured = list(metrics)
        self.is_given: bool = origin.is_given if origin is not None else any(m.grammar == GIVEN for m in self._measured)
        self.metrics = mean_over_seeds(self._measured)
        self.by_key = {metric.key: metric for metric in self.metrics}
        self._by_measure: dict[str, dict[str, list[Metric]]] = defaultdict(lambda: defaultdict(list))
        for metric in self.metrics:
            self._by_measure[metric.table][metric.metric].append(metric)
        trained = [m.model for table in ("perplexity", "next_words") for m in self.of_table(table)]
        self.roles: Roles = roles_of(trained) if roles is None else roles
        self.origin = self if origin is None else origin

    @cached_property
    def controls(self) -> dict[str, Numbers]:
        """Control -> the numbers with every trained model's replaced by those of its control, as if it were trained.

        Models without this control leave, and so do the controls that this run does not have.
        """
        trained = {*self.roles.models, *self.roles.causal}
        found = {}
        for control in CONTROLS:
            twins = {trained_on(model, control): model for model in trained}
            there = {twins[m.model] for m in self.metrics if m.model in twins}
            if there:
                left = [m for m in self.metrics if m.model not in trained]
                found[control] = Numbers([*left, *(m.at(model=twins[m.model]) for m in left if m.model in twins)],
                                         self.roles.among(there), self)
        return found

    def is_empty(self, metric: Metric) -> bool:
        """Whether a number says nothing, because most sentences behind it could not be parsed at all."""
        table = FAILURES.get(metric.table)
        return table is not None and any(
            m.value > MOSTLY for m in self._by_measure[table]["failed"]
            if (m.grammar, m.model, m.size) == (metric.grammar, metric.model, metric.size))

    def of_table(self, table: str) -> list[Metric]:
        return [metric for found in self._by_measure.get(table, {}).values() for metric in found]

    def select(self, selector: Selector, variables: Mapping[str, Any] | None = None) -> list[Metric]:
        """The numbers a selector stands for, in the order of its lists, then as they were written; never none."""
        variables = variables or {}
        joined = {**selector, **_variable(selector["with"], variables)} if "with" in selector else selector
        known = {name: self._resolve(name, value, variables) for name, value in joined.items() if name != "with"}
        if unknown := set(known) - set(KEY):
            raise ConfigError(f"{', '.join(sorted(unknown))} is no dimension; choose some of {', '.join(KEY)}")
        measures = self._by_measure.get(known["table"], {})
        wanted = list(measures) if known["metric"] == ALL else _as_list(known["metric"])
        found = [m for measure in wanted for m in measures.get(measure, ()) if self._matches(m, known)]
        lists = {name: value for name, value in known.items() if isinstance(value, list)}
        if lists:
            found.sort(key=lambda m: [lists[name].index(getattr(m, name)) for name in lists])
        there = {tuple(getattr(m, name) for name in lists) for m in found}
        for combination in product(*lists.values()):
            if combination not in there:
                one = {**known, **dict(zip(lists, combination, strict=True))}
                raise Missing(f"{_described(one)} was not measured")
        return found

    def _resolve(self, name: str, value: Any, variables: Mapping[str, Any]) -> Any:
        """A selector's value with variables and roles filled in: one value, a list, ALL, a range or a chosen layer."""
        if isinstance(value, str) and value.startswith("$"):
            return self._resolve(name, _variable(value, variables), variables)
        if isinstance(value, list):
            parts = [self._resolve(name, part, variables) for part in value]
            return [one for part in parts for one in _as_list(part)]
        if self.is_given and name in OF_GIVEN and not isinstance(value, Mapping) and value is not None:
            if value in WITHOUT_TREEBANK:
                raise Inapplicable(f"a run of a given grammar has no {name} {value}")
            return OF_GIVEN[name].get(value, value)
        if name != "model":
            return value
        if isinstance(value, Mapping):
            (relation, other), = value.items()
            models = [TWINS[relation](model) for model in _as_list(self._resolve(name, other, variables))]
            there = self.roles.models if relation == "masked" else {m.model for m in self.metrics}
            if relation != "untrained" and (absent := [model for model in models if model not in there]):
                raise Inapplicable(f"this profile trains no model {absent[0]}")
            return models if len(models) > 1 else models[0]
        return self._of_role(value)

    def _of_role(self, name: str) -> Any:
        """The models of a role; any other name stands for itself."""
        roles = self.roles.named() if self.roles.base is not None else dict(causal=self.roles.causal)
        if name not in ROLE_NAMES:
            return name
        if not (models := roles.get(name, ())):
            raise Inapplicable(f"this profile trains no model for the role {name}")
        return list(models) if len(models) > 1 else models[0]

    def _matches(self, metric: Metric, known: Mapping[str, Any]) -> bool:
        for name in KEY:
            value, wanted = getattr(metric, name), known.get(name)
            if wanted is None:
                if not is_blank(value):
                    return False
            elif isinstance(wanted, list):
                if value not in wanted:
                    return False
            elif isinstance(wanted, Mapping):
                if value is None or not wanted["from"] <= value <= wanted.get("to", math.inf):
                    return False
            elif name == "layer" and wanted == USED_LAYERS:
                if value not in self._used_layers(metric.model):
                    return False
            elif name == "layer" and wanted in (BEST, LAST, MIDDLE):
                if value is None or value != self.chosen_layer(metric, wanted):
                    return False
            elif wanted != ALL and value != wanted:
                return False
        return True

    def chosen_layer(self, metric: Metric, which: str) -> int | None:
        """The best, last or middle layer of the model and case that a number belongs to."""
        if which == BEST:
            return self.best_layers.get(_case(metric))
        shape = shape_of(metric.model)
        n_layers = shape.layers if shape else self._deepest[metric.table, metric.model]
        return n_layers if which == LAST else middle_layer(n_layers)

    @cached_property
    def best_layers(self) -> dict[Key, int]:
        """Case -> the layer with the highest leading score (the first of equals; an undefined one, if there is any)."""
        scores: dict[Key, dict[int, float]] = defaultdict(dict)
        for table, leading in LEADING.items():
            for m in self._by_measure.get(table, {}).get(leading["metric"], ()):
                if m.layer is not None and all(getattr(m, name) == value for name, value in leading.items()):
                    scores[_case(m)][m.layer] = m.value
        return {case: max(sorted(layers), key=lambda layer: math.inf if math.isnan(layers[layer]) else layers[layer])
                for case, layers in scores.items()}

    def _used_layers(self, model: str) -> list[int | None]:
        lost = [m for m in self.of_table(USED["table"])
                if m.model == model and all(getattr(m, name) == value for name, value in USED.items())]
        if not lost:
            raise Missing(f"{USED['table']} of {model} was not measured")
        return [m.layer for m in lost if m.value >= LEAST_USE]

    @cached_property
    def _deepest(self) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = defaultdict(int)
        for m in self.metrics:
            if m.layer is not None:
                found[m.table, m.model] = max(found[m.table, m.model], m.layer)
        return found

    def deviation_over_seeds(self, metric: Metric) -> float:
        """Standard deviation of a number over the seeds of its probe; NaN of one seed."""
        values = [m.value for m in self._measured if m.key == metric.key]
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


ROLE_NAMES = tuple(Roles().named())


def _variable(name: str, variables: Mapping[str, Any]) -> Any:
    if name[1:] not in variables:
        raise ConfigError(f"{name} is no variable; known are {', '.join(variables) or 'none'}")
    return variables[name[1:]]


def _case(metric: Metric) -> Key:
    return tuple(getattr(metric, name) for name in OF_A_CASE)


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _described(known: Mapping[str, Any]) -> str:
    return name_of({name: known.get(name) for name in KEY})


def check(selector: Any) -> str | None:
    """What is wrong with a selector as it is written, or None."""
    if not isinstance(selector, Mapping) or not {"table", "metric"} <= set(selector):
        return f"{selector!r} must name a table and a metric"
    for name, value in selector.items():
        if name not in (*KEY, "with"):
            return f"{name!r} is no dimension; choose some of {', '.join(KEY)}"
        if name in WHOLE_NUMBERS:
            words = (ALL, BEST, LAST, MIDDLE, USED_LAYERS) if name == "layer" else (ALL,)
            for one in _as_list(value):
                is_range = isinstance(one, Mapping) and set(one) <= {"from", "to"} and "from" in one
                if not (is_range or isinstance(one, int) or one in words or str(one).startswith("$")):
                    return f"{name} is {one!r}, expected a whole number, a range, or one of {', '.join(words)}"
    return None
