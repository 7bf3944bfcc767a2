"""Edited hidden states of a span, from which a probe reads that the span is, or is not, a constituent.

A probe reads the states of the first and the last word of a span, side by side: x (n, 2 width).
"""

from __future__ import annotations

import numpy as np

from pcfg_artifact.probing.probes import FittedProbe
from pcfg_artifact.system.random_streams import stream

MAX_STEPS = 30  # a linear probe needs one
CLOSE = 1e-3  # of the answer to what it should become
AT_ONCE = 1 << 24  # numbers that a probe reads in one call
DIFFERENCE = 0.05  # step of the difference quotient, as a share of the standard deviation of all coordinates


def span_inputs(states: np.ndarray, width: int) -> np.ndarray:
    """(L - width + 1, 2 width of the model): what a probe reads of every span; states (L + 2, .) with BOS and EOS."""
    n = max(len(states) - 2 - width + 1, 0)
    return np.concatenate([states[1:1 + n], states[width:width + n]], axis=1)


def moved(probe: FittedProbe, x: np.ndarray, answer: float) -> np.ndarray:
    """x after the smallest change that makes the probe answer `answer`: one step along the weights of a linear probe,
    repeated steps along the gradient of any other."""
    x = x.astype(np.float32, copy=True)
    for _ in range(MAX_STEPS):
        missing = answer - probe.predict(x)[0].astype(np.float64)
        todo = np.flatnonzero(np.abs(missing) > CLOSE)
        if not len(todo):
            break
        slope = gradient(probe, x[todo])
        size = (slope ** 2).sum(axis=1, keepdims=True)
        step = np.divide(missing[todo, None] * slope, size, out=np.zeros_like(slope), where=size > 0)
        x[todo] += step.astype(np.float32)
    return x


def gradient(probe: FittedProbe, x: np.ndarray) -> np.ndarray:
    """(n, D) by difference quotients, which every probe allows; networks are piecewise linear."""
    width = x.shape[1]
    step = np.float32(DIFFERENCE * max(float(x.std()), 1e-3))
    parts = []
    for some in np.split(x, range(0, len(x), max(1, AT_ONCE // width**2))[1:]):
        around = np.repeat(some[:, None], width, axis=1)
        around[:, np.arange(width), np.arange(width)] += step
        answers = probe.predict(around.reshape(-1, width))[0].reshape(-1, width)
        parts.append((answers - probe.predict(some)[0][:, None]) / step)
    return np.concatenate(parts).astype(np.float64)


def random_steps(x: np.ndarray, to_one: np.ndarray, to_zero: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps in opposite random directions, as long as those to `to_one` and to `to_zero`."""
    direction = stream(seed, "random direction").standard_normal(x.shape)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    lengths = (np.linalg.norm(other - x, axis=1, keepdims=True) for other in (to_one, to_zero))
    forth, back = (length * direction for length in lengths)
    return (x + forth).astype(np.float32), (x - back).astype(np.float32)


def nearest(pool: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The state nearest to every x in a pool of states of other sentences."""
    distances = (pool ** 2).sum(axis=1) - 2 * x.astype(np.float64) @ pool.T.astype(np.float64)
    return pool[distances.argmin(axis=1)]


def with_span(states: np.ndarray, span: tuple[int, int], x: np.ndarray) -> np.ndarray:
    """(K, L + 2, width): for each of x (K, 2 width), the states with x at the span's first and last word."""
    copies = np.repeat(states[None], len(x), axis=0)
    width = states.shape[1]
    copies[:, span[0] + 1], copies[:, span[1]] = x[:, :width], x[:, width:]
    return copies
