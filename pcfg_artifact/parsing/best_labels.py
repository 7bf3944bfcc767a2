"""The best label of every span of a sentence, with its probabilities: a chart that fits on a page."""

from __future__ import annotations

from typing import Any

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import Chart, entries_of
from pcfg_artifact.parsing.triangle import cell_bounds


def best_labels(grammar: PCFG, chart: Chart) -> list[list[Any]]:
    """[i, j, label, log inside, log outside, marginal] of every span; label None and logs None where none is possible.

    The label is the one with the largest marginal, or with the largest inside value where all marginals are 0.
    """
    inside, outside, marginals = chart.entry_log_inside, chart.entry_log_outside, chart.entry_marginals
    found: list[list[Any]] = []
    for i, j in zip(*(bounds.tolist() for bounds in cell_bounds(chart.length)), strict=True):
        entries = entries_of(chart, i, j)
        possible = np.flatnonzero(inside[entries] > -np.inf) + entries.start
        if not len(possible):
            found.append([i, j, None, None, None, 0.0])
            continue
        best = int(possible[np.lexsort((inside[possible], marginals[possible]))[-1]])
        found.append([i, j, grammar.nonterminals[chart.symbols[best]], round(float(inside[best]), 4),
                      round(float(outside[best]), 4) if outside[best] > -np.inf else None,
                      round(min(float(marginals[best]), 1.0), 6)])
    return found
