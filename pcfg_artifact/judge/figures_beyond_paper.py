"""Figures beyond the paper: reading from left to right, interventions at every layer, and learning step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pcfg_artifact.judge.drawing import (
    Drawing,
    colour,
    curve,
    finish,
    found,
    look,
    new_figure,
    plot,
    styled,
    whole_ticks,
)
from pcfg_artifact.judge.figures import ANY_LAYER, draw_gaps
from pcfg_artifact.metrics.models import masked_counterpart, shape_of, untrained
from pcfg_artifact.metrics.schema import KEY, WHOLE_NUMBERS, Metric, is_blank
from pcfg_artifact.metrics.selection import ALL, BEST, Numbers
from pcfg_artifact.metrics.views import grouped

TREEBANK = {"setting": "treebank"}
# Panels of the learning curves: title -> the numbers that it shows.
PANELS: dict[str, dict[str, Any]] = {
    "loss above optimum (nats)": {"metric": "excess"},
    "F1 of the tree": {**TREEBANK, "probe": ALL, "input": "EOS", "convention": "PB", "metric": "sentence_f1"},
    "correlation of marginals": {**TREEBANK, "probe": ALL, "width": ALL, "metric": "pearson"},
    "attended distance (words)": {**TREEBANK, "layer": ALL, "metric": "attended_distance"},
    "slope of interventions": {"probe": ALL, "metric": "slope"}}


@styled
def interventions(numbers: Numbers) -> Drawing | None:
    slopes = found(numbers, table="interventions", model="base", layer={"from": 0}, probe=ALL, metric="slope")
    if not slopes:
        return None
    figure, [[axis]] = new_figure(7.2, 3.4)
    moved_by = grouped(slopes, "probe")
    for index, (probe, metrics) in enumerate(moved_by.items()):
        _with_errors(axis, metrics, "layer", 0.06 * (index - len(moved_by) / 2), index, _way(probe, numbers))
    axis.axhline(0.0, color=colour("muted"), linewidth=1.0)
    axis.set(xlabel="layer whose states are changed (0: embeddings)", ylabel="slope: model's change per exact change")
    whole_ticks(axis)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))  # beside the panel, where no curve is
    return finish(figure, "interventions", "What the model does when it is told that words belong together",
                  "The states of a span's first and last word are changed so that a probe reads 'one phrase', or 'no "
                  "phrase'; the layers above then predict masked words elsewhere in the sentence. 1 would be the "
                  "change that the grammar calls for, 0 none. Bars: one standard error over sentences. A random "
                  "direction, the control task and spans of other sentences are controls; after the last layer nothing "
                  "can travel.")


def dynamics(numbers: Numbers) -> Drawing | None:
    return _dynamics(numbers, numbers.roles.base, "dynamics")


def causal_dynamics(numbers: Numbers) -> Drawing | None:
    return _dynamics(numbers, next(iter(numbers.roles.followed[1:]), None), "causal_dynamics")


@styled
def _dynamics(numbers: Numbers, model: str | None, name: str) -> Drawing | None:
    """What one model learned step by step: a panel for each measure."""
    panels = {title: [] if model is None else found(numbers, table="dynamics", model=model, step=ALL, **shown)
              for title, shown in PANELS.items()}
    if not any(panels.values()):
        return None
    figure, grid = new_figure(7.2, 6.4, 3, 2, sharex=True)
    for axis, (title, metrics) in zip(grid.flat, panels.items(), strict=False):
        _curves(axis, metrics, numbers)
        axis.set(title=title, xscale="log", xlabel="training step + 1")
        if len(axis.get_legend_handles_labels()[1]) > 1:
            axis.legend(fontsize=6.5)
    grid[-1, -1].set_axis_off()
    return finish(figure, name, f"What {model} learned at every step",
                  "One axis of training steps for all: how far a model is from the best possible prediction (of masked "
                  "words; of the next word for a causal model, whose name begins with C), how much of the tree and of "
                  "span marginals a linear probe reads from one layer (a causal model is asked for marginals given the "
                  "words up to the span's end), how far the heads of each layer look, and whether changing what the "
                  "probe reads changes predictions as exact inference would, which is asked of masked words only. "
                  "Bars: one standard error over sentences.")


def _curves(axis: Any, metrics: list[Metric], numbers: Numbers) -> None:
    """The quantities of one panel against the step, told apart by the dimensions in which they differ."""
    told_apart = tuple(n for n in KEY if n != "step" and len({getattr(metric, n) for metric in metrics}) > 1)
    for index, line in enumerate(grouped(sorted(metrics, key=_sizes), "table", *told_apart).values()):
        words = (_way(value, numbers) if name == "probe" else f"{name} {value}" for name in told_apart
                 if not is_blank(value := getattr(line[0], name)))
        _with_errors(axis, line, "step", 1, index, ", ".join(words))
    if not metrics:
        axis.text(0.5, 0.5, "not defined", transform=axis.transAxes, ha="center", va="center", color=colour("muted"))


def _sizes(metric: Metric) -> list[int]:
    return [getattr(metric, name) or 0 for name in WHOLE_NUMBERS]


def _way(probe: str, numbers: Numbers) -> str:
    """What states are moved by: a probe of the run, or what its name says."""
    return f"{probe} probe" if any(m.probe == probe for m in numbers.of_table("parsing")) else probe


def _with_errors(axis: Any, metrics: list[Metric], dimension: str, shift: float, index: int, label: str) -> None:
    """Numbers with bars of one standard error."""
    ordered = sorted(metrics, key=lambda metric: getattr(metric, dimension))
    axis.errorbar(np.array([getattr(metric, dimension) for metric in ordered]) + shift, [m.value for m in ordered],
                  yerr=[metric.error or 0.0 for metric in ordered], label=label, capsize=2, **look(index))


# ---- reading from left to right --------------------------------------------------------------------------------------

TWO_WORDS = {"group": "span end", "width": 2}
QUESTIONS: dict[str, dict[str, Any]] = {
    "a span of 2 words ended here": {**TWO_WORDS, "index": 0}, "open constituents": {"group": "open constituents"},
    "relative depth": {"group": "relative depth"}}
EXPLAINED = {"table": "incremental", "setting": "tree", "metric": "explained"}
SO_FAR, WHOLE = "exact so far", "exact whole"  # exact inference from the words up to here, and from the sentence


@styled
def next_word_gap(numbers: Numbers) -> Drawing | None:
    gaps = found(numbers, table="next_words", model="causal", group=ALL, bin=ALL, metric="kl")
    if not any(metric.bin for metric in gaps):
        return None
    kinds = {"entropy": "entropy of the exact answer (nats)", "position": "words before"}
    figure = draw_gaps(gaps, numbers.roles.causal, kinds)
    return finish(figure, "next_word_gap", "How far each causal model is from the exact next word, and where",
                  "Divergence of the model's next-word distribution from the exact one, by how uncertain the exact one "
                  "is and by how many words were read. Zero would be exact prediction from left to right.")


@styled
def known_while_reading(numbers: Numbers) -> Drawing | None:
    causal = max(numbers.roles.causal, key=lambda model: shape_of(model) or (), default=None)
    if causal is None or not found(numbers, **EXPLAINED, model=causal, layer=0, group=ALL, width=ALL, index=ALL):
        return None
    shown = {causal: "-", masked_counterpart(causal): "-", untrained(causal): ":"}
    figure, [axes] = new_figure(7.2, 3.2, 1, len(QUESTIONS), sharey=True)
    for axis, (title, question) in zip(axes, QUESTIONS.items(), strict=True):
        for index, (model, style) in enumerate(shown.items()):
            if line := found(numbers, **EXPLAINED, **question, model=model, layer=ANY_LAYER):
                plot(axis, *curve(line, "layer"), index, model, linestyle=style)
        for source, style in ((SO_FAR, "--"), (WHOLE, "-.")):
            for exact in found(numbers, **EXPLAINED, **question, model=source):
                axis.axhline(exact.value, color=colour("ink"), linestyle=style, linewidth=1.2, label=source)
        axis.set(title=title, xlabel="layer", ylim=(0, 1),
                 ylabel="share of variance explained" if axis is axes[0] else "")
        whole_ticks(axis)
    axes[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncol=3)
    return finish(figure, "known_while_reading", "What the state of a word says about the tree",
                  "Linear probes on one word's state, by layer. Exact so far is the most that the words up to there "
                  "allow: what lies above it cannot be known yet, what lies between it and the model is not encoded "
                  "linearly. The masked model has seen the whole sentence.")


@styled
def settled(numbers: Numbers) -> Drawing | None:
    metrics = ("probability", "settled")
    after = {metric: found(numbers, table="settled", group=["span end", "sentence end"], index=ALL, metric=metric)
             for metric in metrics}
    if not any(after.values()):
        return None
    figure, [axes] = new_figure(7.2, 2.9, 1, 2, sharey=True)
    for index, metric in enumerate(metrics):
        plot(axes[0], [_when(one.index) for one in after[metric]], [one.value for one in after[metric]], index, metric)
    axes[0].set(title="spans of the tree", xlabel="after", ylabel="share", ylim=(0, 1))
    for index, source in enumerate((SO_FAR, *numbers.roles.causal)):
        layer = {} if source == SO_FAR else {"layer": BEST}
        delays, known = curve(found(numbers, **EXPLAINED, **TWO_WORDS, **layer, model=source, index=ALL), "index")
        plot(axes[1], list(map(_when, delays)), known, index, source)
    axes[1].set(title="spans of 2 words, variance explained", xlabel="after")
    for axis in axes:
        axis.legend()
    return finish(figure, "settled", "When a tree is settled",
                  "Left: posterior of the spans of the drawn trees at their last word, some words later and at the "
                  "end, and the share of them that are nearly certain. Right: what exact inference and causal models "
                  "know of two-word spans some words after them.")


def _when(delay: int | None) -> str:
    """When a span that ends at j is looked at: at j, j+1, ..., or at the end of the sentence."""
    return "end" if delay is None else f"j+{delay}" if delay else "j"


BEYOND_THE_PAPER: tuple[Callable[[Numbers], Drawing | None], ...] = (
    interventions, dynamics, causal_dynamics, next_word_gap, known_while_reading, settled)
