"""Sums over chains of left children, R = (1 - P_L)^-1, by the sparse factors of a Closure; compiled kernels."""

from __future__ import annotations

import numpy as np
from numba import njit

from pcfg_artifact.parsing.cpu_kernels.semiring import plus, times, zero
from pcfg_artifact.parsing.prefix.prefix_grammar import Closure


@njit(nogil=True)
def solve(closure, vector):
    """R v, by the sparse factors."""
    n = len(vector)
    y = np.empty(n)
    for a in range(n):
        y[closure.row_rank[a]] = vector[a]
    for j in range(n):
        if y[j] != 0.0:
            for e in range(closure.lower_first[j], closure.lower_first[j + 1]):
                y[closure.lower_row[e]] -= closure.lower[e] * y[j]
    for j in range(n - 1, -1, -1):
        if y[j] != 0.0:
            y[j] /= closure.diagonal[j]
            for e in range(closure.upper_first[j], closure.upper_first[j + 1]):
                y[closure.upper_row[e]] -= closure.upper[e] * y[j]
    found = np.empty(n)
    for a in range(n):
        found[a] = y[closure.column_rank[a]]
    return found


@njit(nogil=True)
def solve_transposed(closure, vector):
    """v R, by the sparse factors."""
    n = len(vector)
    y = np.empty(n)
    for a in range(n):
        y[closure.column_rank[a]] = vector[a]
    for j in range(n):
        total = y[j]
        for e in range(closure.upper_first[j], closure.upper_first[j + 1]):
            total -= closure.upper[e] * y[closure.upper_row[e]]
        y[j] = total / closure.diagonal[j]
    for j in range(n - 1, -1, -1):
        total = y[j]
        for e in range(closure.lower_first[j], closure.lower_first[j + 1]):
            total -= closure.lower[e] * y[closure.lower_row[e]]
        y[j] = total
    found = np.empty(n)
    for a in range(n):
        found[a] = y[closure.row_rank[a]]
    return found


@njit(nogil=True, cache=True)
def solve_columns(closure: Closure, columns: np.ndarray) -> np.ndarray:
    """R times a matrix (I, n)."""
    found = np.empty_like(columns)
    for c in range(columns.shape[1]):
        found[:, c] = solve(closure, columns[:, c].copy())
    return found


@njit(nogil=True)
def begun_by(closure, log_closure, vector, space):
    """(I,) v R: what begins where the symbols of v begin."""
    if space is None:
        return solve_transposed(closure, vector)
    found = np.full(len(vector), -np.inf)
    for a in range(len(vector)):
        if vector[a] != -np.inf:
            for b in range(len(vector)):
                found[b] = plus(found[b], vector[a] + log_closure[a, b], space)
    return found


@njit(nogil=True)
def begun_with(closure, log_closure, vector, space):
    """(I,) R v: the value of a symbol from those of the symbols that it may begin with."""
    if space is None:
        return solve(closure, vector)
    found = np.full(len(vector), -np.inf)
    for a in range(len(vector)):
        for b in range(len(vector)):
            found[a] = plus(found[a], log_closure[a, b] + vector[b], space)
    return found


@njit(nogil=True)
def add_left_children(corner_first, corner, corner_prob, vector, total, space):
    """total(B) += sum over A of v(A) P_L(A, B)"""
    for a in range(len(vector)):
        if vector[a] != zero(space):
            for e in range(corner_first[a], corner_first[a + 1]):
                total[corner[e]] = plus(total[corner[e]], times(vector[a], corner_prob[e], space), space)
