"""The outcome of interventions in numbers: every effect with its standard error over sentences."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pcfg_artifact.interventions.effects import STATISTICS, Observations
from pcfg_artifact.interventions.experiment import LINEAR, RANDOM, STATES, LayerOutcome
from pcfg_artifact.metrics.schema import Metric

GROUPED_WAYS = (LINEAR, STATES, RANDOM)
DISTANCES = (0, 1, 3, 6, np.inf)  # words; at 0 the word's own state is moved
SLOPE = ("slope",)


def layer_metrics(outcome: LayerOutcome, is_middle: bool) -> list[Metric]:
    """Slopes at masked words elsewhere, and at those whose own state was moved; of the middle layer everything."""
    found = list(outcome.answers) if is_middle else []
    for way, seen in outcome.observations.items():
        elsewhere = seen.estimates(seen.is_elsewhere, STATISTICS if is_middle else SLOPE, probe=way)
        found += [*elsewhere, *seen.estimates(~seen.is_elsewhere, SLOPE, probe=way, group="moved words")]
        if is_middle:
            found += [slope.at(metric="slope_in_errors", value=abs(slope.value) / slope.error, error=None, unit="ratio")
                      for slope in elsewhere if slope.metric == "slope" and slope.error]
            found += group_metrics(way, seen) if way in GROUPED_WAYS else ()
    return [metric for metric in found if np.isfinite(metric.value)]


def group_metrics(way: str, seen: Observations) -> Iterator[Metric]:
    """Slopes by width of the span, and by distance of the masked word from the moved states."""
    width, distance = np.asarray(seen.width), np.asarray(seen.distance)
    for one in np.unique(width):
        yield from seen.estimates((width == one) & seen.is_elsewhere, SLOPE, probe=way, group="width", width=int(one))
    for low, high in pairwise(DISTANCES):
        name = f"{low}+" if high == np.inf else f"{low}" if high - low == 1 else f"{low}-{high - 1:.0f}"
        yield from seen.estimates((distance >= low) & (distance < high), SLOPE, probe=way, group="distance", bin=name)


def constructed_metrics(seen: Observations, chart_error: float) -> list[Metric]:
    """The positive control: every masked word, since here the coordinates of all layers are cleared."""
    slope, *others = seen.estimates(np.ones(len(seen.sentence), bool))
    errors = {"slope_off_by": abs(slope.value - 1), "chart_error": chart_error}
    return [slope, *others, *(slope.at(metric=metric, value=value, error=None, unit="relative_error")
                              for metric, value in errors.items())]
