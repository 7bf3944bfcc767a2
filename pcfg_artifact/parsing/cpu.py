"""The `cpu` engine: compiled kernels, a workspace per thread, threads over sentences."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.parsing import linear, logspace
from pcfg_artifact.parsing.charts import Chart, cell_bounds
from pcfg_artifact.parsing.compiled import CompiledGrammar
from pcfg_artifact.parsing.reference import log_of

KEPT_LENGTH = 100  # words: the workspace of a thread is kept up to this length
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
        self._one_long = threading.Lock()

    def chart(self, leaves: np.ndarray) -> Chart:
        """Linear space; log space where a value would leave the range of float64."""
        with self._workspace(len(leaves)) as work:
            return self.linear_chart(leaves, work) or self.log_chart(leaves)

    def log_prob(self, leaves: np.ndarray) -> float:
        """Log probability of the sentence: the inside pass alone."""
        with self._workspace(len(leaves)) as work:
            found = self._scaled_inside(leaves, work)
            if found is None:
                return self.log_chart(leaves).log_prob
            if not len(leaves):
                return -np.inf
            cell = linear.cell_of.py_func(0, len(leaves))
            whole = slice(work.offsets[cell], work.offsets[cell + 1])
            root = np.concatenate([self.grammar.root_inner, self.grammar.root_leaf])
            return float(log_of(work.inside[whole] @ root[work.symbols[whole]]) + found[1].sum())

    @contextmanager
    def _workspace(self, length: int) -> Iterator[linear.Workspace]:
        if length > KEPT_LENGTH:
            with self._one_long:  # long sentences one at a time, in memory that is given back
                self._check_memory(length)
                yield linear.workspace(self.grammar, length)
            return
        if getattr(self._local, "longest", -1) < length:
            self._local.longest = min(max(2 * length, 40), KEPT_LENGTH)
            self._local.workspace = linear.workspace(self.grammar, self._local.longest)
        yield self._local.workspace

    def _check_memory(self, length: int) -> None:
        """Refuse a sentence whose chart may not fit, instead of being killed half-way."""
        per_square_word = 26 * self.grammar.n_interminals + 4 * len(self.grammar.inner.left) // linear.WORD
        needed, available = per_square_word * (length + 1) ** 2, available_memory()
        if needed > available:
            fits = int((available / per_square_word) ** 0.5)
            raise UsageError(f"a sentence of {length:,} words may need {needed / 1e9:.1f} GB for its chart with this "
                             f"grammar ({self.grammar.n_interminals:,} in-terminals), {available / 1e9:.1f} GB are "
                             f"free; leave out sentences of more than about {fits:,} words")

    def _scaled_inside(self, leaves: np.ndarray, work: linear.Workspace) -> tuple[np.ndarray, np.ndarray] | None:
        """Fill the workspace; the leaves as they were scaled and the log of what was taken off, or None if refused."""
        peak = leaves.max(axis=1, initial=0.0)
        peak = np.where(peak > 0, peak, 1.0)
        scaled, log_scale = leaves / peak[:, None], np.log(peak)
        for _ in range(MAX_RESCALES):
            smallest_leaf = scaled.min(initial=1.0, where=scaled > 0)
            if smallest_leaf * self._smallest_rule < linear.SMALLEST_RULE:
                return None
            status, drift = linear.inside(self.grammar, scaled, self.is_full, work)
            if status != linear.DRIFTING:
                return (scaled, log_scale) if status == linear.DONE else None
            bits = -round(drift) if abs(drift) >= 1 else -int(np.sign(drift))
            scaled = np.ldexp(scaled, bits)  # exact: every span of n words is multiplied by 2^(n bits)
            log_scale -= bits * np.log(2.0)
        return None

    def linear_chart(self, leaves: np.ndarray, work: linear.Workspace) -> Chart | None:
        """The chart, or None where linear space is refused."""
        length, found = len(leaves), self._scaled_inside(leaves, work)
        if found is None or linear.outside(self.grammar, found[0], self.is_full, work) != linear.DONE:
            return None
        offsets, symbols, inside, outside = linear.collect(length, work)
        log_scale = np.append(0.0, np.cumsum(found[1]))
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


def available_memory() -> int:
    """Bytes that can be had without swapping."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux: all there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def typed_cells(length: int, inner: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    """(cells, N) in the order of charts from (cells, I) in the order of kernels and (L, P)."""
    starts, ends = cell_bounds(length)
    cells = np.full((len(starts), inner.shape[1] + leaf.shape[1]), -np.inf)
    cells[:, :inner.shape[1]] = inner[linear.cell_of.py_func(starts, ends)]
    cells[ends - starts == 1, inner.shape[1]:] = leaf
    return cells
