"""Least solutions of z = f(z) for the polynomials of a grammar: sums over all trees of a symbol.

Newton's method from 0 rises to the least solution where there is one (Etessami and Yannakakis 2009).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ITERATIONS = 200  # critical systems gain a bit each time, all others double their digits
CLOSE = 1e-13  # of a solution, relative


class NoSolutionError(Exception):
    """The sums of the symbols with these numbers grow without end."""

    def __init__(self, symbols: np.ndarray) -> None:
        super().__init__(f"symbols {symbols}")
        self.symbols: list[int] = symbols.tolist()


def least_solution(n_symbols: int, terms: Sequence[tuple[int, tuple[int, ...], float]]) -> np.ndarray:
    """(n_symbols,) the least z >= 0 with z[a] = the sum over terms (a, factors, weight) of weight * product z[factors].

    A NoSolutionError names symbols whose sum is infinite.
    """
    ends = np.zeros(n_symbols, bool)  # of the others every tree is endless: their sum is 0
    while True:
        more = {a for a, factors, weight in terms if weight > 0 and not ends[a] and all(ends[b] for b in factors)}
        if not more:
            break
        ends[list(more)] = True
    used = [(a, factors, weight) for a, factors, weight in terms if weight > 0 and all(ends[b] for b in factors)]
    z, identity = np.zeros(n_symbols), np.eye(n_symbols)
    for _ in range(ITERATIONS):
        value, slope = _value_and_slope(z, used)
        try:
            step = np.linalg.solve(identity - slope, value - z)
        except np.linalg.LinAlgError:
            raise NoSolutionError(np.flatnonzero(np.diag(slope) >= 1)) from None
        grown = z + step
        if not np.isfinite(grown).all() or (step < -1e-9 * (1 + z)).any():
            raise NoSolutionError(np.flatnonzero(~np.isfinite(grown) | (step < 0)))
        # Near a critical solution steps stay small long before they vanish: what counts is that f leaves it alone.
        if (np.abs(step) <= CLOSE * (1 + z)).all() or \
                ((np.abs(value - z) <= 1e-15 * (1 + z)).all() and z.any()):
            return np.where(ends, grown, 0.0)
        z = np.maximum(grown, z)
    raise NoSolutionError(np.flatnonzero(np.abs(step) > CLOSE * (1 + z)))


def _value_and_slope(z: np.ndarray, terms: Sequence[tuple[int, tuple[int, ...], float]]
                     ) -> tuple[np.ndarray, np.ndarray]:
    value, slope = np.zeros(len(z)), np.zeros((len(z), len(z)))
    for a, factors, weight in terms:
        values = z[list(factors)]
        value[a] += weight * values.prod()
        for n, b in enumerate(factors):
            slope[a, b] += weight * np.delete(values, n).prod()
    return value, slope
