"""Families: the cells that measure one thing of one model, so that they scatter alike; never of two models."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from pcfg_artifact.cells import Cell

# Stages without training: at the same seed they give the same numbers on every machine, to rounding.
EXACT_STAGES = ("grammar", "sample", "marginals", "approximate", "construct")
# What verify computes from other numbers rests on the stage of its parts.
DERIVED_STAGES = {"percentages": "approximate", "percentages_novm": "approximate", "sensitivity": "control",
                  "near_zero": "marginals"}

UNTRAINED = "-random"  # the end of the name of a model before its training
MODEL = re.compile(rf"[AC]\d+L\d+({UNTRAINED})?$")
# What may differ between the cells of a family: layers, steps, heads, span lengths, masking rates, settings.
INDEX = re.compile(r"(L\d+|l=\d+|\d[\d.]*(-\d+)?|PCFG|PTB|OOD|step|head|layer|mask|corrupt)$")
PROBES = ("linear", "2-layer")
BY_WIDTH = "f1_by_length"  # two spans of twenty words scatter more than a hundred of two: its widths stay apart
BEST_LAYER = "best_layer"
BY_KIND_OF_WORD = "optimum_gap"  # one model's loss above the optimum, divided up in several ways
# Rows that rest on eigenvectors: where two eigenvalues are close, another machine may take another one.
LOW_RANK = re.compile(r"(^|[ ,])k=\d+|low_rank")


class Family(NamedTuple):
    """Cells of one table, one model (empty: of none) and one measure."""

    table: str
    model: str
    measure: str
    unit: str


def family(cell: Cell, unit: str) -> Family:
    """The family of a cell; families of probes are kept apart, because a convex fit drifts less than another."""
    return Family(cell.table, *_parts(cell), unit)


def group(cell: Cell, unit: str) -> Family:
    """The part of a table whose mean is judged: one model, one measure, all settings, layers, widths and probes."""
    model, measure = _parts(cell)
    words = [] if cell.table == BY_WIDTH else [word for word in measure.split() if word not in PROBES]
    return Family(cell.table, model, " ".join(words), unit)


def _parts(cell: Cell) -> tuple[str, str]:
    """Model and measure: the words of row and column, without those that index."""
    words = f"{cell.row} {cell.column}".split()
    if is_low_rank(cell):  # the rows of a table are a family: each of them alone is stable until it jumps
        words = ["low_rank", cell.column]
    model = next((word for word in words if MODEL.match(word)), "")
    if cell.table in (BY_WIDTH, BY_KIND_OF_WORD):
        return model, cell.column
    rest = [word for word in words if word != model and (word in PROBES or not INDEX.match(word))]
    return model, " ".join(rest)


def is_low_rank(cell: Cell) -> bool:
    return LOW_RANK.search(cell.row) is not None


def is_exact(cell: Cell, stage: str) -> bool:
    """Whether another machine must give the same number to rounding, at the same seed."""
    return stage in EXACT_STAGES and not is_low_rank(cell)


def is_trained(stage: str) -> bool:
    return stage not in EXACT_STAGES


# ---- the scale on which numbers of a unit are compared --------------------------------------------------------------

LOGARITHMIC = ("perplexity",)  # a perplexity of 300 scatters three times as far as one of 100


def scaled(number: float, unit: str) -> float:
    """The number on the scale on which its scatter does not depend on its size."""
    if unit in LOGARITHMIC:
        return math.log(number) if number > 0 else (-math.inf if number == 0 else math.nan)
    return number


def unscaled_width(number: float, width: float, unit: str) -> float:
    """A width on the scale of `scaled`, as a width around a number: the larger of its two sides."""
    if unit in LOGARITHMIC:
        return number * math.expm1(width) if width < 700 else math.inf
    return width


def in_words(shift: float, unit: str) -> str:
    """A shift on the scale of `scaled`, in the unit a reader thinks in."""
    if unit in LOGARITHMIC:
        return f"{100 * math.expm1(min(shift, 100)):+.2g}%"
    if unit == "percent":
        return f"{shift:+.2f} points"
    if unit == "fraction":
        return f"{shift:+.4f}"
    return f"{shift:+.4g} {unit}"
