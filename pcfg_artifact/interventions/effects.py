"""Effects of interventions: the model's change beside the exact change, with standard errors over sentences.

x is the exact change of a word's log probability at a masked position, y the model's.  A word is weighted with its
probability given the context, so every masked position has weight 1.  All statistics are functions of weighted sums,
which are kept for each masked position; standard errors are those of the jackknife over sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcfg_artifact.metrics.schema import Metric

SMALLEST_CHANGE = 1e-3  # nats: the sign of a smaller exact change is not compared


def moments(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(8,) sums over words of w, wx, wy, wxx, wyy, wxy; then, of the words whose sign is compared, of w, and of w where
    the signs agree."""
    is_known = ~np.isnan(x)
    w, x, y = weights[is_known], x[is_known], y[is_known]
    has_sign = np.abs(x) >= SMALLEST_CHANGE
    agrees = np.where(y == 0, 0.5, np.sign(x) == np.sign(y))  # no change counts as half
    return np.array([w.sum(), w @ x, w @ y, w @ (x * x), w @ (y * y), w @ (x * y),
                     w @ has_sign, w @ (has_sign * agrees)])


def slope(m: np.ndarray) -> np.ndarray:
    """Least squares through the origin, y = slope x: 1 if the model changes as exact inference, 0 if not at all."""
    return _ratio(m[..., 5], m[..., 3])


def correlation(m: np.ndarray) -> np.ndarray:
    w = np.maximum(m[..., 0], 1e-300)
    covariance = m[..., 5] - m[..., 1] * m[..., 2] / w
    spread = (m[..., 3] - m[..., 1] ** 2 / w) * (m[..., 4] - m[..., 2] ** 2 / w)
    return _ratio(covariance, np.sqrt(np.maximum(spread, 0.0)))


def agreeing_signs(m: np.ndarray) -> np.ndarray:
    return _ratio(m[..., 7], m[..., 6])


STATISTICS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "slope": slope, "correlation": correlation, "agreeing_signs": agreeing_signs}


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """NaN for 0 / 0."""
    return np.divide(numerator, denominator, out=np.full(np.shape(numerator), np.nan), where=denominator > 0)


@dataclass
class Observations:
    """One row for each masked word of each question: sentence, width of the span, distance of the word, and sums."""

    sentence: list[int] = field(default_factory=list)
    width: list[int] = field(default_factory=list)
    distance: list[int] = field(default_factory=list)  # words to the nearer of the two words whose states are edited
    moments: list[np.ndarray] = field(default_factory=list)

    def add(self, sentence: int, span: tuple[int, int], positions: np.ndarray, weights: np.ndarray, x: np.ndarray,
            y: np.ndarray) -> None:
        """The masked words of one question; weights, x, y (masked, n_words)."""
        for k, t in enumerate(positions):
            self.sentence.append(sentence)
            self.width.append(span[1] - span[0])
            self.distance.append(int(min(abs(t - span[0]), abs(t - span[1] + 1))))
            self.moments.append(moments(weights[k], x[k], y[k]))

    def estimates(self, is_chosen: np.ndarray, statistics: Iterable[str] = STATISTICS, **dimensions: Any
                  ) -> list[Metric]:
        """Statistics over the chosen rows; an empty list if there are none."""
        chosen = np.flatnonzero(is_chosen)
        if not len(chosen):
            return []
        _, sentence = np.unique(np.asarray(self.sentence)[chosen], return_inverse=True)
        sums = np.zeros((sentence.max() + 1, 8))
        np.add.at(sums, sentence, np.asarray(self.moments)[chosen])
        return [jackknife(sums, STATISTICS[name], table="interventions", metric=name, unit="fraction", **dimensions)
                for name in statistics]

    @property
    def is_elsewhere(self) -> np.ndarray:
        """Whether the masked word's own state was left alone, so that the change came through the layers above."""
        return np.asarray(self.distance) > 0


def jackknife(sums: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], **dimensions: Any) -> Metric:
    """A statistic of the sum of rows (n, k), one row a sentence, with its standard error."""
    n, total = len(sums), sums.sum(axis=0)
    without = statistic(total - sums)
    error = float(np.sqrt((n - 1) / n * np.square(without - without.mean()).sum()))
    return Metric(value=float(statistic(total)), error=error if n > 1 and np.isfinite(error) else None, n=n,
                  **dimensions)


def mean_over_sentences(sentence: np.ndarray, values: np.ndarray, **dimensions: Any) -> Metric:
    """The mean of values, with its standard error over sentences."""
    _, index = np.unique(sentence, return_inverse=True)
    sums = np.stack([np.bincount(index, values), np.bincount(index)], axis=1)
    return jackknife(sums, lambda m: _ratio(m[..., 0], m[..., 1]), **dimensions)


def half_way_step(curve: Mapping[int, float]) -> float:
    """The first step at which a curve (step -> value) is half of the way from its first value to its last.

    Interpolated linearly over the logarithm of the step; NaN if the two values are equal.
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
