"""Curves over training steps: where they are kept, and when they have gone half of their way."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def half_way_step(curve: Mapping[int, float]) -> float:
    """The first step at which a curve has gone half of the way from its first point to its last.

    Between two points the curve is straight against the logarithm of the step; NaN where it ends where it began.
    """
    steps = sorted(curve)
    values = np.array([curve[step] for step in steps])
    way = values[-1] - values[0]
    if not np.isfinite(values).all() or way == 0:
        return float("nan")
    done = (values - values[0]) / way
    k = int(np.argmax(done >= 0.5))  # the last point is 1, the first 0
    low, high = (np.log(max(step, 1)) for step in steps[k - 1:k + 1])
    return float(np.exp(low + (high - low) * (0.5 - done[k - 1]) / (done[k] - done[k - 1])))
