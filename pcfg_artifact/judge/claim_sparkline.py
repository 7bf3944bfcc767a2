"""A claim in one small picture: this run's value against its bound, recorded seeds as dots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pcfg_artifact.judge.claims import STRICT, Comparison

WIDTH, HEIGHT, MARGIN, LINE = 200, 40, 12, 16  # pixels; LINE: the height of the axis
LOGARITHMIC = 1e3  # values that lie so many times apart are drawn on a logarithmic axis


def sparkline(now: Comparison, recorded: Sequence[float]) -> dict[str, Any]:
    """Where things are, in pixels; empty where there is no finite value.  A macro of report.html draws them."""
    if not math.isfinite(now.value):
        return {}
    place = _axis([now.value, now.bound, *filter(math.isfinite, recorded)])
    bound, low, high = place(now.bound), MARGIN / 2, WIDTH - MARGIN / 2
    return {"width": WIDTH, "height": HEIGHT, "line": LINE, "margin": low, "bound": bound, "now": place(now.value),
            "seeds": [place(value) for value in recorded if math.isfinite(value)],
            "side": (low, bound) if now.is_upper else (bound, high), "tone": "good" if now.slack >= 0 else "bad",
            "shown": 0 if abs(now.bound) <= STRICT else now.bound}


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
