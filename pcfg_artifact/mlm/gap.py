"""The distance of a trained model from the exact optimum as metric rows: over all masked words, and by circumstance."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.artifacts import Metric
from pcfg_artifact.mlm.optimum import Gap, groups


def gap_rows(gap: Gap, unigram: float, model: str, masks: str, seed: int) -> list[Metric]:
    """Perplexities of model, optimum and unigram on the same masked words, and what lies between, in nats."""
    n, (excess, error) = len(gap.model), gap.excess()
    perplexities = {"model": gap.model.mean(), "exact": gap.exact.mean(), "unigram": unigram}
    nats = {"kl": gap.divergence.mean(), "excess": excess, "excess_standard_error": error}
    return [*(Metric(*cells.against_optimum(model, masks, column), seed, math.exp(value), n, "perplexity")
              for column, value in perplexities.items()),
            *(Metric(*cells.against_optimum(model, masks, column), seed, float(value), n, "nats")
              for column, value in nats.items())]


def group_rows(gap: Gap, known: Mapping[str, np.ndarray], model: str, seed: int) -> list[Metric]:
    """KL divergence and excess loss by circumstance (`known`, of every masked word) and by exact entropy."""
    return [Metric(*cells.optimum_gap(model, group, column), seed, float(values[chosen].mean()), int(chosen.sum()),
                   "nats")
            for group, chosen in groups(gap, dict(known)) if chosen.any()
            for column, values in (("kl", gap.divergence), ("excess", gap.model - gap.exact))]
