"""The semirings of compiled recursions, which take one as their `space` and are compiled for each type of it.

LINEAR: sums of products of numbers; it has a type of its own, so that its arithmetic is compiled as if written out.
LOG: the same of logarithms.  BEST: the largest product, of logarithms (Viterbi).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

LINEAR, LOG, BEST = None, True, False
Space = bool | None

SMALLEST, LARGEST = 2.0 ** -900, 2.0 ** 900  # of what linear space holds
SMALLEST_RULE = 2.0 ** -100  # a value times a rule, or a rule times a leaf, is then still a normal float64


@njit(nogil=True)
def zero(space):
    return 0.0 if space is None else -np.inf


@njit(nogil=True)
def one(space):
    return 1.0 if space is None else 0.0


@njit(nogil=True)
def times(x, y, space):
    return x * y if space is None else x + y


@njit(nogil=True)
def over(x, y, space):
    return x / y if space is None else x - y


@njit(nogil=True)
def plus(x, y, space):
    if space is None:
        return x + y
    high, low = max(x, y), min(x, y)
    if space == BEST or low == -np.inf:
        return high
    return high + math.log1p(math.exp(low - high))


@njit(nogil=True)
def leaves_range(x, space):
    """Whether a value that is not 0 cannot be held safely."""
    return space is None and not SMALLEST < x < LARGEST
