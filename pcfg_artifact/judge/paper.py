"""The numbers that the paper prints, each with the dimensions of what it measured and how far a run may be from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pcfg_artifact.errors import CorruptArtifact
from pcfg_artifact.metrics.schema import KEY, WHOLE_NUMBERS, is_blank, name_of
from pcfg_artifact.metrics.selection import BEST, LAST


@dataclass(frozen=True)
class Printed:
    """One number that the paper prints, and where.  Without a tolerance it is shown and not judged.

    dims: a selector; its layer may be `best` or `last`, which a run resolves.
    """

    item: str  # Table 4, Section 3.3, ...
    dims: Mapping[str, Any]
    value: float
    tolerance: float | None
    reason: str  # for this tolerance

    @property
    def name(self) -> str:
        return f"{self.item}: {name_of({name: self.dims.get(name) for name in KEY})}"


def parse_paper(rows: Iterable[Mapping[str, str]], where: str) -> list[Printed]:
    """The rows of one file of expected_results/paper; dimensions without a column are blank."""
    found: list[Printed] = []
    for row in rows:
        try:
            dims = {name: _typed(name, row[name]) for name in KEY if row.get(name)}
            tolerance = float(row["tolerance"]) if row["tolerance"] else None
            printed = Printed(row["source"], dims, float(row["value"]), tolerance, row["reason"])
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptArtifact(f"{where}: the row {dict(row)} is no printed number ({error!r}); expected a source, "
                                  f"dimensions, a value, a tolerance and a reason") from error
        if any((other.item, other.dims) == (printed.item, printed.dims) for other in found):
            raise CorruptArtifact(f"{where}: {printed.name} occurs twice; keep one")
        if is_blank(printed.reason) or is_blank(printed.item):
            raise CorruptArtifact(f"{where}: {printed.name} has no reason or no source; every printed number says both")
        if not math.isfinite(printed.value) or (tolerance is not None and not 0 <= tolerance < math.inf):
            raise CorruptArtifact(f"{where}: {printed.name} has value {printed.value}, tolerance {tolerance}; expected "
                                  f"finite numbers, tolerance not negative")
        found.append(printed)
    return found


def _typed(name: str, text: str) -> Any:
    return int(text) if name in WHOLE_NUMBERS and text not in (BEST, LAST) else text
