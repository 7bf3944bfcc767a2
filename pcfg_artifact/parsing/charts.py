"""Charts: what Inside-Outside found in one sentence, kept compact; dense arrays are built only when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from pcfg_artifact.parsing.chart_index import cell_bounds, cell_of, n_cells


def log_of(probability: np.ndarray) -> np.ndarray:
    """Logarithm with log 0 = -inf and no warning."""
    with np.errstate(divide="ignore"):
        return np.log(probability)


def span_maxima(length: int, offsets: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(L+1, L+1) largest value among the entries of each cell, 0 in cells without any."""
    largest = np.zeros((length + 1, length + 1))
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        starts, ends = cell_bounds(length)
        largest[starts[filled], ends[filled]] = np.maximum.reduceat(values, offsets[filled])
    return largest


class SpanChart(Protocol):
    """What every chart knows, whatever made it: enough for a Labelled-Recall tree and its labels.

    Cells are in the order of `cell_bounds`; cell c holds entries offsets[c]:offsets[c + 1], with symbols (E,) and
    entry_marginals (E,).
    """

    @property
    def length(self) -> int: ...
    @property
    def log_prob(self) -> float: ...
    @property
    def offsets(self) -> np.ndarray: ...
    @property
    def symbols(self) -> np.ndarray: ...
    @property
    def entry_marginals(self) -> np.ndarray: ...
    def span_scores(self) -> np.ndarray: ...


def entries_of(chart: SpanChart, i: int, j: int) -> slice:
    """The entries of the cell (i, j)."""
    cell = cell_of(i, j, chart.length)
    return slice(chart.offsets[cell], chart.offsets[cell + 1])


class BestTree(NamedTuple):
    """The most probable tree of a sentence: its log probability and its nodes (2L-1, 3), symbol, i, j, in preorder.

    Symbols are numbered as in the grammar; without any tree log_prob is -inf and there are no nodes.
    """

    log_prob: float
    nodes: np.ndarray

    @classmethod
    def none(cls) -> BestTree:
        return cls(-np.inf, np.zeros((0, 3), np.int64))


@dataclass(frozen=True, eq=False)
class SpanScores:
    """What a Labelled-Recall tree needs of a chart, and its log probability."""

    length: int
    log_prob: float
    scores: np.ndarray  # (L+1, L+1)

    def span_scores(self) -> np.ndarray:
        return self.scores


@dataclass(frozen=True, eq=False)
class Chart:
    """Inside and outside values of one sentence of `length` words, for the entries (A, i, j) that are not impossible.

    Cells are ordered as in `cell_bounds`; cell c holds entries offsets[c]:offsets[c + 1].
    symbols (E,): non-terminal of each entry.  inside, outside (E,): scaled so that
    log alpha(A,i,j) = log inside + log_scale[j] - log_scale[i], and beta the same with the words around the span;
    with `is_log` they are logarithms already and log_scale is 0.
    """

    length: int
    n_nonterminals: int
    log_prob: float
    offsets: np.ndarray
    symbols: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    log_scale: np.ndarray
    is_log: bool = False

    # ---- compact views ---------------------------------------------------------------------------------------------

    @property
    def n_entries(self) -> int:
        return len(self.symbols)

    @cached_property
    def _cells(self) -> np.ndarray:
        return np.repeat(np.arange(n_cells(self.length)), np.diff(self.offsets))

    @property
    def entry_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(i, j) of every entry."""
        starts, ends = cell_bounds(self.length)
        return starts[self._cells], ends[self._cells]

    @property
    def entry_log_inside(self) -> np.ndarray:
        starts, ends = self.entry_bounds
        return self._log(self.inside) + (self.log_scale[ends] - self.log_scale[starts])

    @property
    def entry_log_outside(self) -> np.ndarray:
        starts, ends = self.entry_bounds
        around = self.log_scale[-1] - (self.log_scale[ends] - self.log_scale[starts])
        return self._log(self.outside) + around

    @cached_property
    def entry_marginals(self) -> np.ndarray:
        """Posterior probability of every entry; zeros when the sentence has no probability."""
        if self.log_prob == -np.inf:
            return np.zeros(self.n_entries)
        if self.is_log:
            return np.exp(self.inside + self.outside - self.log_prob)
        # log Z in the scale of the products: every word is counted once, by alpha or by beta
        return self.inside * self.outside * np.exp(self.log_scale[-1] - self.log_prob)

    def span_scores(self) -> np.ndarray:
        """(L+1, L+1): s(i, j) = max over A of the marginal of (A, i, j)."""
        return span_maxima(self.length, self.offsets, self.entry_marginals)

    def leaf_outside(self, n_interminals: int) -> np.ndarray:
        """(L, P) beta of every pre-terminal over its word, each row scaled to sum to 1 (0 where nothing fits)."""
        starts = np.arange(self.length)
        leaf_cells = cell_of(starts, starts + 1, self.length)
        outside = np.zeros((self.length, self.n_nonterminals - n_interminals))
        for t, (begin, end) in enumerate(zip(self.offsets[leaf_cells], self.offsets[leaf_cells + 1], strict=True)):
            values, symbols = self.outside[begin:end], self.symbols[begin:end] - n_interminals
            if self.is_log:
                peak = values.max(initial=-np.inf)
                values = np.exp(values - (peak if peak > -np.inf else 0.0))
            total = values.sum()
            outside[t, symbols] = values / total if total > 0 else 0.0
        return outside

    # ---- dense arrays, built on access -----------------------------------------------------------------------------

    @property
    def log_inside(self) -> np.ndarray:
        """(L+1, L+1, N) log alpha, -inf where impossible."""
        return self._dense(self.entry_log_inside, -np.inf)

    @property
    def log_outside(self) -> np.ndarray:
        """(L+1, L+1, N) log beta, -inf where impossible."""
        return self._dense(self.entry_log_outside, -np.inf)

    @property
    def marginals(self) -> np.ndarray:
        """(L+1, L+1, N) posterior probability of (A, i, j)."""
        return self._dense(self.entry_marginals, 0.0)

    def _dense(self, values: np.ndarray, empty: float) -> np.ndarray:
        dense = np.full((self.length + 1, self.length + 1, self.n_nonterminals), empty)
        starts, ends = self.entry_bounds
        dense[starts, ends, self.symbols] = values
        return dense

    def _log(self, values: np.ndarray) -> np.ndarray:
        return values if self.is_log else log_of(values)

    @classmethod
    def from_logs(cls, log_prob: float, log_inside: np.ndarray, log_outside: np.ndarray) -> Chart:
        """The compact form of dense log charts (L+1, L+1, N)."""
        length, n_nonterminals = len(log_inside) - 1, log_inside.shape[-1]
        cells = cell_bounds(length)
        return cls.from_cells(length, n_nonterminals, log_prob, log_inside[cells], log_outside[cells])

    @classmethod
    def from_cells(cls, length: int, n_nonterminals: int, log_prob: float, log_inside: np.ndarray,
                   log_outside: np.ndarray) -> Chart:
        """The compact form of log charts given by cell, (cells, N)."""
        cells, symbols = np.nonzero((log_inside > -np.inf) | (log_outside > -np.inf))
        offsets = np.zeros(n_cells(length) + 1, np.int64)
        np.cumsum(np.bincount(cells, minlength=n_cells(length)), out=offsets[1:])
        return cls(length=length, n_nonterminals=n_nonterminals, log_prob=log_prob, offsets=offsets,
                   symbols=symbols.astype(np.int32), inside=log_inside[cells, symbols],
                   outside=log_outside[cells, symbols], log_scale=np.zeros(length + 1), is_log=True)
