"""The `cpu` engine: compiled kernels, a workspace per thread, threads over sentences."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pcfg_artifact.parsing import linear, logspace
from pcfg_artifact.parsing.charts import Chart, cell_bounds
from pcfg_artifact.parsing.compiled import CompiledGrammar
from pcfg_artifact.parsing.reference import log_of

MAX_RESCALES = 20  # each moves the first cell that drifted back to about 1


def charts(grammar: CompiledGrammar, leaves: Sequence[np.ndarray], is_full: bool, n_threads: int | None = None
           ) -> Iterator[Chart]:
    """A chart for each sentence, in order; results do not depend on the number of threads."""
    n_threads = min(n_threads or len(os.sched_getaffinity(0)), max(len(leaves), 1))
    engine = Engine(grammar, is_full)
    if n_threads == 1:
        yield from map(engine.chart, leaves)
        return
    waiting: deque = deque()
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            for rows in leaves:
                waiting.append(pool.submit(engine.chart, rows))
                if len(waiting) > 4 * n_threads:  # a reader that is slower than the engine must not fill the memory
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class Engine:
    """One grammar, one kind of outside; every thread that calls it keeps its own workspace."""

    def __init__(self, grammar: CompiledGrammar, is_full: bool) -> None:
        self.grammar = grammar
        self.is_full = is_full
        self._smallest_rule = grammar.smallest_prob
        self._local = threading.local()

    def _workspace(self, length: int) -> linear.Workspace:
        if getattr(self._local, "longest", -1) < length:
            self._local.workspace = None  # released before the larger one is made
            self._local.longest = max(length, 40)
            self._local.workspace = linear.workspace(self.grammar, self._local.longest)
        return self._local.workspace

    def chart(self, leaves: np.ndarray) -> Chart:
        """Linear space; log space where a value would leave the range of float64."""
        return self.linear_chart(leaves) or self.log_chart(leaves)

    def linear_chart(self, leaves: np.ndarray) -> Chart | None:
        """The chart, or None where linear space is refused."""
        length = len(leaves)
        peak = leaves.max(axis=1, initial=0.0)
        log_scale = np.log(np.where(peak > 0, peak, 1.0))
        scaled = leaves / np.where(peak > 0, peak, 1.0)[:, None]
        work = self._workspace(length)
        status, drift = linear.DRIFTING, 0.0
        for _ in range(MAX_RESCALES):
            smallest_leaf = scaled.min(initial=1.0, where=scaled > 0)
            if smallest_leaf * self._smallest_rule < linear.SMALLEST_RULE:
                return None
            status, drift = linear.inside(self.grammar, scaled, self.is_full, work)
            if status != linear.DRIFTING:
                break
            bits = -round(drift) if abs(drift) >= 1 else -int(np.sign(drift))
            scaled = np.ldexp(scaled, bits)  # exact: every span of n words is multiplied by 2^(n bits)
            log_scale -= bits * np.log(2.0)
        if status != linear.DONE or linear.outside(self.grammar, scaled, self.is_full, work) != linear.DONE:
            return None
        offsets, symbols, inside, outside = linear.collect(length, work)
        log_scale = np.append(0.0, np.cumsum(log_scale))
        whole = slice(offsets[length - 1], offsets[length]) if length else slice(0)
        total = float(inside[whole] @ outside[whole])  # beta of the whole sentence is the root distribution
        return Chart(
            length=length, n_nonterminals=self.grammar.n_interminals + self.grammar.n_preterminals,
            log_prob=float(np.log(total) + log_scale[-1]) if total > 0 else -np.inf,
            offsets=offsets, symbols=symbols, inside=inside, outside=outside, log_scale=log_scale)

    def log_chart(self, leaves: np.ndarray) -> Chart:
        """The chart by the log-space kernels, which hold any value."""
        length, n_interminals = len(leaves), self.grammar.n_interminals
        log_leaves = log_of(leaves)
        alpha = logspace.inside(self.grammar, log_leaves, False)
        beta, leaf_beta = logspace.outside(self.grammar, log_leaves, alpha)
        log_inside, log_outside = (
            typed_cells(length, inner, leaf) for inner, leaf in ((alpha, log_leaves), (beta, leaf_beta)))
        if not self.is_full:
            log_outside[log_inside == -np.inf] = -np.inf
        root = np.concatenate([self.grammar.root_inner, self.grammar.root_leaf])
        log_prob = float(np.logaddexp.reduce(log_of(root) + log_inside[length - 1])) if length else -np.inf
        return Chart.from_cells(length, n_interminals + self.grammar.n_preterminals, log_prob, log_inside, log_outside)


def typed_cells(length: int, inner: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    """(cells, N) in the order of charts from (cells, I) in the order of kernels and (L, P)."""
    starts, ends = cell_bounds(length)
    cells = np.full((len(starts), inner.shape[1] + leaf.shape[1]), -np.inf)
    cells[:, :inner.shape[1]] = inner[linear.cell_of.py_func(starts, ends)]
    cells[ends - starts == 1, inner.shape[1]:] = leaf
    return cells
