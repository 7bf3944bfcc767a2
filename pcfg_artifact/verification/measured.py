"""The measured numbers of one run, by cell and by table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pcfg_artifact.artifacts import Metric
from pcfg_artifact.cells import Cell


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
