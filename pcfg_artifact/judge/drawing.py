"""What all figures share: their numbers as curves, their style, and the way from matplotlib to a PNG and to an inline
SVG that follows the page's colours, light or dark."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.metrics.views import measured

# Figures are drawn in the light colours; in the SVG each becomes the CSS variable of its name (see report.css).
COLOURS = {
    "ink": "#1f2933", "muted": "#7b8794", "grid": "#e4e7eb", "paper": "#ffffff",
    "c1": "#2f6db3", "c2": "#d1742b", "c3": "#3d8f6b", "c4": "#9056a8", "c5": "#b8485d", "c6": "#8a7b2a",
}
SERIES = ("c1", "c2", "c3", "c4", "c5", "c6")
MARKERS = ("o", "s", "^", "D", "v", "P")

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "axes.titlesize": 9.5,
    "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": COLOURS["muted"], "axes.labelcolor": COLOURS["ink"], "axes.titlecolor": COLOURS["ink"],
    "text.color": COLOURS["ink"], "xtick.color": COLOURS["muted"], "ytick.color": COLOURS["muted"],
    "xtick.labelcolor": COLOURS["ink"], "ytick.labelcolor": COLOURS["ink"], "axes.grid": True, "axes.axisbelow": True,
    "grid.color": COLOURS["grid"], "grid.linewidth": 0.8, "legend.frameon": False, "legend.fontsize": 8,
    "figure.facecolor": "none", "axes.facecolor": "none", "lines.linewidth": 1.6, "lines.markersize": 4,
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True)
class Drawing:
    """A finished figure: its file name, what a reader should see in it, and both renderings."""

    name: str
    title: str
    caption: str
    svg: str
    png: bytes


def colour(name: str) -> str:
    return COLOURS[name]


def styled(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A drawing function in the house style, which ends with it: nothing global is changed."""
    @functools.wraps(draw)
    def function(*args: Any) -> Any:
        with matplotlib.rc_context(STYLE):
            return draw(*args)
    return function


def new_figure(width: float = 7.2, height: float = 3.0, rows: int = 1, columns: int = 1,
               **options: Any) -> tuple[Figure, Any]:
    """A figure and its axes (always a 2-D array)."""
    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def found(numbers: Numbers, **selector: Any) -> list[Metric]:
    """The numbers of a selector (metrics/selection.py), none if they were not measured."""
    return measured(numbers, selector)


def curve(metrics: Iterable[Metric], dimension: str) -> tuple[list[int], list[float]]:
    """Numbers as points: a dimension as x, their values as y."""
    points = sorted((getattr(metric, dimension), metric.value) for metric in metrics)
    return [x for x, _ in points], [y for _, y in points]


def look(index: int) -> dict[str, str]:
    """Colour and marker of one of several series."""
    return {"color": colour(SERIES[index % len(SERIES)]), "marker": MARKERS[index % len(MARKERS)]}


def plot(axis: Any, x: Sequence[Any], y: Sequence[float], index: int, label: str, **options: Any) -> None:
    axis.plot(x, y, label=label, **{**look(index), **options})


def whole_ticks(axis: Any) -> None:
    """An x axis of layers or widths."""
    axis.xaxis.get_major_locator().set_params(integer=True)


def finish(figure: Figure, name: str, title: str, caption: str) -> Drawing:
    vector, raster = io.StringIO(), io.BytesIO()
    figure.savefig(raster, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    figure.set_layout_engine("none")  # it is laid out now; doing so again takes as long as drawing
    with matplotlib.rc_context({"svg.hashsalt": name}):  # ids that depend on the name alone
        figure.savefig(vector, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Drawing(name, title, caption, inline(vector.getvalue(), title), raster.getvalue())


def inline(svg: str, title: str) -> str:
    """A stand-alone SVG made fit for a page: no prologue, no metadata, no ids of its groups, colours as variables."""
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<style type="text/css">.*?</style>', "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    for name, value in COLOURS.items():
        svg = svg.replace(value, f"var(--{name})")
    # Fixed sizes would overflow a phone: the viewBox alone keeps the proportions.
    head, rest = svg.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    svg = f'{head} role="img" aria-label="{title}">{rest}'
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px; font-family: inherit", svg)
    return re.sub(r"\n\s*", "\n", svg).strip()
