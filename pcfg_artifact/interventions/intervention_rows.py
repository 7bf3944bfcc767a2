"""The outcome of interventions as metric rows: every effect with its standard error over sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.artifacts import Metric
from pcfg_artifact.cells import Cell
from pcfg_artifact.interventions.effects import Effect, Observations
from pcfg_artifact.interventions.experiment import LINEAR, RANDOM, STATES, LayerOutcome

GROUPED_WAYS = (LINEAR, STATES, RANDOM)
DISTANCES = (0, 1, 3, 6, np.inf)  # words; at 0 the word's own state is moved
MOVED = "moved words"  # masked words whose own state was changed


def estimate_rows(cell_of: Callable[[str], Cell], estimates: Mapping[str, Effect], seed: int) -> Iterator[Metric]:
    """Each statistic and its standard error; one that has no value, such as a correlation with nothing, has no row."""
    for name, (value, error, n) in estimates.items():
        for column, number, unit in ((name, value, "fraction"), (cells.error_of(name), error, cells.STANDARD_ERROR)):
            if np.isfinite(number):
                yield Metric(*cell_of(column), seed, number, n, unit)


def middle_rows(model: str, outcome: LayerOutcome, seed: int) -> Iterator[Metric]:
    """The middle layer: every way beside its controls, and how the effect depends on width and distance."""
    for way, seen in outcome.observations.items():
        cell = partial(cells.intervention, model, way)
        found = seen.estimates(seen.is_elsewhere)
        extra = {name: by_way[way] for name, by_way in (("completeness", outcome.completeness),
                                                        ("change of other answers", outcome.others)) if way in by_way}
        yield from estimate_rows(cell, {**found, **extra}, seed)
        if "slope" in found and found["slope"].error > 0:
            ratio = abs(found["slope"].value) / found["slope"].error
            yield Metric(*cell("slope in errors"), seed, ratio, found["slope"].n, "fraction")
        if way in GROUPED_WAYS:
            yield from group_rows(model, way, seen, seed)


def group_rows(model: str, way: str, seen: Observations, seed: int) -> Iterator[Metric]:
    """Slopes by width of the span, and by distance of the masked word from the moved states."""
    width, distance = np.asarray(seen.width), np.asarray(seen.distance)
    groups = {cells.SPAN_WIDTH(int(w)): (width == w) & seen.is_elsewhere for w in np.unique(width)}
    for low, high in pairwise(DISTANCES):
        name = f"{low}+" if high == np.inf else f"{low}" if high - low == 1 else f"{low}-{high - 1:.0f}"
        groups[f"distance {name}"] = (distance >= low) & (distance < high)
    for group, is_chosen in groups.items():
        found = {name: one for name, one in seen.estimates(is_chosen).items() if name == "slope"}
        yield from estimate_rows(partial(cells.intervention_by_group, model, way, group), found, seed)


def layer_rows(model: str, layer: int, outcome: LayerOutcome, seed: int) -> Iterator[Metric]:
    """Every layer: slopes at masked words elsewhere, and at those whose own state was moved."""
    for way, seen in outcome.observations.items():
        found = {"slope": seen.estimates(seen.is_elsewhere).get("slope"),
                 f"slope of {MOVED}": seen.estimates(~seen.is_elsewhere).get("slope")}
        yield from estimate_rows(partial(cells.intervention_by_layer, model, way, layer),
                                 {name: one for name, one in found.items() if one is not None}, seed)


def constructed_rows(seen: Observations, chart_error: float, seed: int) -> Iterator[Metric]:
    """The positive control: every masked word, since here the coordinates of all layers are cleared."""
    cell = partial(cells.intervention, cells.CONSTRUCTED, "")
    found = seen.estimates(np.ones(len(seen.sentence), bool))
    yield from estimate_rows(cell, found, seed)
    n = found["slope"].n
    yield Metric(*cell("slope off by"), seed, abs(found["slope"].value - 1), n, "relative_error")
    yield Metric(*cell("chart error"), seed, chart_error, n, "relative_error")
