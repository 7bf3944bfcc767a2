"""The tables of docs/INTERVENTIONS.md that follow from the record: effects, their controls, and what comes when."""

from __future__ import annotations

from pcfg_artifact import cells
from pcfg_artifact.cells import LAYER, Cell, natural
from pcfg_artifact.roles import find_roles, untrained
from pcfg_artifact.verification.expectations import Record
from pcfg_artifact.verification.recorded_tables import over_seeds, table

SLOPE, SIGNS, HALF_WAY = "slope", "agreeing signs", "half-way step"


def intervention_tables(record: Record) -> dict[str, str]:
    """Name of a table on the page -> the table."""
    roles = find_roles(record.units)
    if roles.base is None:
        return {}
    return {"effects": effects_table(record, roles.base), "effects by layer": layers_table(record, roles.base),
            "half-way": half_way_table(record, roles.followed)}


def effects_table(record: Record, base: str) -> str:
    """Every way of changing states at the middle layer, trained and untrained, and the positive control."""
    rows = sorted({cell.row for cell in record.units if cell.table == "interventions" and cell.column == SLOPE},
                  key=natural)
    kept = [row for row in rows if row.startswith((f"{base} ", f"{untrained(base)} ", cells.CONSTRUCTED))]
    return table(["way", SLOPE, "its standard error", SIGNS],
                 [[row, *(over_seeds(record, Cell("interventions", row, column), form) for column, form in (
                     (SLOPE, ".4f"), (cells.error_of(SLOPE), ".4f"), (SIGNS, ".3f")))] for row in kept])


def layers_table(record: Record, base: str) -> str:
    """Slope and its standard error at every layer of the base model; above the last one nothing is."""
    of_base = {cell.row.removeprefix(f"{base} ") for cell in record.units
               if cell.table == "figure_interventions" and cells.has_model(cell.row, base)}
    ways = sorted({row.rsplit(" ", 1)[0] for row in of_base})
    last = max((layer for row in of_base if (layer := LAYER.index(row.rsplit(" ", 1)[1])) is not None), default=-1)
    rows = []
    for layer in range(last + 1):
        effects = [[cells.intervention_by_layer(base, way, layer, column) for column in (SLOPE, cells.error_of(SLOPE))]
                   for way in ways]
        rows.append([LAYER(layer), *(" / ".join(f"{values[slope]:.4f} ± {values[error]:.4f}" for values in map(
            record.by_seed.__getitem__, record.seeds)) for slope, error in effects)])
    return table(["layer", *ways], rows)


def half_way_table(record: Record, followed: tuple[str, ...]) -> str:
    """The step at which a quantity has gone half of its way."""
    quantities = sorted({cell.row.split(" ", 1)[1] for cell in record.units if cell.column == HALF_WAY}, key=natural)
    return table(["", *followed], [[quantity, *(over_seeds(record, cells.half_way(model, quantity), ",.0f")
                                                for model in followed)] for quantity in quantities])
