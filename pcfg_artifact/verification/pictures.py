"""A claim in one small picture: this run's value against its bound, recorded seeds as dots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import escape

from pcfg_artifact.verification.claim_outcomes import Comparison
from pcfg_artifact.verification.relations import STRICT

WIDTH, HEIGHT, MARGIN, LINE = 200, 40, 12, 16  # pixels; LINE: the height of the axis
LOGARITHMIC = 1e3  # values that lie so many times apart are drawn on a logarithmic axis


def picture(now: Comparison, recorded: Sequence[float], label: str) -> str:
    """An inline SVG: the side of the bound where the claim holds is shaded; empty where there is no finite value."""
    seeds = [value for value in recorded if math.isfinite(value)]
    values = [value for value in (now.value, *seeds) if math.isfinite(value)]
    if not math.isfinite(now.value):
        return ""
    place = _axis([*values, now.bound])
    bound = place(now.bound)
    left, right = (MARGIN / 2, bound) if now.is_upper else (bound, WIDTH - MARGIN / 2)
    tone = "good" if now.slack >= 0 else "bad"
    parts = [f'<svg class="claim {tone}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">',
             f'<rect class="side" x="{left:.1f}" y="{LINE - 9}" width="{max(right - left, 0):.1f}" height="18"/>',
             f'<line class="axis" x1="{MARGIN / 2:g}" x2="{WIDTH - MARGIN / 2:g}" y1="{LINE}" y2="{LINE}"/>',
             f'<line class="bound" x1="{bound:.1f}" x2="{bound:.1f}" y1="{LINE - 11}" y2="{LINE + 11}"/>']
    parts += [f'<circle class="seed" cx="{place(value):.1f}" cy="{LINE}" r="3"/>' for value in seeds]
    x, shown = place(now.value), 0 if abs(now.bound) <= STRICT else now.bound
    parts += [f'<path class="now" d="M{x:.1f} {LINE - 6}l5 6l-5 6l-5 -6z"/>',
              f'<text x="{min(max(bound, 22), WIDTH - 22):.1f}" y="{HEIGHT - 2}">{shown:g}</text></svg>']
    return "".join(parts)


def _axis(values: Sequence[float]) -> Callable[[float], float]:
    """Value -> pixel."""
    smallest, largest = min(values), max(values)
    is_log = smallest > 0 and largest / smallest > LOGARITHMIC

    def scaled(value: float) -> float:
        return math.log(value) if is_log else value

    low, high = scaled(smallest), scaled(largest)
    if high == low:
        low, high = low - 1, high + 1
    low, high = low - 0.08 * (high - low), high + 0.08 * (high - low)
    return lambda value: MARGIN + (WIDTH - 2 * MARGIN) * (scaled(value) - low) / (high - low)
