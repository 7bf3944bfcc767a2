"""The measured numbers of one run as cells (table, row, column), and the roles that its models play."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pcfg_artifact.artifacts import Metric

MODEL = re.compile(r"A(\d+)L(\d+)$")


class Cell(NamedTuple):
    """The name of one number."""

    table: str
    row: str
    column: str

    def __str__(self) -> str:
        return f"{self.table} / {self.row} / {self.column}"


@dataclass(frozen=True)
class Value:
    """A number with the unit it is printed in."""

    number: float
    unit: str


Measured = Mapping[Cell, Value]
Tables = Mapping[str, Mapping[str, Mapping[str, Value]]]  # table -> row -> column -> value


def collect(metrics: Iterable[Metric]) -> dict[Cell, Value]:
    """One value per cell: the mean over seeds where a stage measured several (NaN in one is NaN in the mean)."""
    by_cell: dict[Cell, list[Metric]] = {}
    for metric in metrics:
        by_cell.setdefault(Cell(metric.table, metric.row, metric.column), []).append(metric)
    return {cell: Value(float(np.mean([m.value for m in found])), found[0].unit) for cell, found in by_cell.items()}


def tabulate(measured: Measured) -> Tables:
    """The cells by table, row and column, in the order they came."""
    tables: dict[str, dict[str, dict[str, Value]]] = {}
    for cell, value in measured.items():
        tables.setdefault(cell.table, {}).setdefault(cell.row, {})[cell.column] = value
    return tables


def natural(text: str) -> list[tuple[int, int, str]]:
    """A sort key under which L2 comes before L10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text) if part]


def format_number(number: float, unit: str = "") -> str:
    """A number as the report prints it: the paper's number of digits for its unit."""
    if not np.isfinite(number):
        return str(number)
    if unit == "relative_error":
        return f"{number:.1e}"
    if unit in ("count", "bool"):
        return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}"
    if unit == "fraction":
        return f"{number:.3f}"
    if unit in ("percent", "perplexity", "tokens"):
        return f"{number:.2f}"
    return f"{number:.4g}"


@dataclass(frozen=True)
class Roles:
    """What the models of a run stand for, whatever their names: the paper's are A12L12, A12L1, A3L12 and so on.

    `base`: most common number of heads, then most layers.  `fewest_layers`, `fewest_heads`: the two that the paper
    finds too small; None where no model of the run is smaller than the base in that way.
    """

    models: tuple[str, ...]
    base: str | None
    fewest_layers: str | None
    fewest_heads: str | None

    @property
    def small(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(m for m in (self.fewest_layers, self.fewest_heads) if m is not None))

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(m for m in self.models if m not in self.small)

    def layers(self, model: str) -> int:
        return int(MODEL.match(model).group(2))


def find_roles(cells: Iterable[Cell]) -> Roles:
    """Read the models off the rows of the pre-training table."""
    sizes: dict[str, tuple[int, int]] = {}
    for cell in cells:
        if cell.table == "table3" and (match := MODEL.match(cell.row)):
            sizes[cell.row] = (int(match.group(1)), int(match.group(2)))
    if not sizes:
        return Roles((), None, None, None)
    common = Counter(heads for heads, _ in sizes.values())
    base = max(sizes, key=lambda m: (common[sizes[m][0]], sizes[m][1], sizes[m][0]))
    shallow = min(sizes, key=lambda m: (sizes[m][1], m))
    narrow = min(sizes, key=lambda m: (sizes[m][0], -sizes[m][1], m))
    return Roles(models=tuple(sorted(sizes, key=natural)), base=base,
                 fewest_layers=shallow if sizes[shallow][1] < sizes[base][1] else None,
                 fewest_heads=narrow if sizes[narrow][0] < sizes[base][0] else None)
