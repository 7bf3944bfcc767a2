"""How far a number is from what needs no model: a tolerance wider than that would let the trivial answer pass."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from pcfg_artifact import cells
from pcfg_artifact.cells import Cell
from pcfg_artifact.verification.families import BEST_LAYER, MODEL, UNTRAINED, scaled

BASELINES = ("right", "left", "random")
UNIGRAM = Cell("optimum", "unigram", "validation")
METRIC = re.compile(r"(sentence|corpus)_f1(_KIM)?")
PRECISION = re.compile(r"(error|sd)$")  # of a number that stands beside it: that a precision is not zero says nothing
# Effects of interventions, by the last words of their names.  No effect is what controls should have, and what may be
# found; so it is the whole effect, that of exact inference and of the positive control, that a limit must not reach.
EFFECT, WHOLE_EFFECT = re.compile(r"(slope( of moved words)?|correlation|agreeing signs|completeness)$"), 1.0
INTERVENTION_TABLES = ("interventions", "intervention_groups", "figure_interventions")
MARGINAL_CONTROLS, MARGINAL = ("table8", "figure_selectivity"), "marginal"
LOSS_TABLES, LOSS_ABOVE_OPTIMUM = ("against_optimum", "optimum_gap", "next_word", "next_word_gap"), "loss above optimum"
ONE_LAYER = 1.5  # a tolerance of more than one layer says nothing about which layer is the best


def distance(cell: Cell, unit: str, values: Mapping[Cell, float]) -> float:
    """Distance from the nearest trivial answer, on the scale of `scaled`; infinite where no such answer is known.

    `values` are the numbers of the run or record that the cell belongs to.
    """
    here = scaled(values.get(cell, math.nan), unit)
    if any(PRECISION.search(name) for name in (cell.row, cell.column)):
        return math.inf
    if _is_effect(cell):
        return abs(WHOLE_EFFECT - here)
    answers = [abs(here - scaled(values[answer], unit)) for answer in _answers(cell, unit) if answer in values]
    if answers:
        return min(answers)
    if unit == "nats" and (cell.table in LOSS_TABLES or cell.row.endswith(LOSS_ABOVE_OPTIMUM)):
        return abs(_unigram_excess(cell.row.split()[0], values) - here)
    if cell.table == "loss_curve":  # how far the whole curve gets from the unigram loss
        lowest = min(number for other, number in values.items() if other[:2] == cell[:2])
        return abs(math.log(values[UNIGRAM]) - lowest) if UNIGRAM in values else math.inf
    if cell.table == BEST_LAYER:
        return ONE_LAYER
    # zero correlation, zero selectivity, no span found, a head that looks at itself
    return abs(here) if unit in ("percent", "fraction", "nats", "tokens") else math.inf


def _unigram_excess(model: str, values: Mapping[Cell, float]) -> float:
    """The loss of a unigram model above the optimum, in nats, on the words that the model was tried on."""
    for cell_of in (cells.next_word, lambda model, column: cells.against_optimum(model, "mask 0.15", column)):
        exact, unigram = (values.get(cell_of(model, column), math.nan) for column in ("exact", "unigram"))
        if exact > 0:
            return math.log(unigram / exact)
    return math.nan


def _is_effect(cell: Cell) -> bool:
    """Whether a number is the effect of an intervention; in the figure of dynamics the row says so."""
    return ((cell.table in INTERVENTION_TABLES and EFFECT.search(cell.column) is not None)
            or (cell.table == "figure_dynamics" and EFFECT.search(cell.row) is not None))


def _answers(cell: Cell, unit: str) -> list[Cell]:
    """The cells that hold the trivial answers to what a cell measures."""
    table, row, column = cell
    if table in MARGINAL_CONTROLS and row.endswith(cells.CONTROL):  # words alone say little: far below its task
        return [Cell(table, row.removesuffix(cells.CONTROL) + MARGINAL, column)]
    if (UNTRAINED in f"{row} {column}" or "unigram" in (row, column) or row.endswith(cells.CONTROL)
            or (table == "figure_layers" and column == "L0")):
        return []  # it is such an answer itself
    if unit == "perplexity":
        return [Cell(table, row, "unigram") if table == "against_optimum" else UNIGRAM]
    if table == "table6" and not row.endswith("selectivity"):
        return [Cell(table, cells.control_row(row.split(" ", 1)[0], cells.CONTROL), column)]
    if table == "table4" and MODEL.match(column):
        probe, setting, metric = row.split(" ")
        return [cells.layer_score(column, probe, setting, cells.TREES, metric, 0), *_baselines(row)]
    if unit == "percent" and METRIC.search(row) and table in ("figure_layers", "spread") and column != "sd":
        return _baselines(row)
    if unit == "percent" and METRIC.match(column) and table.removesuffix("_novm") in ("table1", "table2", "ablation"):
        return _baselines(column)
    return []


def _baselines(name: str) -> list[Cell]:
    metric = METRIC.search(name)
    setting = "PCFG" if "PCFG" in name.split() else "PTB"
    return [cells.parser_score(baseline, setting, metric.group()) for baseline in BASELINES] if metric else []
