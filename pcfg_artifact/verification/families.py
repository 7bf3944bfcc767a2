"""Families: the cells that measure one thing of one model, so that they scatter alike; never of two models."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from pcfg_artifact.cells import STANDARD_ERROR, Cell

# Stages without training: at the same seed they give the same numbers on every machine, to rounding.
EXACT_STAGES = ("grammar", "sample", "marginals", "approximate", "construct")
# What verify computes from other numbers rests on the stage of its parts.
DERIVED_STAGES = {"percentages": "approximate", "percentages_novm": "approximate", "sensitivity": "control",
                  "near_zero": "marginals"}

UNTRAINED = "-random"  # the end of the name of a model before its training
MODEL = re.compile(rf"[AC]\d+L\d+({UNTRAINED})?$")
# What may differ between the cells of a family: layers, steps, heads, span lengths, masking rates, settings.
INDEX = re.compile(r"(L\d+|l=\d+|\d[\d.]*(-\d+)?|PCFG|PTB|OOD|step|head|layer|mask|corrupt)$")
LAYER = re.compile(r"L\d+$")
NUMBER = re.compile(r"\d+")
PROBES = ("linear", "2-layer")
SCORE = re.compile(r"(sentence|corpus)_f1\w*$")  # in whatever convention
LOSSES = {"training", "validation", "training_perplexity", "validation_perplexity", "model", "excess", "kl"}
# What a table does not repeat in every row; EOS is what all tables but one read.
PROBE_OF, MEASURE_OF = {"table7": "2-layer"}, {"table4": "EOS F1", "spread": "EOS F1", "table5": "pearson"}
CONTROL_STAGE, PARSING_CONTROL = "control", "table6"
LOW_RANK_MODEL = "low rank"
BY_WIDTH = "f1_by_length"  # two spans of twenty words scatter more than a hundred of two: its widths stay apart
BEST_LAYER = "best_layer"
BY_KIND_OF_WORD = "optimum_gap"  # one model's loss above the optimum, divided up in several ways
# Effects of an intervention by group, by layer and by step, each measured on some dozens of questions.
EFFECTS_OF_FEW = re.compile(r"intervention_groups|figure_interventions|figure_dynamics .*slope")
# Rows that rest on eigenvectors: where two eigenvalues are close, another machine may take another one.
LOW_RANK = re.compile(r"(^|[ ,])k=\d+|low_rank")


class Family(NamedTuple):
    """Cells of one model (empty: of none) that measure the same thing, in whatever table; they scatter alike."""

    model: str
    stage: str
    measure: str
    scale: str
    is_divided: bool = False

    @property
    def kin(self) -> tuple[str, str, str, bool]:
        """Families of one model, stage and scale: they move together alike, and have equally long tails.  Numbers that
        few spans or words decide have longer ones."""
        return self.model, self.stage, self.scale, self.is_divided


class Part(NamedTuple):
    """The part of a table whose mean is judged: one model and measure, all settings, layers, widths and probes."""

    table: str
    model: str
    measure: str
    unit: str


def family(cell: Cell, unit: str, stage: str, base: str) -> Family:
    """The family of a cell.  Numbers of trained models that name none are of the `base` model."""
    scale = "nats" if unit == "perplexity" else unit
    if is_low_rank(cell):  # a model of its own; a number alone is stable until it jumps, so a table's go together
        return Family(LOW_RANK_MODEL, stage, cell.table, scale)
    model, words = _words(cell)
    model = model or (base if is_trained(stage) else "")
    if cell.table == BY_WIDTH:  # few spans are wide: half as wide again, another family; probes are alike in that
        half_octave = int(2 * math.log2(int(cell.column.split()[-1])))
        return Family(model, stage, f"F1 of width {math.ceil(2 ** (half_octave / 2))} and more", scale, is_divided=True)
    if not model or unit == "count":  # no model to tell apart by: rows of one column go together
        return Family(model, stage, f"{cell.table} {_folded(cell.column.split()[-1])}", scale)
    return Family(model, stage, _measure(cell, stage, words), scale, is_divided(cell))


def of_layer(of: Family, cell: Cell) -> Family:
    """The part of a family that is of one layer.  Over seeds layers scatter unlike: layer 0 hardly moves, and a first
    layer that some seeds teach to parse and others do not moves the most."""
    layer = next(filter(LAYER.match, f"{cell.row} {cell.column}".split()), "")
    return of._replace(measure=f"{of.measure} {layer}".rstrip())


def _measure(cell: Cell, stage: str, words: list[str]) -> str:
    """What a number of a model measures; the scores of trees are one measure, and so are all losses."""
    probe = PROBE_OF.get(cell.table) or next((word for word in words if word in PROBES), "")
    rest = [word for word in words if word not in PROBES]
    if cell.table == BY_KIND_OF_WORD:
        return f"{cell.table} {cell.column}"
    if stage == CONTROL_STAGE:
        return f"{probe} {'parsing' if cell.table == PARSING_CONTROL or 'parsing' in rest else 'marginals'}"
    if LOSSES.issuperset(rest):
        return "loss"
    if cell.table in MEASURE_OF and _words(cell)[0] and "sd" not in rest:  # a model's number, not a baseline's
        rest = [MEASURE_OF[cell.table]]
    return " ".join([probe, *map(_folded, rest)])


def _folded(word: str) -> str:
    return "F1" if SCORE.match(word) else word


def part(cell: Cell, unit: str) -> Part:
    """The part of its table that a cell belongs to."""
    model, words = _words(cell)
    if is_low_rank(cell):
        words = ["low_rank", cell.column]
    if cell.table in (BY_WIDTH, BY_KIND_OF_WORD):
        words = cell.column.split() if cell.table == BY_KIND_OF_WORD else []
    return Part(cell.table, model, " ".join(word for word in words if word not in PROBES), unit)


def siblings(cell: Cell) -> tuple[str, ...]:
    """A name that a cell shares with those that differ from it in an index or a convention of scoring alone; not in
    the text that was read: what was measured on the treebank may depend on no seed."""
    return tuple(" ".join(word if MODEL.match(word) else NUMBER.sub("#", _folded(word)) for word in name.split())
                 for name in cell)


def _words(cell: Cell) -> tuple[str, list[str]]:
    """The model that a cell names, and the words of row and column without it and without those that index."""
    words = f"{cell.row} {cell.column}".split()
    model = next((word for word in words if MODEL.match(word)), "")
    return model, [word for word in words if word != model and (word in PROBES or not INDEX.match(word))]


def is_divided(cell: Cell) -> bool:
    """Whether a number is one of many that a score is divided into, so that few spans or words decide it."""
    return cell.table in (BY_WIDTH, BY_KIND_OF_WORD) or EFFECTS_OF_FEW.match(f"{cell.table} {cell.row}") is not None


def is_low_rank(cell: Cell) -> bool:
    return LOW_RANK.search(cell.row) is not None


def is_exact(cell: Cell, stage: str) -> bool:
    """Whether another machine must give the same number to rounding, at the same seed."""
    return stage in EXACT_STAGES and not is_low_rank(cell)


def is_trained(stage: str) -> bool:
    return stage not in EXACT_STAGES


# ---- the scale on which numbers of a unit are compared --------------------------------------------------------------

# A perplexity of 300 scatters three times as far as one of 100.  So do standard errors, down to what counts as none:
# an effect that is exact has one of rounding alone.
LOGARITHMIC = {"perplexity": 0.0, STANDARD_ERROR: 0.0005}  # unit -> added before the logarithm
MOST_TIMES = 10  # a larger factor is only said to be larger


def scaled(number: float, unit: str) -> float:
    """The number on the scale on which its scatter does not depend on its size."""
    if unit in LOGARITHMIC:
        number += LOGARITHMIC[unit]
        return math.log(number) if number > 0 else (-math.inf if number == 0 else math.nan)
    return number


def unscaled_width(number: float, width: float, unit: str) -> float:
    """A width on the scale of `scaled`, as a width around a number: the larger of its two sides."""
    if unit in LOGARITHMIC:
        return (number + LOGARITHMIC[unit]) * math.expm1(width) if width < 700 else math.inf
    return width


def in_words(shift: float, unit: str) -> str:
    """A shift on the scale of `scaled`, in the unit a reader thinks in."""
    if unit in LOGARITHMIC:
        if abs(shift) > math.log(MOST_TIMES):
            return f"more than {MOST_TIMES} times" if shift > 0 else f"less than 1 in {MOST_TIMES}"
        percent = 100 * math.expm1(shift)
        return f"{percent:+.2g}%" if abs(percent) < 99.5 else f"{percent:+.0f}%"
    if unit == "percent":
        return f"{shift:+.2f} points"
    if unit == "fraction":
        return f"{shift:+.4f}"
    return f"{shift:+.4g} {unit}"
