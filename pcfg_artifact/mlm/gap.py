"""The distance of a trained model from the exact optimum: over all predictions, and by circumstance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm.optimum import BINS, PLACES, Bins, Gap, bin_groups


def distance_metrics(gap: Gap, unigram: float, **dimensions: Any) -> list[Metric]:
    """Perplexities of model, optimum and unigram on the same words, and what lies between, in nats."""
    n, (excess, error) = len(gap.model), gap.excess()
    perplexities = {"perplexity": gap.model.mean(), "exact_perplexity": gap.exact.mean(), "unigram_perplexity": unigram}
    return [*(Metric(metric=name, value=math.exp(loss), n=n, unit="perplexity", **dimensions)
              for name, loss in perplexities.items()),
            Metric(metric="kl", value=float(gap.divergence.mean()), n=n, unit="nats", **dimensions),
            Metric(metric="excess", value=excess, error=error, n=n, unit="nats", **dimensions)]


def masked_word_groups(gap: Gap, known: Mapping[str, np.ndarray], **dimensions: Any) -> list[Metric]:
    """A masked model by what is known of every masked word (optimum.circumstances)."""
    by_place = [metric for k, name in enumerate(PLACES)
                for metric in _of_group(gap, known["place"] == k, group="place", bin=name, **dimensions)]
    return [*by_place, *grouped_metrics(gap, known, BINS, **dimensions)]


def grouped_metrics(gap: Gap, known: Mapping[str, np.ndarray], bins: Bins, **dimensions: Any) -> list[Metric]:
    """KL divergence and excess loss by circumstance (`known`, of every prediction) and by exact entropy."""
    return [metric for group, label, chosen in bin_groups({**known, "entropy": gap.entropy}, bins)
            for metric in _of_group(gap, chosen, group=group, bin=label, **dimensions)]


def _of_group(gap: Gap, chosen: np.ndarray, **dimensions: Any) -> list[Metric]:
    """Of the chosen predictions; nothing where there is none."""
    return [Metric(metric=name, value=float(values[chosen].mean()), n=int(chosen.sum()), unit="nats", **dimensions)
            for name, values in (("kl", gap.divergence), ("excess", gap.model - gap.exact)) if chosen.any()]
