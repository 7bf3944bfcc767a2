"""Figures of reading from left to right: next words, what is known of the tree at each word, and when it is settled."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.cells import LAYER, OF_TREE, OPEN, RELATIVE_DEPTH, SO_FAR, WHOLE, natural
from pcfg_artifact.roles import Roles, masked_counterpart, untrained
from pcfg_artifact.verification.drawing import MARKERS, SERIES, Drawing, colour, finish, new_figure, styled
from pcfg_artifact.verification.figures import draw_gaps
from pcfg_artifact.verification.measured import Tables, Value

QUESTIONS = {cells.ending_span(2): "a span of 2 words ended here", OPEN: "open constituents",
             RELATIVE_DEPTH: "relative depth"}


def _numbers(values: Iterable[Value | None]) -> list[float]:
    return [np.nan if value is None else value.number for value in values]


@styled
def next_word_gap(tables: Tables, roles: Roles) -> Drawing | None:
    rows = tables.get("next_word_gap", {})
    if not roles.causal or not rows:
        return None
    kinds = {"entropy": "entropy of the exact answer (nats)", "position": "words before"}
    figure = draw_gaps(rows, roles.causal, kinds, cells.next_word_gap)
    return finish(figure, "next_word_gap", "How far each causal model is from the exact next word, and where",
                  "Divergence of the model's next-word distribution from the exact one, by how uncertain the exact one "
                  "is and by how many words were read. Zero would be exact prediction from left to right.")


@styled
def known_while_reading(tables: Tables, roles: Roles) -> Drawing | None:
    rows, best = tables.get("figure_incremental", {}), tables.get("incremental", {})
    if not roles.causal or not rows:
        return None
    causal = max(roles.causal, key=natural)
    shown = {causal: "-", masked_counterpart(causal): "-", untrained(causal): ":"}
    figure, [axes] = new_figure(7.2, 3.2, 1, len(QUESTIONS), sharey=True)
    for axis, (question, title) in zip(axes, QUESTIONS.items(), strict=True):
        for index, (model, style) in enumerate(shown.items()):
            row = rows.get(cells.known_by_layer(model, question, OF_TREE, 0).row, {})
            layers = sorted(layer for column in row if (layer := LAYER.index(column)) is not None)
            if layers:
                axis.plot(layers, [row[LAYER(layer)].number for layer in layers], linestyle=style, label=model,
                          color=colour(SERIES[index % len(SERIES)]), marker=MARKERS[index % len(MARKERS)])
        for source, style in ((SO_FAR, "--"), (WHOLE, "-.")):
            if value := best.get(question, {}).get(source):
                axis.axhline(value.number, color=colour("ink"), linestyle=style, linewidth=1.2, label=source)
        axis.set(title=title, xlabel="layer", ylim=(0, 1),
                 ylabel="share of variance explained" if question == cells.ending_span(2) else "")
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncol=3)
    return finish(figure, "known_while_reading", "What the state of a word says about the tree",
                  "Linear probes on one word's state, by layer. Exact so far is the most that the words up to there "
                  "allow: what lies above it cannot be known yet, what lies between it and the model is not encoded "
                  "linearly. The masked model has seen the whole sentence.")


@styled
def settled(tables: Tables, roles: Roles) -> Drawing | None:
    rows, known = tables.get("settled", {}), tables.get("incremental", {})
    if not rows:
        return None
    order = sorted(rows, key=lambda when: (when == cells.AT_END, when))
    figure, [axes] = new_figure(7.2, 2.9, 1, 2, sharey=True)
    for index, column in enumerate(("probability", "settled")):
        axes[0].plot(order, _numbers(rows[when].get(column) for when in order), label=column,
                     color=colour(SERIES[index]), marker=MARKERS[index])
    axes[0].set(title="spans of the tree", xlabel="after", ylabel="share", ylim=(0, 1))
    delays = range(len(order) - 1)
    for index, source in enumerate((SO_FAR, *roles.causal)):
        found = [known.get(cells.ending_span(2, k), {}).get(source) for k in delays]
        axes[1].plot([cells.after_end(k) for k in delays], _numbers(found), label=source,
                     color=colour(SERIES[index % len(SERIES)]), marker=MARKERS[index % len(MARKERS)])
    axes[1].set(title="spans of 2 words, variance explained", xlabel="after")
    for axis in axes:
        axis.legend()
    return finish(figure, "settled", "When a tree is settled",
                  "Left: posterior of the spans of the drawn trees at their last word, some words later and at the "
                  "end, and the share of them that are nearly certain. Right: what exact inference and causal models "
                  "know of two-word spans some words after them.")


READING_FIGURES = (next_word_gap, known_while_reading, settled)
