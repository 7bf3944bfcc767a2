"""The numbers that the paper prints, each with the dimensions of what it measured and how far a run may be from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from pcfg_artifact.approximation.scores import costs
from pcfg_artifact.errors import CorruptArtifact
from pcfg_artifact.metrics.models import shape_of
from pcfg_artifact.metrics.schema import KEY, WHOLE_NUMBERS, Key, Metric, is_blank, name_of
from pcfg_artifact.metrics.selection import BEST, LAST, Numbers
from pcfg_artifact.metrics.views import grouped

# What a printed number is transcribed as, though it may as well be the other.
UNSTATED = {"grammar": ("vm", "novm"), "convention": ("PB", "KIM"), "group": ("n-ary", ""), "bin": ("n-ary", "")}
MATCH, ABOVE, BELOW = "match", "above", "below"
# A printed number has a prediction with its basis; a bound in words has neither.
EXPECTATIONS = {*((said, "", True) for said in (MATCH, ABOVE, BELOW)), ("", ABOVE, False), ("", BELOW, False)}


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
    prediction: str = ""  # what a run of the profile paper will find: match, above, below; said before anyone ran it
    basis: str = ""  # the figures this rests on
    bound: str = ""  # of a number that the paper gives as a bound in words: above or below; it is not judged

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
            printed = Printed(row["source"], dims, float(row["value"]), tolerance, row["reason"],
                              row.get("prediction", ""), row.get("basis", ""), row.get("bound", ""))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptArtifact(f"{where}: the row {dict(row)} is no printed number ({error!r}); expected a source, "
                                  f"dimensions, a value, a tolerance and a reason") from error
        if any((other.item, other.dims) == (printed.item, printed.dims) for other in found):
            raise CorruptArtifact(f"{where}: {printed.name} occurs twice; keep one")
        if (printed.prediction, printed.bound, bool(printed.basis)) not in EXPECTATIONS:
            raise CorruptArtifact(f"{where}: {printed.name} has the prediction {printed.prediction!r}; expected match, "
                                  f"above or below and the figures it rests on, or, for a bound, above or below")
        if is_blank(printed.reason) or is_blank(printed.item):
            raise CorruptArtifact(f"{where}: {printed.name} has no reason or no source; every printed number says both")
        if not math.isfinite(printed.value) or (tolerance is not None and not 0 <= tolerance < math.inf):
            raise CorruptArtifact(f"{where}: {printed.name} has value {printed.value}, tolerance {tolerance}; expected "
                                  f"finite numbers, tolerance not negative")
        found.append(printed)
    return found


def as_numbers(paper: Iterable[Printed]) -> Numbers:
    """What the paper prints as if it were a run, to ask of each claim how strongly the paper's own numbers have it.

    The paper names neither an F1 convention nor a variant of the grammar, nor what trees the labels of Table 6 are of:
    its numbers stand for both of each.  What it gives as a bound in words stands for the number.  Of two printed values
    of one cell the first is taken.
    """
    found: dict[Key, Metric] = {}
    for one in sorted(paper, key=lambda one: bool(one.bound)):
        shape = shape_of(one.dims.get("model", ""))
        unit = "percent" if one.dims["metric"] in ("sentence_f1", "corpus_f1") else ""
        dims = {**one.dims, **({"layer": shape.layers} if shape and one.dims.get("layer") in (BEST, LAST) else {})}
        for changed in product(*(((name, value), (name, other)) for name, (value, other) in UNSTATED.items()
                               if dims.get(name) == value)):
            metric = Metric(**{**dims, **dict(changed)}, value=one.value, n=1, unit=unit)
            found.setdefault(metric.key, metric)
    by_model = grouped((m for m in found.values() if m.table == "approximation"), "grammar", "model", "size")
    for (grammar, _, _), metrics in by_model.items():
        for cost in costs(by_model.get((grammar, "exact", None), []), metrics):
            found.setdefault(cost.key, cost)
    return Numbers(found.values())


def _typed(name: str, text: str) -> Any:
    return int(text) if name in WHOLE_NUMBERS and text not in (BEST, LAST) else text
