"""One sentence in a constructed transformer: the chart cells that each layer fills, and the parse at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pcfg_artifact.constructions.transformer import ConstructedTransformer
from pcfg_artifact.parsing.decoding import best_binary_tree


def filled_cells(model: ConstructedTransformer, words: Sequence[str]) -> list[dict[str, Any]]:
    """For every layer: its index from 1, its phase, the width of its spans, and their cells [i, j, largest entry].

    The root layer fills the cell of the whole sentence, a layer for wider spans none.
    """
    n, layers = len(words), []
    _, *steps = model.steps(words)
    for index, (weights, embeddings) in enumerate(zip(model.plan.layers, steps, strict=True), start=1):
        phase, width = weights.computes
        width = n if width is None else width
        inside, outside = model.read_charts(embeddings)
        chart = inside if phase == "inside" else outside
        cells = [[i, i + width, float(chart[i, i + width].max())] for i in range(n - width + 1)]
        layers.append({"layer": index, "phase": phase, "width": width, "cells": cells})
    return layers


def example(model: ConstructedTransformer, words: Sequence[str]) -> dict[str, Any]:
    """A sentence parsed by the transformer: its spans, the marginal of every span's best label, and its layers."""
    scores = model.read_marginals(model(words)).max(axis=-1)
    return {"words": list(words), "spans": [list(span) for span in best_binary_tree(scores)],
            "span_score": scores.tolist(), "layers": filled_cells(model, words)}
