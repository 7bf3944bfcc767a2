"""Arithmetic of kernels that are compiled twice: `log` is None in linear space, True where values are logarithms."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

SMALLEST, LARGEST = 2.0 ** -900, 2.0 ** 900  # of what linear space holds
SMALLEST_RULE = 2.0 ** -100  # a value times a rule, or a rule times a leaf, is then still a normal float64


@njit(nogil=True)
def zero(log):
    if log is None:
        return 0.0
    return -np.inf


@njit(nogil=True)
def one(log):
    if log is None:
        return 1.0
    return 0.0


@njit(nogil=True)
def times(x, y, log):
    if log is None:
        return x * y
    return x + y


@njit(nogil=True)
def over(x, y, log):
    if log is None:
        return x / y
    return x - y


@njit(nogil=True)
def plus(x, y, log):
    if log is None:
        return x + y
    if x < y:
        x, y = y, x
    if y == -np.inf:
        return x
    return x + math.log1p(math.exp(y - x))


@njit(nogil=True)
def leaves_range(x, log):
    """Whether a value that is not 0 cannot be held safely."""
    if log is None:
        return not SMALLEST < x < LARGEST
    return False
