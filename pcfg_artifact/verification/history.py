"""What the recorded runs found of a claim: how far from its bound it was in each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pcfg_artifact.cells import Cell
from pcfg_artifact.roles import Roles, find_roles
from pcfg_artifact.verification.claim_outcomes import Comparison, evaluate
from pcfg_artifact.verification.expectations import Record, Rerun
from pcfg_artifact.verification.measured import Tables, Value, tabulate
from pcfg_artifact.verification.relations import Relation
from pcfg_artifact.verification.scatter import quantile

ODDS = 1e-3  # one honest run in so many may lie farther from the recorded ones than `is_honest` allows


@dataclass(frozen=True)
class History:
    """The comparison nearest to failing in every recorded run."""

    by_seed: dict[int, Comparison]
    reruns: dict[Rerun, Comparison]

    def is_honest(self, seed: int | None, now: Comparison, has_repeated: bool) -> bool:
        """Whether honest runs lie as far from what is recorded as this one; NaN never does.  Reruns of the probes alone
        say so only of a run whose models are the recorded ones (`has_repeated`)."""
        drift = [c.lean - self.by_seed[rerun.seed].lean for rerun, c in self.reruns.items()
                 if rerun.seed in self.by_seed and (has_repeated or not rerun.is_probes_only)]
        drift = [change for change in drift if change]  # a rerun that changed nothing calculated alike
        if seed is not None and seed in self.by_seed and drift:
            width = quantile(len(drift), ODDS) * math.sqrt(float(np.mean(np.square(drift))))
            return abs(now.lean - self.by_seed[seed].lean) <= width
        leans = np.array([c.lean for c in self.by_seed.values()])
        if len(leans) < 2:
            return False
        width = quantile(len(leans) - 1, ODDS) * math.sqrt(1 + 1 / len(leans)) * float(leans.std(ddof=1))
        centre = self.by_seed[seed].lean if seed is not None and seed in self.by_seed else float(leans.mean())
        return abs(now.lean - centre) <= width

    def holds(self) -> dict[str, bool]:
        """By the name of the run: `0` a seed, `0/sse` the same under other arithmetic."""
        return {**{str(s): c.slack >= 0 for s, c in self.by_seed.items()},
                **{f"{r.seed}/{r.arithmetic}": c.slack >= 0 for r, c in self.reruns.items()}}


@lru_cache(maxsize=32)
def _tables(record: Record) -> tuple[Roles, dict[int | Rerun, Tables]]:
    runs: list[tuple[int | Rerun, dict[Cell, float]]] = [*record.by_seed.items(), *record.drift.items()]
    return find_roles(record.units), {
        run: tabulate({cell: Value(number, record.units[cell]) for cell, number in values.items()})
        for run, values in runs}


def history_of(record: Record, relation: Relation) -> History:
    """What every recorded run found of a relation; runs that it does not apply to are left out."""
    roles, tables = _tables(record)
    found = {run: evaluate(relation, cells, roles).worst for run, cells in tables.items()}
    return History({run: worst for run, worst in found.items() if isinstance(run, int) and worst is not None},
                   {run: worst for run, worst in found.items() if isinstance(run, Rerun) and worst is not None})
