"""What the probing figures show beside numbers: one probed tree, and predicted against true span marginals."""

from __future__ import annotations

from typing import Any

import numpy as np

from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.scores import best_line
from pcfg_artifact.probing.targets import decode
from pcfg_artifact.probing.tasks import decode_all
from pcfg_artifact.seeding import stream


def example_tree(corpus: Corpus, labels: np.ndarray) -> dict[str, Any]:
    """The probed tree of the first test sentence of 8-12 words that the grammar can parse (else of the first)."""
    s = next((s for s, length in enumerate(corpus.lengths) if 8 <= length <= 12 and corpus.scores[s] is not None), 0)
    spans, gold = decode_all(corpus, labels)[s], decode(corpus.subset([s]).binary_depths)
    return {"words": corpus.trees[s].words(), "spans": sorted(map(list, spans)), "gold": sorted(map(list, gold))}


def scatter_plot(wanted: np.ndarray, predicted: np.ndarray, n_drawn: int, seed: int) -> dict[str, Any]:
    """Some test spans to draw, and the best line through all of them; no line where there are no two predictions."""
    is_number = np.isfinite(predicted)  # a net that diverged has no others
    wanted, predicted = wanted[is_number], predicted[is_number]
    drawn = stream(seed, "scatter").choice(len(wanted), min(n_drawn, len(wanted)), replace=False)
    slope, intercept = best_line(wanted, predicted) if len(wanted) > 1 else (None, None)
    return {"true": wanted[drawn].tolist(), "predicted": predicted[drawn].tolist(), "slope": slope,
            "intercept": intercept}
