"""Drawings of one sentence: its Inside-Outside chart, trees over it, and the chart filling layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from pcfg_artifact.judge.drawing import Drawing, colour, finish, new_figure, styled


@styled
def sentence_charts(construction: Mapping[str, Any], probed: Mapping[str, Any] | None) -> Drawing:
    """The exact chart, the parse read off the constructed transformer, and the probed parse, over the same words."""
    words = construction["words"]
    panels = [("Inside-Outside chart", None), ("constructed transformer", construction["spans"])]
    if probed is not None:
        panels.append((f"probe of {probed['model']}, layer {probed['layer']}", probed["spans"]))
    size = max(2.6, 0.26 * len(words))
    figure, axes = new_figure(6.4, (size + 0.7) * len(panels), len(panels), 1)
    for (title, spans), [axis] in zip(panels, axes, strict=True):
        if spans is None:
            _triangle(axis, np.asarray(construction["span_score"], dtype=float), len(words))
        else:
            _tree(axis, spans, len(words), gold={tuple(span) for span in construction.get("gold", [])})
        _words(axis, words)
        axis.set_title(title)
    legend = ("Top: probability of the best label of every span (darker is more likely). Below: unlabelled trees; "
              "spans that the treebank tree does not have are dashed.")
    return finish(figure, "example", "One sentence, parsed three ways", legend)


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


def _cell(axis: Any, i: int, j: int, face: str, alpha: float = 1.0) -> None:
    """A span as a square over the middle of its words, at the height of its width."""
    axis.add_patch(Rectangle(((i + j) / 2 - 0.96, j - i - 0.46), 0.92, 0.92, facecolor=face, alpha=alpha, linewidth=0))


def _triangle(axis: Any, score: np.ndarray, n_words: int) -> None:
    for i in range(n_words):
        for j in range(i + 1, n_words + 1):
            # Rounding can lift a certain span a little above 1.
            _cell(axis, i, j, colour("c1"), alpha=float(0.06 + 0.94 * min(score[i, j], 1.0)))
    axis.set(ylim=(0.4, n_words + 0.6))


def _tree(axis: Any, spans: Sequence[Sequence[int]], n_words: int, gold: set[tuple[int, int]]) -> None:
    """Brackets over the words: a node sits over the middle of its span, as high as the tree below it."""
    nodes = {(int(i), int(j)) for i, j in spans} | {(i, i + 1) for i in range(n_words)} | {(0, n_words)}
    height: dict[tuple[int, int], int] = {}
    for span in sorted(nodes, key=lambda s: s[1] - s[0]):
        below = [height[other] for other in height if span[0] <= other[0] and other[1] <= span[1]]
        height[span] = 0 if span[1] - span[0] == 1 else 1 + max(below, default=0)
    for span in nodes:
        parents = [o for o in nodes if o != span and o[0] <= span[0] and span[1] <= o[1]]
        if not parents:
            continue
        parent = min(parents, key=lambda o: o[1] - o[0])
        x, y = (span[0] + span[1]) / 2 - 0.5, (parent[0] + parent[1]) / 2 - 0.5
        known = not gold or span in gold or span[1] - span[0] == 1 or span == (0, n_words)
        axis.plot([x, x, y], [height[span], height[parent], height[parent]], color=colour("c3" if known else "c2"),
                  linestyle="-" if known else "--", linewidth=1.5, solid_joinstyle="round")
    axis.set(ylim=(-0.2, max(height.values()) + 0.5))


def _words(axis: Any, words: Sequence[str]) -> None:
    axis.set(xlim=(-0.7, len(words) - 0.3), xticks=range(len(words)), yticks=[])
    crowded = sum(map(len, words)) > 40
    axis.set_xticklabels(words, rotation=35 if crowded else 0, ha="right" if crowded else "center", fontsize=8)
    axis.grid(visible=False)
    for side in ("left", "bottom"):
        axis.spines[side].set_visible(False)
    axis.tick_params(length=0)
