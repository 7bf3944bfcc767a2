"""A run that has a further probe, parser, encoder and grammar: their names alone are new."""

from __future__ import annotations

from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import Numbers

PROBE, PARSER, ENCODER, GRAMMAR = "toy probe", "toy engine", "toy encoder", "toy grammar"
# A new name, and whose numbers it gets: dimension, value.
COPIES = ((PROBE, "probe", "linear"), (PARSER, "model", "IO"), (ENCODER, "model", "A4L3"), (GRAMMAR, "grammar", "novm"))


def with_toys(numbers: Numbers) -> Numbers:
    return Numbers([*numbers.metrics, *(metric.at(**{dimension: name}) for name, dimension, like in COPIES
                                        for metric in numbers.metrics if getattr(metric, dimension) == like)])


def made(value: float = 1.0, unit: str = "percent", **dimensions) -> Metric:
    return Metric(value=value, unit=unit, n=10, **dimensions)
