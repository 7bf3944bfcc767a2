"""The paper's figures, redrawn from measured numbers.  A figure whose numbers were not measured is not drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from pcfg_artifact.judge.drawing import (
    SERIES,
    Drawing,
    colour,
    curve,
    finish,
    found,
    new_figure,
    plot,
    styled,
    whole_ticks,
)
from pcfg_artifact.metrics.models import Roles, shape_of, untrained
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import ALL, LAST, Numbers
from pcfg_artifact.metrics.views import grouped
from pcfg_artifact.probing.settings import ADJACENT, EOS, MARGINAL_PROBE, OUT_OF_DISTRIBUTION, SAMPLED, TREEBANK

SETTINGS = (SAMPLED.name, TREEBANK.name, OUT_OF_DISTRIBUTION.name)  # in the paper's order
TEXTS = {SAMPLED.name: "sampled text", TREEBANK.name: "treebank text"}
ANY_LAYER, ANY_WIDTH = {"from": 0}, {"from": 1}
F1 = {"table": "parsing", "convention": "PB", "metric": "sentence_f1"}
WIDTH = "span length"


def drawn_models(metrics: Iterable[Metric], roles: Roles) -> list[str]:
    """The masked models of a run that have numbers, by their size; then models of other kinds, as they come."""
    names = dict.fromkeys(metric.model for metric in metrics)
    return [*(m for m in roles.models if m in names), *(m for m in names if shape_of(m) is None)]


def probes_of(metrics: Iterable[Metric], but: str = "") -> list[str]:
    """The probes of a run as they come, without the one that the paper does not show here, if there are others."""
    probes = list(dict.fromkeys(metric.probe for metric in metrics if metric.probe))
    return [probe for probe in probes if probe != but] or probes


def texts_of(metrics: Sequence[Metric]) -> dict[str, str]:
    """The texts that there are numbers of, by setting."""
    return {setting: text for setting, text in TEXTS.items() if any(metric.setting == setting for metric in metrics)}


@styled
def frequency(numbers: Numbers) -> Drawing | None:
    shares = found(numbers, table="frequency", grammar=ALL, group=ALL, index=ALL, metric="share")
    if not shares:
        return None
    figure, [[axis]] = new_figure(6.4, 2.9)
    of_main = grouped(shares, "grammar")[shares[0].grammar]
    for index, (group, metrics) in enumerate(grouped(of_main, "group").items()):
        axis.plot(*curve(metrics, "index"), color=colour(SERIES[index]), label=f"{group} ({len(metrics)})")
    axis.set(xscale="log", yscale="log", xlabel="rank", ylabel="share of nodes")
    axis.legend()
    return finish(figure, "frequency", "Frequency of non-terminals",
                  "Share of tree nodes by rank, in the binarised training trees. A small number of symbols carries "
                  "most of the mass, which is why restricting the algorithm to them can work.")


@styled
def loss_curves(numbers: Numbers) -> Drawing | None:
    losses = found(numbers, table="loss_curve", model=ALL, group=ALL, step=ALL, metric="loss")
    curves = grouped((metric for metric in losses if metric.step is not None), "group", "model")
    models = drawn_models((metric for metric in losses if metric.step is not None), numbers.roles)
    if not models:
        return None
    figure, [axes] = new_figure(7.2, 3.0, 1, 2, sharey=True)
    for axis, part in zip(axes, ("training", "validation"), strict=True):
        for index, model in enumerate(models):
            if (part, model) in curves:
                axis.plot(*curve(curves[part, model], "step"), color=colour(SERIES[index % len(SERIES)]), label=model)
        axis.set(title=part, xlabel="step", ylabel="loss (nats per masked word)" if part == "training" else "")
    for floor in (metric for metric in losses if metric.step is None):
        is_exact = floor.model == "exact"
        label = "exact optimum" if is_exact else f"best of a {floor.model.replace('_', ' of ')}"
        axes[1].axhline(floor.value, color=colour("ink" if is_exact else "muted"), linestyle="--" if is_exact else ":",
                        linewidth=1.2, label=label)
    axes[1].legend()
    return finish(figure, "loss_curves", "Loss curves, with the exact optimum as floor",
                  "Masked-word loss while pre-training, under the profile's own masks. The dashed line is what the "
                  "Inside-Outside algorithm reaches under these masks on the sentences of the table of models beside "
                  "the optimum, which compares word by word: there no model can be better. Dotted: the best prediction "
                  "from so many words on each side alone.")


@styled
def optimum_gap(numbers: Numbers) -> Drawing | None:
    gaps = found(numbers, table="masked_words", model=ALL, input="mask 0.15", group=ALL, bin=ALL, metric="kl")
    models = drawn_models((metric for metric in gaps if metric.bin), numbers.roles)
    if not models:
        return None
    figure = draw_gaps(gaps, models, {"entropy": "entropy of the exact answer (nats)",
                                      "depth": "depth of the word in its tree"})
    return finish(figure, "optimum_gap", "How far each model is from the optimum, and where",
                  "Divergence of the model's answer from the exact one at masked words, by how uncertain the exact "
                  "answer is and by how deep the word lies. Zero would be the Bayes-optimal masked language model.")


def draw_gaps(gaps: Sequence[Metric], models: Sequence[str], kinds: Mapping[str, str]) -> Any:
    """A figure of KL(exact || model): an axis for each kind of circumstance (-> its label), a line for each model."""
    figure, [axes] = new_figure(7.2, 3.0, 1, len(kinds), sharey=True)
    for axis, (kind, label) in zip(axes, kinds.items(), strict=True):
        bins = list(dict.fromkeys(metric.bin for metric in gaps if metric.group == kind))
        value = {(metric.model, metric.bin): metric.value for metric in gaps if metric.group == kind}
        for index, model in enumerate(models):
            plot(axis, bins, [value.get((model, part), np.nan) for part in bins], index, model)
        axis.set(xlabel=label, ylabel="KL(exact || model) in nats" if axis is axes[0] else "", ylim=(0, None))
    axes[0].legend()
    return figure


@styled
def f1_by_layer(numbers: Numbers) -> Drawing | None:
    scores = found(numbers, **F1, model=ALL, layer=ANY_LAYER, probe=ALL, setting=list(TEXTS), input=EOS)
    if not scores:
        return None
    probes, texts = probes_of(scores, but=MARGINAL_PROBE), texts_of(scores)
    figure, grid = new_figure(7.2, 3.0 * len(probes), len(probes), len(texts), sharey=True)
    for axes, probe in zip(grid, probes, strict=True):
        for axis, (setting, text) in zip(axes, texts.items(), strict=True):
            _draw_layers(axis, numbers, scores, probe, setting)
            axis.set(title=text if len(probes) == 1 else f"{text}, {probe} probe",
                     ylabel="sentence F1" if axis is axes[0] else "")
    figure.legend(*grid[0][-1].get_legend_handles_labels(), loc="outside lower center", ncol=4)
    return finish(figure, "f1_by_layer", "Parsing F1 by layer and model",
                  f"Probe that reads a word and EOS: {', '.join(probes)}. Layer 0 holds the embeddings before any "
                  f"attention; untrained is the base model before its first step.")


@styled
def trees_at_a_glance(numbers: Numbers, paper: Numbers) -> Drawing | None:
    """F1 by layer on the last text alone, with what the paper prints as marks."""
    scores = found(numbers, **F1, model=ALL, layer=ANY_LAYER, probe=ALL, setting=list(TEXTS), input=EOS)
    if not scores:
        return None
    probe, (setting, text) = probes_of(scores, but=MARGINAL_PROBE)[0], list(texts_of(scores).items())[-1]
    figure, [[axis]] = new_figure(5.2, 3.7)
    _draw_layers(axis, numbers, scores, probe, setting)
    deepest = max(score.layer or 0 for score in scores)
    theirs = found(paper, **F1, model="base", layer=[0, LAST], probe=probe, setting=setting, input=EOS)
    marks = [*((deepest if metric.layer else 0, metric.value) for metric in theirs),
             *((deepest, metric.value) for metric in found(paper, **F1, model="IO", setting=setting))]
    for x, value in marks:
        axis.annotate(f"{value:.3g}", (x, value), (-6 if x else 6, 4), textcoords="offset points",
                      ha="right" if x else "left", fontsize=8, color=colour("c5"))
    if marks:
        axis.plot(*zip(*marks, strict=True), linestyle="none", marker="D", markersize=6, color=colour("c5"),
                  markerfacecolor=colour("paper"), label="the paper (12 layers)")
    axis.set(ylabel="sentence F1")
    figure.legend(loc="outside lower center", ncol=3)
    return finish(figure, "trees_at_a_glance", f"Trees that a {probe} probe reads, by layer, {text}",
                  "Diamonds: what the paper prints of its base model (layer 0: less than this; its best layer; "
                  "Inside-Outside), on the Penn Treebank." if marks else
                  "Layer 0 holds the embeddings before any attention.")


def _draw_layers(axis: Any, numbers: Numbers, scores: Sequence[Metric], probe: str, setting: str) -> None:
    """F1 by layer of every trained model, of the base model before training, and of exact inference."""
    lines = grouped((score for score in scores if (score.probe, score.setting) == (probe, setting)), "model")
    for index, model in enumerate(drawn_models(scores, numbers.roles)):
        if model in lines:
            plot(axis, *curve(lines[model], "layer"), index, model)
    if numbers.roles.base is not None and (line := lines.get(untrained(numbers.roles.base))):
        axis.plot(*curve(line, "layer"), color=colour("muted"), linestyle=":", marker="x", label="untrained")
    for exact in found(numbers, **F1, model="IO", setting=setting):
        axis.axhline(exact.value, color=colour("ink"), linestyle="--", linewidth=1.2, label="Inside-Outside")
    axis.set_xlabel("layer")
    whole_ticks(axis)


@styled
def probe_comparison(numbers: Numbers) -> Drawing | None:
    base = numbers.roles.base
    scores = found(numbers, **F1, model="base", layer=ANY_LAYER, probe=ALL, setting=list(SETTINGS),
                   input=[EOS, ADJACENT])
    if base is None or not scores:
        return None
    figure, [axes] = new_figure(7.2, 2.8, 1, 2, sharey=True)
    probes, lines = probes_of(scores), grouped(scores, "input", "probe", "setting")
    settings = [setting for setting in SETTINGS if any(score.setting == setting for score in scores)]
    for axis, (shown, title) in zip(axes, ((EOS, "word and EOS"), (ADJACENT, "three adjacent words")), strict=True):
        for index, probe in enumerate(probes):
            for position, setting in enumerate(settings):
                layers, y = curve(lines.get((shown, probe, setting), []), "layer")
                if 0 not in layers:
                    continue
                place = position + 0.24 * (index - (len(probes) - 1) / 2)
                tone = colour(SERIES[index % len(SERIES)])
                axis.plot([place, place], [y[0], max(y)], color=tone, linewidth=2.4, alpha=0.45)
                axis.plot(place, y[0], marker="o", markersize=6, markerfacecolor=colour("paper"), color=tone,
                          linestyle="none", label=f"{probe}, layer 0" if position == 0 else None)
                axis.plot(place, max(y), marker="o", markersize=6, color=tone, linestyle="none",
                          label=f"{probe}, best layer" if position == 0 else None)
        axis.set(title=title, xticks=range(len(settings)), xticklabels=settings, xlim=(-0.5, len(settings) - 0.5),
                 ylabel="sentence F1" if shown == EOS else "")
        axis.grid(axis="x", visible=False)
    axes[1 if any(shown == ADJACENT for shown, _, _ in lines) else 0].legend(loc="lower left")
    return finish(figure, "eos_and_adj", "What a probe reads: word and EOS, or adjacent words",
                  f"From layer 0 (open) to the best layer (filled) of {base}; ood: fitted on sampled text, tested on "
                  f"treebank text. Adjacent words give much of the tree without any context, so that probe says less "
                  f"about the model.")


@styled
def marginals(numbers: Numbers) -> Drawing | None:
    base, table = numbers.roles.base, {"table": "marginals", "probe": ALL, "width": ANY_WIDTH, "metric": "pearson"}
    scores = [metric for layer in (LAST, 0) for metric in found(numbers, **table, model="base", layer=layer,
                                                                setting=list(SETTINGS))]
    if base is None or not scores:
        return None
    last, probes = numbers.roles.layers(base), probes_of(scores)
    shown = MARGINAL_PROBE if MARGINAL_PROBE in probes else probes[0]
    lines = grouped(scores, "setting", "probe", "layer")
    setting, text = list(texts_of(scores).items())[-1]
    figure, [axes] = new_figure(7.2, 3.4, 1, 2, sharey=True)
    for index, probe in enumerate(probes):
        for layer, style in ((last, "-"), (0, ":")):
            if line := lines.get((setting, probe, layer)):
                plot(axes[0], *curve(line, "width"), index, f"{probe}, layer {layer}", linestyle=style)
    for index, setting in enumerate(SETTINGS):
        if line := lines.get((setting, shown, last)):
            plot(axes[1], *curve(line, "width"), index, setting)
    axes[0].set(title=f"probes, {text}", xlabel=WIDTH, ylabel="Pearson correlation")
    axes[1].set(title=f"settings, {shown} probe, last layer", xlabel=WIDTH)
    for axis in axes:
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncol=2)
    return finish(figure, "marginals", "Span marginals recovered from the representations",
                  f"Correlation between predicted and exact normalised marginals, {base}.")


@styled
def scatter(points: Mapping[str, Any]) -> Drawing:
    """`points`: {"model", "layer", "probe", "lengths": {length: {"true", "predicted", "slope", "intercept"}}}."""
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
                  f"{points.get('probe', MARGINAL_PROBE)} probe, layer {points['layer']} of {points['model']}; up to "
                  f"200 spans of the test set, and the best line through all of them.")


@styled
def attention(numbers: Numbers) -> Drawing | None:
    roles = numbers.roles
    distances = found(numbers, table="attention", model=ALL, layer=ANY_LAYER, setting=list(TEXTS), index=ALL,
                      metric="attended_distance")
    models = drawn_models(distances, roles)
    if not models:
        return None
    # As in the paper: the models that share the base's number of heads and have more than one layer.
    shown = [m for m in models if m in roles.by_layers and roles.layers(m) > 1] if roles.base else []
    shown = shown or models
    of_layer = grouped(distances, "model", "setting", "layer")
    texts = texts_of(distances)
    figure, axes = new_figure(7.2, 2.3 * len(shown), len(shown), len(texts), sharey="row", sharex="row")
    for line, model in zip(axes, reversed(shown), strict=True):
        for axis, (setting, text) in zip(line, texts.items(), strict=True):
            for (other, where, layer), heads in of_layer.items():
                if (other, where) == (model, setting):
                    _, values = curve(heads, "index")
                    offsets = np.linspace(-0.3, 0.3, len(values)) if len(values) > 1 else np.zeros(1)
                    axis.plot(layer + offsets, values, linestyle="none", marker="o", markersize=3,
                              color=colour("c1" if setting == SAMPLED.name else "c2"))
            axis.set(title=f"{model}, {text}", xlabel="layer" if model == shown[0] else "",
                     ylabel="distance" if setting == SAMPLED.name else "")
            whole_ticks(axis)
    return finish(figure, "attention", "Average attended distance of every head",
                  "One dot a head, sorted within its layer; distance in words.")


@styled
def f1_by_width(numbers: Numbers) -> Drawing | None:
    table = {"table": "parsing", "setting": TREEBANK.name, "convention": "PB", "width": ANY_WIDTH, "metric": "f1"}
    parsers = grouped(found(numbers, **table, model=ALL), "model")
    probes = grouped(found(numbers, **table, model="base", probe=ALL, input=EOS, group="best layer"),
                     "model", "probe")
    lines = {**{"Inside-Outside" if model == "IO" else model: metrics for model, metrics in parsers.items()},
             **{f"{model} {probe}": metrics for (model, probe), metrics in probes.items()}}
    if not lines:
        return None
    figure, [[axis]] = new_figure(6.4, 2.8)
    for index, (label, metrics) in enumerate(lines.items()):
        plot(axis, *curve(metrics, "width"), index, label)
    axis.set(xlabel="span width (words)", ylabel="F1")
    whole_ticks(axis)
    axis.legend()
    return finish(figure, "f1_by_width", "Parsing F1 by span width",
                  "Whole-tree F1 is dominated by short spans; this shows where each parser loses.")


@styled
def filling(construction: Mapping[str, Any]) -> Drawing:
    """Small multiples: after every layer of the constructed transformer, which cells of the chart it holds."""
    n_words, layers = len(construction["words"]), construction["layers"]
    n_rows = 3
    n_columns = -(-len(layers) // n_rows)
    figure, [[axis]] = new_figure(7.2, 7.2 * n_rows * (n_words + 2.5) / (n_columns * (n_words + 1)))
    squares: dict[str, list[Rectangle]] = {}
    impossible: set[tuple[int, int]] = set()
    inside = {(i, i + 1) for i in range(n_words)}
    outside: set[tuple[int, int]] = set()
    for index, layer in enumerate(layers):
        left, base = (index % n_columns) * (n_words + 1), -(index // n_columns) * (n_words + 2.5)
        fresh = {(int(i), int(j)) for i, j, _ in layer["cells"]}
        impossible |= {(int(i), int(j)) for i, j, value in layer["cells"] if value == 0}
        is_inside = layer["phase"] == "inside"
        (inside if is_inside else outside).update(fresh)
        for i, j in sorted(inside | outside):
            name = ("c1" if is_inside else "c2") if (i, j) in fresh else "c3" if (i, j) in outside else "grid"
            size = 0.4 if (i, j) in impossible else 0.9
            corner = (left + (i + j - 1 - size) / 2, base + j - i - size / 2)
            squares.setdefault(name, []).append(Rectangle(corner, size, size))
        axis.text(left + (n_words - 1) / 2, base + n_words + 0.9, f"{layer['layer']} {layer['phase']}", ha="center",
                  fontsize=7)
    for name, patches in squares.items():
        axis.add_collection(PatchCollection(patches, facecolor=colour(name), linewidth=0))
    axis.set(xlim=(-1, n_columns * (n_words + 1) - 1), ylim=(-(n_rows - 1) * (n_words + 2.5), n_words + 2.5))
    axis.set_axis_off()
    axis.set_aspect("equal")
    return finish(figure, "filling", "The chart fills layer by layer in the constructed transformer",
                  "Each panel is one layer; a cell is a span, wider spans higher up. Blue: inside probabilities that "
                  "this layer computes; orange: outside probabilities; grey: inside held from before; green: both. "
                  "Small: spans that the grammar makes impossible.")


FIGURES: tuple[Callable[[Numbers], Drawing | None], ...] = (
    frequency, loss_curves, optimum_gap, f1_by_layer, probe_comparison, marginals, attention, f1_by_width)
