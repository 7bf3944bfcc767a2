"""The paper's figures, redrawn from measured cells.  A figure whose cells were not measured is not drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.cells import (
    LAYER,
    OUT_OF_DISTRIBUTION,
    RANK,
    SAMPLED,
    SENTENCE_F1,
    SPAN_LENGTH,
    SPAN_WIDTH,
    TREEBANK,
    Cell,
    Indexed,
    natural,
)
from pcfg_artifact.roles import Roles
from pcfg_artifact.verification.drawing import MARKERS, SERIES, Drawing, colour, finish, new_figure, styled
from pcfg_artifact.verification.intervention_figures import dynamics, interventions
from pcfg_artifact.verification.measured import Tables, Value

DRAWN_SETTINGS = (SAMPLED, TREEBANK, OUT_OF_DISTRIBUTION)  # in the paper's order
TEXTS = {SAMPLED: "sampled text", TREEBANK: "treebank text"}
LENGTH = "span length"


def _points(row: Mapping[str, Value], names: Indexed) -> tuple[list[int], list[float]]:
    """Columns such as L0, L1, … or l=2, l=3, … as x, and their values as y."""
    found = sorted((x, value.number) for column, value in row.items() if (x := names.index(column)) is not None)
    return [x for x, _ in found], [y for _, y in found]


def _probes(tables: Tables) -> tuple[str, ...]:
    return cells.probes_in(Cell("table4", row, "") for row in tables.get("table4", {}))


def _line(axis: Any, x: list[int], y: list[float], index: int, label: str, **options: Any) -> None:
    name = SERIES[index % len(SERIES)]
    axis.plot(x, y, color=colour(name), marker=MARKERS[index % len(MARKERS)], label=label, **options)


@styled
def frequency(tables: Tables, roles: Roles) -> Drawing | None:
    rows = tables.get("figure_frequency", {})
    figure, [[axis]] = new_figure(6.4, 2.9)
    drawn = False
    for index, (kind, label) in enumerate((("interminal", "in-terminals"), ("preterminal", "pre-terminals"))):
        shares = {row: columns[cells.MAIN_VARIANT] for row, columns in rows.items() if cells.MAIN_VARIANT in columns}
        ranks, values = _points(shares, RANK[kind])
        if ranks:
            drawn = True
            axis.plot(ranks, values, color=colour(SERIES[index]), label=f"{label} ({len(ranks)})")
    if not drawn:
        return None
    axis.set(xscale="log", yscale="log", xlabel="rank", ylabel="share of nodes")
    axis.legend()
    return finish(figure, "frequency", "Frequency of non-terminals",
                  "Share of tree nodes by rank, in the binarised training trees. A small number of symbols carries "
                  "most of the mass, which is why restricting the algorithm to them can work.")


@styled
def loss_curves(tables: Tables, roles: Roles) -> Drawing | None:
    rows = tables.get("loss_curve", {})
    models = [m for m in roles.models if m in rows]
    if not models:
        return None
    figure, [axes] = new_figure(7.2, 3.0, 1, 2, sharey=True)
    for axis, part in zip(axes, ("training", "validation"), strict=True):
        for index, model in enumerate(models):
            points = sorted((step, value.number) for column, value in rows[model].items()
                            if (step := cells.curve_step(column, part)) is not None)
            if points:
                axis.plot(*zip(*points, strict=True), color=colour(SERIES[index % len(SERIES)]), label=model)
        axis.set(title=part, xlabel="step", ylabel="loss (nats per masked word)" if part == "training" else "")
    floor = cells.loss_floor()
    if optimum := rows.get(floor.row, {}).get(floor.column):
        axes[1].axhline(optimum.number, color=colour("ink"), linestyle="--", linewidth=1.2, label="exact optimum")
    axes[1].legend()
    return finish(figure, "loss_curves", "Loss curves, with the exact optimum as floor",
                  "Masked-word loss while pre-training, under the profile's own masks. The dashed line is what the "
                  "Inside-Outside algorithm reaches under these masks on the sentences of the table of models beside "
                  "the optimum, which compares word by word: there no model can be better.")


@styled
def optimum_gap(tables: Tables, roles: Roles) -> Drawing | None:
    rows = tables.get("optimum_gap", {})
    models = [m for m in roles.models if any(cells.has_model(row, m) for row in rows)]
    if not models:
        return None
    figure = draw_gaps(rows, models, {"entropy": "entropy of the exact answer (nats)",
                                      "depth": "depth of the word in its tree"}, cells.optimum_gap)
    return finish(figure, "optimum_gap", "How far each model is from the optimum, and where",
                  "Divergence of the model's answer from the exact one at masked words, by how uncertain the exact "
                  "answer is and by how deep the word lies. Zero would be the Bayes-optimal masked language model.")


def draw_gaps(rows: Mapping[str, Mapping[str, Value]], models: Sequence[str], kinds: Mapping[str, str],
              cell_of: Callable[[str, str, str], Cell]) -> Any:
    """A figure of KL(exact || model): an axis for each kind of circumstance (-> its label), a line for each model."""
    figure, [axes] = new_figure(7.2, 3.0, 1, len(kinds), sharey=True)
    for axis, (kind, label) in zip(axes, kinds.items(), strict=True):
        groups = cells.gap_labels(rows, kind)
        for index, model in enumerate(models):
            wanted = [cell_of(model, cells.gap_group(kind, group), "kl") for group in groups]
            found = [rows.get(cell.row, {}).get(cell.column) for cell in wanted]
            axis.plot(groups, [np.nan if cell is None else cell.number for cell in found], label=model,
                      color=colour(SERIES[index % len(SERIES)]), marker=MARKERS[index % len(MARKERS)])
        axis.set(xlabel=label, ylabel="KL(exact || model) in nats" if axis is axes[0] else "", ylim=(0, None))
    axes[0].legend()
    return figure


@styled
def f1_by_layer(tables: Tables, roles: Roles) -> Drawing | None:
    rows = tables.get("figure_layers", {})
    figure, [axes] = new_figure(7.2, 3.0, 1, 2, sharey=True)
    drawn = False
    for axis, (setting, text) in zip(axes, TEXTS.items(), strict=True):
        for index, model in enumerate(roles.models):
            row = rows.get(cells.layer_row(model, cells.TREE_PROBE, setting.name, cells.TREES, SENTENCE_F1))
            if row:
                drawn = True
                _line(axis, *_points(row, LAYER), index, model)
        axis.set(title=text, xlabel="layer", ylabel="sentence F1" if setting == SAMPLED else "")
        axis.xaxis.get_major_locator().set_params(integer=True)
    if not drawn:
        return None
    axes[1].legend()
    return finish(figure, "f1_by_layer", "Parsing F1 by layer and model",
                  "Linear probe that reads a word and EOS. Layer 0 holds the embeddings before any attention.")


@styled
def probe_comparison(tables: Tables, roles: Roles) -> Drawing | None:
    rows = tables.get("figure_layers", {})
    if not rows or roles.base is None:
        return None
    figure, [axes] = new_figure(7.2, 2.8, 1, 2, sharey=True)
    drawn = False
    for axis, task in zip(axes, (cells.TREES, cells.ADJACENT_TREES), strict=True):
        for index, probe in enumerate(_probes(tables)):
            for position, setting in enumerate(DRAWN_SETTINGS):
                row = rows.get(cells.layer_row(roles.base, probe, setting.name, task, SENTENCE_F1))
                if not row or LAYER(0) not in row:
                    continue
                drawn = True
                _, y = _points(row, LAYER)
                place = position + 0.24 * (index - 0.5)
                axis.plot([place, place], [y[0], max(y)], color=colour(SERIES[index]), linewidth=2.4, alpha=0.45)
                axis.plot(place, y[0], marker="o", markersize=6, markerfacecolor=colour("paper"),
                          color=colour(SERIES[index]), linestyle="none",
                          label=f"{probe}, layer 0" if position == 0 else None)
                axis.plot(place, max(y), marker="o", markersize=6, color=colour(SERIES[index]), linestyle="none",
                          label=f"{probe}, best layer" if position == 0 else None)
        is_first = task == cells.TREES
        axis.set(title="word and EOS" if is_first else "three adjacent words", xticks=range(3),
                 xticklabels=[setting.name for setting in DRAWN_SETTINGS], ylabel="sentence F1" if is_first else "",
                 xlim=(-0.5, 2.5))
        axis.grid(axis="x", visible=False)
    if not drawn:
        return None
    axes[1].legend(loc="lower left")
    return finish(figure, "eos_and_adj", "What a probe reads: word and EOS, or adjacent words",
                  f"From layer 0 (open) to the best layer (filled) of {roles.base}. Adjacent words give much of the "
                  f"tree without any context, so that probe says less about the model.")


@styled
def marginals(tables: Tables, roles: Roles) -> Drawing | None:
    rows = tables.get("figure_marginals", {})
    if not rows or roles.base is None:
        return None
    last = roles.layers(roles.base)
    figure, [axes] = new_figure(7.2, 3.4, 1, 2, sharey=True)
    for index, probe in enumerate(_probes(tables)):
        for layer, style in ((last, "-"), (0, ":")):
            row = rows.get(cells.marginal_row(roles.base, probe, TREEBANK.name, layer, "pearson"))
            if row:
                _line(axes[0], *_points(row, SPAN_LENGTH), index, f"{probe}, layer {layer}", linestyle=style)
    for index, setting in enumerate(DRAWN_SETTINGS):
        row = rows.get(cells.marginal_row(roles.base, cells.MARGINAL_PROBE, setting.name, last, "pearson"))
        if row:
            _line(axes[1], *_points(row, SPAN_LENGTH), index, setting.name)
    axes[0].set(title="probes, treebank text", xlabel=LENGTH, ylabel="Pearson correlation")
    axes[1].set(title=f"settings, {cells.MARGINAL_PROBE} probe, last layer", xlabel=LENGTH)
    for axis in axes:
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncol=2)
    return finish(figure, "marginals", "Span marginals recovered from the representations",
                  f"Correlation between predicted and exact normalised marginals, {roles.base}.")


@styled
def scatter(points: Mapping[str, Any]) -> Drawing:
    """`points`: {"model", "layer", "lengths": {length: {"true", "predicted", "slope", "intercept"}}}."""
    lengths = sorted(points["lengths"], key=int)
    figure, [axes] = new_figure(7.2, 2.7, 1, len(lengths), sharey=True)
    for axis, length in zip(axes, lengths, strict=True):
        part = points["lengths"][length]
        axis.plot(part["true"], part["predicted"], linestyle="none", marker="o", markersize=3, alpha=0.5,
                  color=colour("c1"), markeredgewidth=0)
        ends = np.array([0.0, 1.0])
        if part["slope"] is not None:
            axis.plot(ends, part["slope"] * ends + part["intercept"], color=colour("c2"))
        axis.set(title=f"length {length}", xlabel="exact marginal", xlim=(-0.03, 1.03),
                 ylabel="predicted" if length == lengths[0] else "")
    return finish(figure, "scatter", "Predicted and exact marginals, span by span",
                  f"2-layer probe, layer {points['layer']} of {points['model']}; up to 200 spans of the test set, and "
                  f"the best line through all of them.")


@styled
def attention(tables: Tables, roles: Roles) -> Drawing | None:
    rows = tables.get("figure_attention", {})
    models = [m for m in roles.models if any(cells.has_model(row, m) for row in rows)]
    if not models or roles.base is None:
        return None
    # As in the paper: the models that share the base's number of heads and have more than one layer.
    shown = [m for m in models if roles.heads(m) == roles.heads(roles.base) and roles.layers(m) > 1] or models
    figure, axes = new_figure(7.2, 2.3 * len(shown), len(shown), 2, sharey="row", sharex="row")
    for line, model in zip(axes, reversed(shown), strict=True):
        for axis, (setting, text) in zip(line, TEXTS.items(), strict=True):
            for layer in range(1, roles.layers(model) + 1):
                row = rows.get(cells.attention_row(model, setting.name, layer), {})
                distances = [row[c].number for c in sorted(row, key=natural)]
                offsets = np.linspace(-0.3, 0.3, len(distances)) if len(distances) > 1 else [0.0]
                axis.plot(layer + np.asarray(offsets), distances, linestyle="none", marker="o", markersize=3,
                          color=colour("c1" if setting == SAMPLED else "c2"))
            axis.set(title=f"{model}, {text}", xlabel="layer" if model == shown[0] else "",
                     ylabel="distance" if setting == SAMPLED else "")
            axis.xaxis.get_major_locator().set_params(integer=True)
    return finish(figure, "attention", "Average attended distance of every head",
                  "One dot a head, sorted within its layer; distance in words.")


@styled
def f1_by_width(tables: Tables, roles: Roles) -> Drawing | None:
    rows = tables.get("f1_by_length", {})
    labels = {cells.exact_row(TREEBANK.name): "Inside-Outside"}
    if roles.base is not None:
        labels |= {cells.fit_row(roles.base, probe, TREEBANK.name): f"{roles.base} {probe}"
                   for probe in _probes(tables)}
    shown = {row: label for row, label in labels.items() if row in rows}
    if not shown:
        return None
    figure, [[axis]] = new_figure(6.4, 2.8)
    for index, (row, label) in enumerate(shown.items()):
        _line(axis, *_points(rows[row], SPAN_WIDTH), index, label)
    axis.set(xlabel="span width (words)", ylabel="F1")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend()
    return finish(figure, "f1_by_width", "Parsing F1 by span width",
                  "Whole-tree F1 is dominated by short spans; this shows where each parser loses.")


FIGURES: tuple[Callable[[Tables, Roles], Drawing | None], ...] = (
    frequency, loss_curves, optimum_gap, f1_by_layer, probe_comparison, marginals, attention, f1_by_width,
    interventions, dynamics)
