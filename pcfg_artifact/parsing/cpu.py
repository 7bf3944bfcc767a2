"""The `cpu` engine: compiled kernels, a workspace per thread, threads over sentences."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import cell_bounds
from pcfg_artifact.parsing.charts import BestTree, Chart, log_of
from pcfg_artifact.parsing.constraints import NOTHING, Forbidden, each_forbidden
from pcfg_artifact.parsing.cpu_kernels import logspace, sentence_chart, workspace
from pcfg_artifact.parsing.cpu_kernels.rule_index import compiled
from pcfg_artifact.parsing.cpu_kernels.semiring import BEST, LOG
from pcfg_artifact.parsing.cpu_kernels.workspace import KernelArgs, kernel_args
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions
from pcfg_artifact.system.machine import available_memory
from pcfg_artifact.system.threads import ordered_map

Result = TypeVar("Result")

KEPT_LENGTH = 100  # words: the workspace of a thread is kept up to this length
# Of every grammar, from call to call, so that calls with few sentences do not begin with fresh memory.
_kept_workspaces: WeakKeyDictionary[PCFG, threading.local] = WeakKeyDictionary()


class CpuEngine:
    """One grammar, one kind of outside; every thread has a workspace, which engines of the same grammar share."""

    def __init__(self, grammar: PCFG, options: EngineOptions = DEFAULT) -> None:
        self.grammar = compiled(grammar)
        self.is_full = options.is_full
        self.n_threads = options.n_threads or len(os.sched_getaffinity(0))
        self._smallest_rule = self.grammar.smallest_prob
        self._local = _kept_workspaces.setdefault(grammar, threading.local())
        self._one_long = threading.Lock()

    def charts(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[Chart]:
        """A chart for each sentence, in order; results do not depend on the number of threads."""
        return self._each(self.chart, leaves, forbidden)

    def log_probs(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[float]:
        return self._each(self.log_prob, leaves, forbidden)

    def best_trees(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[BestTree]:
        return self._each(self.best_tree, leaves, forbidden)

    def _each(self, work: Callable[[np.ndarray, Forbidden], Result], leaves: Sequence[np.ndarray],
              forbidden: Sequence[Forbidden]) -> Iterator[Result]:
        items = zip(leaves, each_forbidden(forbidden, len(leaves)), strict=True)
        return ordered_map(lambda item: work(*item), items, min(self.n_threads, max(len(leaves), 1)))

    def chart(self, leaves: np.ndarray, forbidden: Forbidden = NOTHING) -> Chart:
        """Linear space; log space where a value would leave the range of float64."""
        return self.with_args(len(leaves), lambda args: self.linear_chart(leaves, args, forbidden)
                             or self.log_chart(leaves, forbidden))

    def log_prob(self, leaves: np.ndarray, forbidden: Forbidden = NOTHING) -> float:
        """Log probability of the sentence: the inside pass alone."""
        def work(args: KernelArgs) -> float:
            status, log_prob = sentence_chart.log_prob(args, self._allowed(leaves, forbidden), self._smallest_rule,
                                                     forbidden)
            return log_prob if status == workspace.DONE else self.log_chart(leaves, forbidden).log_prob

        return self.with_args(len(leaves), work)

    def best_tree(self, leaves: np.ndarray, forbidden: Forbidden = NOTHING) -> BestTree:
        """Viterbi in log space, which holds the probability of any one tree."""
        if not len(leaves):
            return BestTree.none()
        log_leaves = log_of(self._allowed(leaves, forbidden))
        best = logspace.inside(self.grammar, log_leaves, forbidden, BEST)
        return logspace.best_tree(self.grammar, log_leaves, best)

    def with_args(self, length: int, work: Callable[[KernelArgs], Result]) -> Result:
        if length > KEPT_LENGTH:
            with self._one_long:  # long sentences one at a time, in memory that is given back
                self._check_memory(length)
                return work(kernel_args(self.grammar, length))
        if getattr(self._local, "longest", -1) < length:
            self._local.longest = min(max(2 * length, 40), KEPT_LENGTH)
            self._local.args = kernel_args(self.grammar, self._local.longest)
        return work(self._local.args)

    def _check_memory(self, length: int) -> None:
        """Refuse a sentence whose chart may not fit, instead of being killed half-way."""
        per_square_word = workspace.bytes_per_square_word(self.grammar)
        needed, available = per_square_word * (length + 1) ** 2, available_memory()
        if needed > available:
            fits = int((available / per_square_word) ** 0.5)
            raise UsageError(f"a sentence of {length:,} words may need {needed / 1e9:.1f} GB for its chart with this "
                             f"grammar ({self.grammar.n_interminals:,} in-terminals), {available / 1e9:.1f} GB are "
                             f"free; leave out sentences of more than about {fits:,} words")

    def _allowed(self, leaves: np.ndarray, forbidden: Forbidden) -> np.ndarray:
        return forbidden.allowed_leaves(np.ascontiguousarray(leaves, np.float64), self.grammar.n_interminals)

    def linear_chart(self, leaves: np.ndarray, args: KernelArgs, forbidden: Forbidden) -> Chart | None:
        """The chart, or None where linear space is refused."""
        status, log_prob, log_scale, offsets, symbols, inside, outside = sentence_chart.chart(
            args, self._allowed(leaves, forbidden), self.is_full, self._smallest_rule, forbidden)
        if status != workspace.DONE:
            return None
        return Chart(
            length=len(leaves), n_nonterminals=self.grammar.n_interminals + self.grammar.n_preterminals,
            log_prob=log_prob, offsets=offsets, symbols=symbols, inside=inside, outside=outside, log_scale=log_scale)

    def log_chart(self, leaves: np.ndarray, forbidden: Forbidden = NOTHING) -> Chart:
        """The chart by the log-space kernels, which hold any value."""
        length, n_interminals = len(leaves), self.grammar.n_interminals
        log_leaves = log_of(self._allowed(leaves, forbidden))
        alpha = logspace.inside(self.grammar, log_leaves, forbidden, LOG)
        beta, leaf_beta = logspace.outside(self.grammar, log_leaves, alpha, forbidden)
        log_inside, log_outside = (
            typed_cells(length, inner, leaf) for inner, leaf in ((alpha, log_leaves), (beta, leaf_beta)))
        if not self.is_full:
            log_outside[log_inside == -np.inf] = -np.inf
        root = np.concatenate([self.grammar.root_inner, self.grammar.root_leaf])
        log_prob = float(np.logaddexp.reduce(log_of(root) + log_inside[length - 1])) if length else -np.inf
        return Chart.from_cells(length, n_interminals + self.grammar.n_preterminals, log_prob, log_inside, log_outside)


def typed_cells(length: int, inner: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    """(cells, N) from (cells, I) and (L, P)."""
    starts, ends = cell_bounds(length)
    leaves = np.full((len(inner), leaf.shape[1]), -np.inf)
    leaves[ends - starts == 1] = leaf
    return np.concatenate([inner, leaves], axis=1)
