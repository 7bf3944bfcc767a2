"""Numbers that follow from measured ones: the paper's percentages, and the sensitivity of its probes."""

from __future__ import annotations

import itertools

from pcfg_artifact.verification.cells import Cell, Measured, Roles, Value

# row of `percentages` -> the table that holds it
APPROXIMATIONS = {"I=40,P=45": "table1", "I=20,P=45": "table1", "I=10,P=45": "table1", "k=15,I=20,P=45": "table2"}
PROBES = ("linear", "2-layer")


def derive(measured: Measured, roles: Roles) -> dict[Cell, Value]:
    """The derived cells whose parts were measured; a missing part leaves its cell out, and that is never a match."""
    return {**percentages(measured), **sensitivity(measured, roles)}


def percentages(measured: Measured) -> dict[Cell, Value]:
    """What each approximation costs against the exact algorithm, in percent of the exact value."""
    found = {}
    for variant, (row, table) in itertools.product(("", "_novm"), APPROXIMATIONS.items()):
        for metric, name, sign in (("perplexity", "perplexity_increase", 1), ("sentence_f1", "sentence_f1_drop", -1),
                                   ("corpus_f1", "corpus_f1_drop", -1)):
            exact, approximate = (measured.get(Cell(t + variant, r, metric))
                                  for t, r in (("table1", "exact"), (table, row)))
            if exact is not None and approximate is not None and exact.number:
                change = 100 * sign * (approximate.number / exact.number - 1)
                found[Cell(f"percentages{variant}", row, name)] = Value(change, "percent")
    return found


def sensitivity(measured: Measured, roles: Roles) -> dict[Cell, Value]:
    """How much a probe gains over layer 0 (sensitivity), beside how much it beats its control task (selectivity).

    Parsing: sentence F1 of the best layer less layer 0; selectivity of accuracy at its best layer.  Marginals, per
    span length: Pearson correlation of the last layer less layer 0; selectivity at the last layer.  Treebank text.
    """
    base = roles.base
    if base is None:
        return {}
    found = {}
    for probe in PROBES:
        layers = _row(measured, "figure_layers", f"{base} {probe} PTB EOS sentence_f1")
        selectivity = _row(measured, "table6", f"{probe} selectivity")
        if "L0" in layers and len(layers) > 1:
            gain = max(layers.values()) - layers["L0"]
            found[Cell("sensitivity", f"{probe} parsing", "sensitivity")] = Value(gain, "percent")
        if selectivity:
            found[Cell("sensitivity", f"{probe} parsing", "selectivity")] = Value(max(selectivity.values()), "fraction")
        first = _row(measured, "figure_marginals", f"{base} {probe} PTB L0 pearson")
        last = _row(measured, "figure_marginals", f"{base} {probe} PTB L{roles.layers(base)} pearson")
        selectivity = _row(measured, "table8", f"{probe} selectivity")
        for length in selectivity:
            row = f"{probe} marginals {length}"
            if length in first and length in last:
                found[Cell("sensitivity", row, "sensitivity")] = Value(last[length] - first[length], "fraction")
            found[Cell("sensitivity", row, "selectivity")] = Value(selectivity[length], "fraction")
    return found


def _row(measured: Measured, table: str, row: str) -> dict[str, float]:
    return {cell.column: value.number for cell, value in measured.items() if cell.table == table and cell.row == row}
