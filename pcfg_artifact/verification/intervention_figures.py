"""Figures beyond the paper: what interventions do at every layer, and what a model has learned at every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.cells import LAYER, STEP, natural
from pcfg_artifact.roles import Roles
from pcfg_artifact.verification.drawing import MARKERS, SERIES, Drawing, colour, finish, new_figure, styled
from pcfg_artifact.verification.measured import Tables, Value

SLOPE = "slope"
# Panels of the learning curves: title -> the beginnings of the quantities that it shows.
PANELS = {"loss above optimum (nats)": ("loss above optimum",), "F1 of the tree": ("tree F1",),
          "correlation of marginals": ("marginals",), "attended distance (words)": ("attended distance",),
          "slope of interventions": ("intervention slope", "random direction slope")}


@styled
def interventions(tables: Tables, roles: Roles) -> Drawing | None:
    rows = tables.get("figure_interventions", {})
    ways: dict[str, list[tuple[int, float, float]]] = {}
    for row, columns in rows.items():
        *_, layer = row.rsplit(" ", 1)
        name = row.removesuffix(f" {layer}")
        index = LAYER.index(layer)
        if roles.base is not None and name.startswith(f"{roles.base} ") and index is not None and SLOPE in columns:
            error = columns.get(cells.error_of(SLOPE))
            ways.setdefault(name.removeprefix(f"{roles.base} "), []).append(
                (index, columns[SLOPE].number, 0.0 if error is None else error.number))
    if not ways:
        return None
    figure, [[axis]] = new_figure(7.2, 3.4)
    for index, (way, points) in enumerate(ways.items()):
        layers, slopes, errors = map(list, zip(*sorted(points), strict=True))
        shift = 0.06 * (index - len(ways) / 2)
        axis.errorbar(np.array(layers) + shift, slopes, yerr=errors, label=way, capsize=2,
                      color=colour(SERIES[index % len(SERIES)]), marker=MARKERS[index % len(MARKERS)])
    axis.axhline(0.0, color=colour("muted"), linewidth=1.0)
    axis.set(xlabel="layer whose states are changed (0: embeddings)", ylabel="slope: model's change per exact change")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))  # beside the panel, where no curve is
    return finish(figure, "interventions", "What the model does when it is told that words belong together",
                  "The states of a span's first and last word are changed so that a probe reads 'one phrase', or 'no "
                  "phrase'; the layers above then predict masked words elsewhere in the sentence. 1 would be the "
                  "change that the grammar calls for, 0 none. Bars: one standard error over sentences. A random "
                  "direction, the control task and spans of other sentences are controls; after the last layer nothing "
                  "can travel.")


@styled
def dynamics(tables: Tables, roles: Roles) -> Drawing | None:
    rows = tables.get("figure_dynamics", {})
    models = [model for model in roles.followed if any(cells.has_model(row, model) for row in rows)]
    if not models:
        return None
    figure, axes = new_figure(7.2, 1.6 * len(PANELS), len(PANELS), len(models), sharex=True, sharey="row")
    for row_of_axes, (title, beginnings) in zip(axes, PANELS.items(), strict=True):
        for axis, model in zip(row_of_axes, models, strict=True):
            _draw_curves(axis, {row.removeprefix(f"{model} "): columns for row, columns in rows.items()
                                if cells.has_model(row, model)}, beginnings)
            axis.set(title=f"{model}: {title}", xscale="log")
        handles, labels = row_of_axes[0].get_legend_handles_labels()
        if len(labels) > 1:  # beside the panels, where no curve is
            row_of_axes[-1].legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for axis in axes[-1]:
        axis.set_xlabel("training step + 1")
    return finish(figure, "dynamics", f"What {' and '.join(models)} learned at every step",
                  "One axis of training steps for all: how far a model is from the best possible prediction (of masked "
                  "words; of the next word for a causal model, whose name begins with C), how much of the tree and of "
                  "span marginals a linear probe reads from one layer (a causal model is asked for marginals given the "
                  "words up to the span's end), how far the heads of each layer look, and whether changing what the "
                  "probe reads changes predictions as exact inference would, which is asked of masked words only. "
                  "Bars: one standard error over sentences.")


def _draw_curves(axis: Any, rows: Mapping[str, Mapping[str, Value]], beginnings: tuple[str, ...]) -> None:
    """The quantities of one panel against the step, with their errors where there are any."""
    shown = [row for row in sorted(rows, key=natural) if row.startswith(beginnings) and not row.endswith("error")]
    for index, row in enumerate(shown):
        steps, values = _curve(rows[row])
        errors = dict(zip(*_curve(rows.get(cells.error_of(row), {})), strict=True))
        axis.errorbar([step + 1 for step in steps], values, yerr=[errors.get(step, 0.0) for step in steps], capsize=2,
                      color=colour(SERIES[index % len(SERIES)]), marker=MARKERS[index % len(MARKERS)],
                      label=row.removeprefix("marginals ").removeprefix("attended distance ").removesuffix(f" {SLOPE}"))
    if not shown:
        axis.text(0.5, 0.5, "not defined", transform=axis.transAxes, ha="center", va="center", color=colour("muted"))


def _curve(columns: Mapping[str, Value]) -> tuple[list[int], list[float]]:
    found = sorted((step, value.number) for column, value in columns.items()
                   if (step := STEP.index(column)) is not None)
    return [step for step, _ in found], [value for _, value in found]
