"""The `reference` engine: the oracle's functions in the role of an engine, one sentence after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing import reference
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.forbidden import Forbidden, refuse_forbidden
from pcfg_artifact.parsing.options import EngineOptions
from pcfg_artifact.parsing.registry import BestTree


class ReferenceEngine:
    """Slow and obvious."""

    def __init__(self, grammar: PCFG, options: EngineOptions) -> None:
        self.grammar, self.is_full = grammar, options.is_full

    def charts(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[Chart]:
        refuse_forbidden(forbidden, "reference")
        return map(self._chart, leaves)

    def log_probs(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[float]:
        refuse_forbidden(forbidden, "reference")
        return (reference.log_probability(self.grammar, reference.inside(self.grammar, rows)) for rows in leaves)

    def best_trees(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[BestTree]:
        refuse_forbidden(forbidden, "reference")
        for rows in leaves:
            found = reference.best_tree(self.grammar, rows)
            yield BestTree.none() if found is None else BestTree(found[0], np.array(found[1]))

    def _chart(self, leaves: np.ndarray) -> Chart:
        log_inside = reference.inside(self.grammar, leaves)
        log_outside = reference.outside(self.grammar, log_inside)
        if not self.is_full:
            log_outside[log_inside == -np.inf] = -np.inf
        return Chart.from_logs(reference.log_probability(self.grammar, log_inside), log_inside, log_outside)
