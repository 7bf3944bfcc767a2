"""The `reference` engine: the oracle's functions in the role of an engine, one sentence after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing import reference
from pcfg_artifact.parsing.chart_index import cell_bounds
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.constraints import Forbidden, each_forbidden
from pcfg_artifact.parsing.options import EngineOptions
from pcfg_artifact.parsing.registry import BestTree


class ReferenceEngine:
    """Slow and obvious."""

    def __init__(self, grammar: PCFG, options: EngineOptions) -> None:
        self.grammar, self.is_full = grammar, options.is_full

    def charts(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[Chart]:
        return (self._chart(rows, is_forbidden) for rows, is_forbidden in self._each(leaves, forbidden))

    def log_probs(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[float]:
        return (reference.log_probability(self.grammar, reference.inside(self.grammar, rows, is_forbidden))
                for rows, is_forbidden in self._each(leaves, forbidden))

    def best_trees(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[BestTree]:
        for rows, is_forbidden in self._each(leaves, forbidden):
            found = reference.best_tree(self.grammar, rows, is_forbidden)
            yield BestTree.none() if found is None else BestTree(found[0], np.array(found[1]))

    def _each(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden]
              ) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """The leaves of every sentence and, where anything is forbidden, what: (L+1, L+1, N)."""
        for rows, one in zip(leaves, each_forbidden(forbidden, len(leaves)), strict=True):
            square = np.zeros((len(rows) + 1, len(rows) + 1, self.grammar.n_nonterminals), bool)
            if not one.is_empty:
                square[cell_bounds(len(rows))] = one.by_cell(self.grammar.n_nonterminals)
            yield rows, None if one.is_empty else square

    def _chart(self, leaves: np.ndarray, is_forbidden: np.ndarray | None) -> Chart:
        log_inside = reference.inside(self.grammar, leaves, is_forbidden)
        log_outside = reference.outside(self.grammar, log_inside, is_forbidden)
        if not self.is_full:
            log_outside[log_inside == -np.inf] = -np.inf
        return Chart.from_logs(reference.log_probability(self.grammar, log_inside), log_inside, log_outside)

