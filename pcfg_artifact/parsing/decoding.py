"""Trees from charts: Labelled Recall."""

from __future__ import annotations

import numpy as np

from pcfg_artifact.parsing.charts import Chart

Span = tuple[int, int]


def labelled_recall(chart: Chart) -> list[Span]:
    """The 2L-1 spans of the binary tree with the largest sum of s(i, j) = max over A of the marginal.

    Ties take the first split, so a sentence without probability becomes right-branching.
    """
    return best_binary_tree(chart.span_scores())


def best_binary_tree(scores: np.ndarray) -> list[Span]:
    """Spans, parents first, of the binary tree with the largest sum of scores[i, j]; ties take the first split."""
    length = len(scores) - 1
    best = np.zeros_like(scores)
    split = np.zeros(scores.shape, np.int64)
    for i in range(length):
        best[i, i + 1] = scores[i, i + 1]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            j = i + width
            totals_K = best[i, i + 1:j] + best[i + 1:j, j]
            split[i, j] = i + 1 + totals_K.argmax()
            best[i, j] = scores[i, j] + totals_K.max()
    spans: list[Span] = []
    todo = [(0, length)] if length else []
    while todo:
        i, j = todo.pop()
        spans.append((i, j))
        if j - i > 1:
            todo += [(split[i, j], j), (i, split[i, j])]
    return [(int(i), int(j)) for i, j in spans]
