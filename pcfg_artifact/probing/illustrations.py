"""What the probing figures show beside numbers: one probed tree, and predicted against true span marginals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.measures import best_line
from pcfg_artifact.probing.tasks import decode_all
from pcfg_artifact.system.random_streams import stream

NEAR_ZERO = 0.1  # a normalised marginal below it is called near zero


def probed_trees(examples: Corpus, labels: np.ndarray) -> list[dict[str, Any]]:
    """The tree of every sentence as its predicted labels have it, beside the treebank's."""
    return [{"words": tree.words(), "spans": sorted(map(list, spans)), "gold": sorted(map(list, gold))}
            for tree, spans, gold in zip(examples.trees, decode_all(examples, labels),
                                         decode_all(examples, examples.binary_depths), strict=True)]


def scatter_plot(wanted: np.ndarray, predicted: np.ndarray, n_drawn: int, seed: int) -> dict[str, Any]:
    """Some test spans to draw, and the best line through all of them; no line where the true values are all equal."""
    is_number = np.isfinite(predicted)  # a net that diverged has no others
    wanted, predicted = wanted[is_number], predicted[is_number]
    drawn = stream(seed, "scatter").choice(len(wanted), min(n_drawn, len(wanted)), replace=False)
    slope, intercept = best_line(wanted, predicted) if len(np.unique(wanted)) > 1 else (None, None)
    return {"true": wanted[drawn].tolist(), "predicted": predicted[drawn].tolist(), "slope": slope,
            "intercept": intercept}


def share_near_zero(true: Sequence[float], width: int) -> Metric:
    """Share of the spans that are drawn whose normalised marginal is near zero."""
    return Metric(table="marginals", width=width, metric="share_near_zero",
                  value=sum(number < NEAR_ZERO for number in true) / len(true), n=len(true), unit="fraction")
