"""Numbers that follow from measured ones: the paper's percentages, and the sensitivity of its probes."""

from __future__ import annotations

import itertools

from pcfg_artifact import cells
from pcfg_artifact.cells import CORPUS_F1, LAYER, SENTENCE_F1, TREEBANK, TREES, Cell
from pcfg_artifact.roles import Roles
from pcfg_artifact.verification.measured import Measured, Value

VARIANTS = ("vm", "novm")
# row of `percentages` -> the table that holds it
APPROXIMATIONS = {**{cells.few_symbols(n, 45): "table1" for n in (40, 20, 10)}, cells.low_rank(15, 20, 45): "table2"}
# column that is compared -> (column of `percentages`, sign of a cost)
COSTS = {"perplexity": ("perplexity_increase", 1), SENTENCE_F1: ("sentence_f1_drop", -1),
         CORPUS_F1: ("corpus_f1_drop", -1)}


def derive(measured: Measured, roles: Roles) -> dict[Cell, Value]:
    """The derived cells whose parts were measured; a missing part leaves its cell out, and that is never a match."""
    return {**percentages(measured), **sensitivity(measured, roles)}


def percentages(measured: Measured) -> dict[Cell, Value]:
    """What each approximation costs against the exact algorithm, in percent of the exact value."""
    found = {}
    for variant, (row, table) in itertools.product(VARIANTS, APPROXIMATIONS.items()):
        for column, (cost, sign) in COSTS.items():
            exact, approximate = (measured.get(Cell(cells.approximation_table(name, variant), what, column))
                                  for name, what in (("table1", cells.EXACT), (table, row)))
            if exact is not None and approximate is not None and exact.number:
                change = 100 * sign * (approximate.number / exact.number - 1)
                found[cells.percentage(row, cost, variant)] = Value(change, "percent")
    return found


def sensitivity(measured: Measured, roles: Roles) -> dict[Cell, Value]:
    """How much a probe gains over layer 0 (sensitivity), beside how much it beats its control task (selectivity).

    Parsing: sentence F1 of the best layer less layer 0; selectivity of accuracy at its best layer.  Marginals, per
    span length: Pearson correlation of the last layer less layer 0; selectivity at the last layer.  Treebank text.
    """
    if roles.base is None:
        return {}
    found: dict[Cell, Value] = {}
    for probe in cells.probes_in(measured):
        found |= parsing_sensitivity(measured, roles.base, probe)
        found |= marginal_sensitivity(measured, roles.base, roles.layers(roles.base), probe)
    return found


def parsing_sensitivity(measured: Measured, base: str, probe: str) -> dict[Cell, Value]:
    found = {}
    layers = _row(measured, "figure_layers", cells.layer_row(base, probe, TREEBANK.name, TREES, SENTENCE_F1))
    if LAYER(0) in layers and len(layers) > 1:
        gain = max(layers.values()) - layers[LAYER(0)]
        found[cells.parsing_sensitivity(probe, "sensitivity")] = Value(gain, "percent")
    selectivity = _row(measured, "table6", cells.control_row(probe, cells.SELECTIVITY))
    if selectivity:
        found[cells.parsing_sensitivity(probe, "selectivity")] = Value(max(selectivity.values()), "fraction")
    return found


def marginal_sensitivity(measured: Measured, base: str, last_layer: int, probe: str) -> dict[Cell, Value]:
    found = {}
    first, last = (_row(measured, "figure_marginals", cells.marginal_row(base, probe, TREEBANK.name, layer, "pearson"))
                   for layer in (0, last_layer))
    for length, selectivity in _row(measured, "table8", cells.control_row(probe, cells.SELECTIVITY)).items():
        if length in first and length in last:
            gain = last[length] - first[length]
            found[cells.marginal_sensitivity(probe, length, "sensitivity")] = Value(gain, "fraction")
        found[cells.marginal_sensitivity(probe, length, "selectivity")] = Value(selectivity, "fraction")
    return found


def _row(measured: Measured, table: str, row: str) -> dict[str, float]:
    return {cell.column: value.number for cell, value in measured.items() if cell.table == table and cell.row == row}
