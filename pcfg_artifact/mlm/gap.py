"""The distance of a trained model from the exact optimum as metric rows: over all predictions, and by circumstance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.artifacts import Metric
from pcfg_artifact.cells import Cell
from pcfg_artifact.mlm.optimum import BINS, PLACES, Bins, Gap, bin_groups


def gap_rows(gap: Gap, unigram: float, model: str, masks: str, seed: int) -> list[Metric]:
    """A masked model under named masks."""
    return distance_rows(gap, unigram, lambda column: cells.against_optimum(model, masks, column), seed)


def group_rows(gap: Gap, known: Mapping[str, np.ndarray], model: str, seed: int) -> list[Metric]:
    """A masked model by circumstance."""
    def cell(group: str, column: str) -> Cell:
        return cells.optimum_gap(model, group, column)

    places = {cells.gap_group("place", name): known["place"] == k for k, name in enumerate(PLACES)}
    return [*_rows(gap, places, cell, seed), *circumstance_rows(gap, known, BINS, cell, seed)]


def distance_rows(gap: Gap, unigram: float, cell: Callable[[str], Cell], seed: int) -> list[Metric]:
    """Perplexities of model, optimum and unigram on the same words, and what lies between, in nats."""
    n, (excess, error) = len(gap.model), gap.excess()
    perplexities = {"model": gap.model.mean(), "exact": gap.exact.mean(), "unigram": unigram}
    nats = {"kl": gap.divergence.mean(), "excess": excess}
    return [*(Metric(*cell(column), seed, math.exp(value), n, "perplexity") for column, value in perplexities.items()),
            *(Metric(*cell(column), seed, float(value), n, "nats") for column, value in nats.items()),
            Metric(*cell("excess_standard_error"), seed, error, n, cells.STANDARD_ERROR)]


def circumstance_rows(gap: Gap, known: Mapping[str, np.ndarray], bins: Bins, cell: Callable[[str, str], Cell],
                      seed: int) -> list[Metric]:
    """KL divergence and excess loss by circumstance (`known`, of every prediction) and by exact entropy."""
    return _rows(gap, dict(bin_groups({**known, "entropy": gap.entropy}, bins)), cell, seed)


def _rows(gap: Gap, groups: Mapping[str, np.ndarray], cell: Callable[[str, str], Cell], seed: int) -> list[Metric]:
    return [Metric(*cell(group, column), seed, float(values[chosen].mean()), int(chosen.sum()), "nats")
            for group, chosen in groups.items() if chosen.any()
            for column, values in (("kl", gap.divergence), ("excess", gap.model - gap.exact))]
