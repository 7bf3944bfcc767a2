"""The `torch` engine: batches of sentences on any device, every width one tensor operation per split.

Legend.  Q pairs of children, S starts, N sentences of the batch; a tensor of width w has S = longest - w + 1 starts.
Each width is kept expanded to pairs (one row per pair, for its left and for its right child), so the cubic loop is a
multiply-add on contiguous memory and rules are applied once per width.  Outside is written out, not differentiated.
Sentences that float64 cannot hold go to the log-space kernels, so every chart is exact whatever the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import cell_bounds, n_cells
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.constraints import Forbidden, each_forbidden
from pcfg_artifact.parsing.cpu import CpuEngine
from pcfg_artifact.parsing.cpu_kernels import logspace
from pcfg_artifact.parsing.cpu_kernels.rule_index import LeafRules, compiled
from pcfg_artifact.parsing.options import DEFAULT, EngineOptions
from pcfg_artifact.parsing.reference import log_of
from pcfg_artifact.parsing.registry import BestTree
from pcfg_artifact.parsing.torch_constraints import Constrained, Masks
from pcfg_artifact.parsing.torch_viterbi import best_subtrees
from pcfg_artifact.system.machine import free_gpu_memory

Result = TypeVar("Result")
Work = Callable[[list[Constrained]], list[Result]]

MEMORY_BUDGET = 256 << 20  # bytes of one batch on a CPU; a GPU gives half of what it has free
WINDOW = 512  # sentences within which batches are sorted by length
BATCH_CPU = 16  # sentences: more only spill the caches of a CPU
DENSE = 0.05  # share of non-zeros above which a rule matrix is multiplied as a dense one
COMFORT = 2.0 ** 440  # float64: products of two values between 1 / COMFORT and COMFORT keep full precision
RESCALE_EVERY, RESCALE_BITS = 8, 96  # widths; drift of the largest value that calls for another scale


class TorchEngine:
    """One grammar on one device."""

    def __init__(self, pcfg: PCFG, options: EngineOptions = DEFAULT) -> None:
        try:
            self.device = torch.device(options.device)
            torch.zeros(1, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise UsageError(f"device {options.device!r} cannot be used ({error}); try --set machine.device=cpu in a "
                             f"run, --device cpu in a tool, device='cpu' in Python") from error
        self.dtype: torch.dtype = getattr(torch, options.dtype)
        self.grammar = grammar = compiled(pcfg)
        self.is_full = options.is_full
        self.fallback = CpuEngine(pcfg, options)
        inner, n_interminals = grammar.inner, grammar.n_interminals
        pair_of_rule = np.repeat(np.arange(len(inner.left)), np.diff(inner.first))
        self.inner_left, self.inner_right = self._index(inner.left), self._index(inner.right)
        self.inner_rules = self._rules(inner.parent, pair_of_rule, inner.prob, len(inner.left))
        ones = np.ones(len(inner.left))
        self.to_left = self._matrix(inner.left, np.arange(len(inner.left)), ones, n_interminals, len(inner.left))
        self.to_right = self._matrix(inner.right, np.arange(len(inner.left)), ones, n_interminals, len(inner.left))
        self.right_leaf = LeafEdgeTensors(self, grammar.right_leaf)
        self.left_leaf = LeafEdgeTensors(self, grammar.left_leaf)
        self.two_leaves = LeafPairTensors(self, grammar.two_leaves)
        self.root_inner = torch.as_tensor(grammar.root_inner, dtype=self.dtype, device=self.device)
        self.root_leaf = torch.as_tensor(grammar.root_leaf, dtype=self.dtype, device=self.device)

    def _index(self, ids: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(ids.astype(np.int64), device=self.device)

    def _matrix(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, n_rows: int, n_columns: int
                ) -> torch.Tensor:
        """A rule matrix, sparse unless it is rather full."""
        index = torch.as_tensor(np.stack([rows.astype(np.int64), columns.astype(np.int64)]))
        matrix = torch.sparse_coo_tensor(index, torch.as_tensor(values, dtype=self.dtype), (n_rows, n_columns),
                                         check_invariants=True)
        is_dense = len(values) > DENSE * n_rows * n_columns
        return (matrix.to_dense() if is_dense else matrix.coalesce()).to(self.device)

    def _rules(self, parent: np.ndarray, pair: np.ndarray, prob: np.ndarray, n_pairs: int
               ) -> tuple[torch.Tensor, torch.Tensor]:
        """The matrix from pairs to parents (I, Q) and its transpose."""
        n_interminals = self.grammar.n_interminals
        return (self._matrix(parent, pair, prob, n_interminals, n_pairs),
                self._matrix(pair, parent, prob, n_pairs, n_interminals))

    # ---- batches ---------------------------------------------------------------------------------------------------

    def charts(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[Chart]:
        return self._each(self._batch_charts, leaves, forbidden)

    def log_probs(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[float]:
        return self._each(self._batch_log_probs, leaves, forbidden)

    def best_trees(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[BestTree]:
        return self._each(self._batch_best_trees, leaves, forbidden)

    def _each(self, work: Work[Result], leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden]
              ) -> Iterator[Result]:
        """A result for each sentence, in order; sentences of like length share a batch, none is dropped."""
        all_forbidden = each_forbidden(forbidden, len(leaves))
        for begin in range(0, len(leaves), WINDOW):
            window = [Constrained(leaves[s], all_forbidden[s]) for s in range(begin, min(begin + WINDOW, len(leaves)))]
            done: dict[int, Result] = {}
            for batch in self._batches([len(rows) for rows, _ in window]):
                done.update(zip(batch, self._done(work, [window[s] for s in batch]), strict=True))
            yield from (done[s] for s in range(len(window)))

    def _done(self, work: Work[Result], batch: list[Constrained]) -> list[Result]:
        """work(batch), in halves where the device has no memory for all of it at once."""
        try:
            return work(batch)
        except torch.OutOfMemoryError as error:
            if len(batch) == 1:
                raise StageError(f"a sentence of {len(batch[0].leaves)} words needs more memory than {self.device} has "
                                 f"({error}); lower the longest length, or use the engine `cpu`") from error
        half = len(batch) // 2
        return self._done(work, batch[:half]) + self._done(work, batch[half:])

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Indices of sentences by length, as many at a time as the memory budget holds."""
        is_cpu = self.device.type == "cpu"
        budget = MEMORY_BUDGET if is_cpu else max(MEMORY_BUDGET, free_gpu_memory(str(self.device)) // 2)
        batch: list[int] = []
        for s in sorted(range(len(lengths)), key=lambda s: (lengths[s], s)):
            size = (len(batch) + 1) * self._bytes(lengths[s])
            if batch and (size > budget or (is_cpu and len(batch) == BATCH_CPU)):
                yield batch
                batch = []
            batch.append(s)
        if batch:
            yield batch

    def _bytes(self, length: int) -> int:
        """Memory that one sentence needs: pairs of every cell, four times, and charts."""
        rows = 4 * len(self.grammar.inner.left) + 4 * self.grammar.n_interminals
        return n_cells(length) * rows * self.dtype.itemsize

    def _batch_charts(self, batch: list[Constrained]) -> list[Chart]:
        if max(len(rows) for rows, _ in batch) < 1:
            return [self.fallback.chart(*one) for one in batch]
        run, log_peaks = self._run(batch)
        with torch.no_grad():
            run.inside()
            run.outside()
        return [chart if (chart := run.chart(n, log_peaks[n])) is not None else self.fallback.chart(*batch[n])
                for n in range(len(batch))]

    def _batch_log_probs(self, batch: list[Constrained]) -> list[float]:
        if max(len(rows) for rows, _ in batch) < 1:
            return [-np.inf] * len(batch)
        run, log_peaks = self._run(batch)
        with torch.no_grad():
            run.inside()
        return [found if (found := run.log_prob(n, log_peaks[n])) is not None else self.fallback.log_prob(*batch[n])
                for n in range(len(batch))]

    def _batch_best_trees(self, batch: list[Constrained]) -> list[BestTree]:
        if max(len(rows) for rows, _ in batch) < 1:
            return [BestTree.none()] * len(batch)
        log_leaves = [log_of(one.forbidden.allowed_leaves(one.leaves, self.grammar.n_interminals)) for one in batch]
        with torch.no_grad():
            best = best_subtrees(self.grammar, self._padded(log_leaves, -np.inf), self._masks(batch))
        trees = []
        for n, rows in enumerate(log_leaves):
            cells = cells_of_widths(best, len(rows), self.grammar.n_interminals, n, -np.inf)
            trees.append(logspace.best_tree(self.grammar, rows, cells) if len(rows) else BestTree.none())
        return trees

    def _masks(self, batch: list[Constrained]) -> Masks:
        return Masks(batch, self.grammar, self.device)

    def _run(self, batch: list[Constrained]) -> tuple[BatchPass, list[np.ndarray]]:
        """A batch with the leaves of every word divided by their largest, and the logs of what was divided by."""
        leaves = [one.forbidden.allowed_leaves(one.leaves, self.grammar.n_interminals) for one in batch]
        peaks = [np.where((peak := rows.max(axis=1, initial=0.0)) > 0, peak, 1.0) for rows in leaves]
        scaled = [rows / peak[:, None] for rows, peak in zip(leaves, peaks, strict=True)]
        lengths = [len(rows) for rows in leaves]
        return BatchPass(self, self._padded(scaled, 0.0), lengths, self._masks(batch)), [np.log(peak) for peak in peaks]

    def _padded(self, leaves: list[np.ndarray], padding: float) -> torch.Tensor:
        """(P, longest, N)"""
        padded = np.full((self.grammar.n_preterminals, max(map(len, leaves)), len(leaves)), padding)
        for n, rows in enumerate(leaves):
            padded[:, :len(rows), n] = rows.T
        return torch.as_tensor(padded, dtype=self.dtype, device=self.device)


def cells_of_widths(by_width: dict[int, torch.Tensor], length: int, n_interminals: int, n: int, empty: float
                    ) -> np.ndarray:
    """(cells, I) of sentence n of a batch, from tensors (I, S, N) by width."""
    starts, ends = cell_bounds(length)
    cells = np.full((len(starts), n_interminals), empty)
    for width in range(2, length + 1):
        cells[ends - starts == width] = by_width[width][:, :length - width + 1, n].T.double().cpu().numpy()
    return cells


class LeafEdgeTensors:
    """Rules with a pre-terminal and an in-terminal child as edges (A, B) from that child B to the parent A.

    What a word gives an edge is the sum over p of P(A -> .. p ..) leaf(p): `weights` (E, P), applied once for all.
    """

    def __init__(self, engine: TorchEngine, rules: LeafRules) -> None:
        n_interminals, n_preterminals = engine.grammar.n_interminals, engine.grammar.n_preterminals
        leaf = np.repeat(np.arange(n_preterminals), np.diff(rules.first))
        edges, edge_of_rule = np.unique(np.stack([rules.parent, rules.other], axis=1).astype(np.int64), axis=0,
                                        return_inverse=True)
        edge_of_rule, numbers, ones = edge_of_rule.reshape(-1), np.arange(len(edges)), np.ones(len(edges))
        self.parent, self.other = engine._index(edges[:, 0]), engine._index(edges[:, 1])
        self.weights = engine._matrix(edge_of_rule, leaf, rules.prob, len(edges), n_preterminals)
        self.to_leaf = engine._matrix(leaf, edge_of_rule, rules.prob, n_preterminals, len(edges))
        self.to_parent = engine._matrix(edges[:, 0], numbers, ones, n_interminals, len(edges))
        self.to_other = engine._matrix(edges[:, 1], numbers, ones, n_interminals, len(edges))


class LeafPairTensors:
    """Pairs of two pre-terminals: their rows, and the matrices to and from parents."""

    def __init__(self, engine: TorchEngine, rules: LeafRules) -> None:
        n_preterminals = engine.grammar.n_preterminals
        leaf = np.repeat(np.arange(n_preterminals), np.diff(rules.first))
        pairs, pair_of_rule = np.unique(np.stack([leaf, rules.other.astype(np.int64)], axis=1), axis=0,
                                        return_inverse=True)
        numbers, ones = np.arange(len(pairs)), np.ones(len(pairs))
        self.left, self.right = engine._index(pairs[:, 0]), engine._index(pairs[:, 1])
        self.rules = engine._rules(rules.parent, pair_of_rule.reshape(-1), rules.prob, len(pairs))
        self.to_left = engine._matrix(pairs[:, 0], numbers, ones, n_preterminals, len(pairs))
        self.to_right = engine._matrix(pairs[:, 1], numbers, ones, n_preterminals, len(pairs))


def apply(matrix: torch.Tensor, x_QSN: torch.Tensor) -> torch.Tensor:
    """matrix @ x over the first dimension."""
    flat = x_QSN.flatten(1)
    product = torch.sparse.mm(matrix, flat) if matrix.is_sparse else matrix @ flat
    return product.view(matrix.shape[0], *x_QSN.shape[1:])


class BatchPass:
    """Inside and outside of one padded batch.  alpha[w], beta[w]: (I, S, N); leaves: (P, longest, N)."""

    def __init__(self, engine: TorchEngine, leaves: torch.Tensor, lengths: list[int], masks: Masks) -> None:
        self.engine, self.leaves, self.lengths, self.masks = engine, leaves, lengths, masks
        self.longest, self.n_sentences = leaves.shape[1], leaves.shape[2]
        self.alpha: dict[int, torch.Tensor] = {}
        self.left: dict[int, torch.Tensor] = {}  # alpha by pair, of the left child and of the right child
        self.right: dict[int, torch.Tensor] = {}
        # what each word gives the edges that it makes as a right and as a left child
        self.right_word = apply(engine.right_leaf.weights, leaves)
        self.left_word = apply(engine.left_leaf.weights, leaves)
        self.bits = np.zeros(self.n_sentences)  # binary digits per word that were taken off the leaves

    def inside(self) -> None:
        engine = self.engine
        for width in range(2, self.longest + 1):
            n_starts = self.longest - width + 1
            if width == 2:
                pairs = engine.two_leaves
                total = apply(pairs.rules[0], self.leaves[pairs.left, :n_starts] * self.leaves[pairs.right, 1:])
            else:
                below = self.alpha[width - 1]
                total = apply(engine.right_leaf.to_parent,
                              below[:, :n_starts][engine.right_leaf.other] * self.right_word[:, width - 1:])
                total += apply(engine.left_leaf.to_parent,
                               below[:, 1:][engine.left_leaf.other] * self.left_word[:, :n_starts])
            if width >= 4 and len(engine.inner_left):
                pairs_QSN = torch.zeros_like(self.left[2][:, :n_starts])
                for k in range(2, width - 1):
                    pairs_QSN.addcmul_(self.left[k][:, :n_starts], self.right[width - k][:, k:k + n_starts])
                total += apply(engine.inner_rules[0], pairs_QSN)
            self.masks.fill(total, width, 0.0)
            self.alpha[width] = total
            self.left[width], self.right[width] = total[engine.inner_left], total[engine.inner_right]
            if width % RESCALE_EVERY == 0:
                self._rescale(width)

    def _rescale(self, width: int) -> None:
        """Multiply the leaves by a power of two per word where values drift from 1; exact, the same for all spans."""
        peak = self.alpha[width].amax(dim=(0, 1)).double().cpu().numpy()
        drift = np.where((peak > 0) & np.isfinite(peak), np.log2(np.where(peak > 0, peak, 1.0)), 0.0)
        if (np.abs(drift) <= RESCALE_BITS).all():
            return
        bits = np.where(np.abs(drift) > RESCALE_BITS, -np.round(drift / width), 0.0)
        self.bits += bits
        per_word = torch.as_tensor(bits, dtype=self.engine.dtype, device=self.leaves.device)
        for tensor in (self.leaves, self.right_word, self.left_word):
            tensor *= torch.exp2(per_word)
        for w, alpha in self.alpha.items():
            for tensor in (alpha, self.left[w], self.right[w]):
                tensor *= torch.exp2(w * per_word)

    def outside(self) -> None:
        engine, longest = self.engine, self.longest
        self.beta = {w: torch.zeros_like(alpha) for w, alpha in self.alpha.items()}
        self.leaf_beta = torch.zeros_like(self.leaves)
        to_left = {w: torch.zeros_like(x) for w, x in self.left.items()}
        to_right = {w: torch.zeros_like(x) for w, x in self.right.items()}
        word_edges = {edges: (weights, torch.zeros_like(weights)) for edges, weights in (
            (engine.right_leaf, self.right_word), (engine.left_leaf, self.left_word))}
        for n, length in enumerate(self.lengths):
            if length == 1:
                self.leaf_beta[:, 0, n] = engine.root_leaf
            elif length > 1:
                self.beta[length][:, 0, n] = engine.root_inner
        for width in range(longest, 1, -1):
            n_starts = longest - width + 1
            beta = self.beta[width]
            beta += apply(engine.to_left, to_left.pop(width)) + apply(engine.to_right, to_right.pop(width))
            self.masks.fill(beta, width, 0.0)
            if width == 2:
                pairs = engine.two_leaves
                given = apply(pairs.rules[1], beta)
                self.leaf_beta[:, :-1] += apply(pairs.to_left, given * self.leaves[pairs.right, 1:])
                self.leaf_beta[:, 1:] += apply(pairs.to_right, given * self.leaves[pairs.left, :-1])
                continue
            below, alpha = self.beta[width - 1], self.alpha[width - 1]
            for edges, child, word in ((engine.right_leaf, slice(0, n_starts), slice(width - 1, longest)),
                                       (engine.left_leaf, slice(1, n_starts + 1), slice(0, n_starts))):
                weights, collected = word_edges[edges]
                given = beta[edges.parent]
                below[:, child] += apply(edges.to_other, given * weights[:, word])
                collected[:, word].addcmul_(given, alpha[:, child][edges.other])
            if width >= 4 and len(engine.inner_left):
                given = apply(engine.inner_rules[1], beta)
                for k in range(2, width - 1):
                    to_left[k][:, :n_starts].addcmul_(given, self.right[width - k][:, k:k + n_starts])
                    to_right[width - k][:, k:k + n_starts].addcmul_(given, self.left[k][:, :n_starts])
        for edges, (_, collected) in word_edges.items():
            self.leaf_beta += apply(edges.to_leaf, collected)
        self.masks.fill(self.leaf_beta, 1, 0.0)

    # ---- compact charts --------------------------------------------------------------------------------------------

    def chart(self, n: int, log_peak: np.ndarray) -> Chart | None:
        """The chart of sentence n of the batch, or None if some value left the range that keeps full precision."""
        length = self.lengths[n]
        inside, outside = self._cells(self.alpha, self.leaves, n), self._cells(self.beta, self.leaf_beta, n)
        is_entry = inside != 0
        if self.engine.is_full:
            is_entry |= outside != 0
        cells, symbols = np.nonzero(is_entry)
        offsets = np.zeros(n_cells(length) + 1, np.int64)
        np.cumsum(np.bincount(cells, minlength=n_cells(length)), out=offsets[1:])
        inside, outside = inside[is_entry], outside[is_entry]
        if not (self._is_comfortable(inside) and self._is_comfortable(outside)):
            return None
        log_scale = np.append(0.0, np.cumsum(log_peak - self.bits[n] * np.log(2.0)))
        whole = slice(offsets[length - 1], offsets[length]) if length else slice(0)
        total = float(inside[whole] @ outside[whole])
        return Chart(length=length, n_nonterminals=len(self.engine.root_inner) + len(self.engine.root_leaf),
                     log_prob=float(np.log(total) + log_scale[-1]) if total > 0 else -np.inf, offsets=offsets,
                     symbols=symbols.astype(np.int32), inside=inside, outside=outside, log_scale=log_scale)

    def log_prob(self, n: int, log_peak: np.ndarray) -> float | None:
        """Log probability of sentence n of the batch, or None as above."""
        length = self.lengths[n]
        inside = self._cells(self.alpha, self.leaves, n)
        if not self._is_comfortable(inside[inside != 0]):
            return None
        root = np.concatenate([self.engine.grammar.root_inner, self.engine.grammar.root_leaf])
        total = float(inside[length - 1] @ root) if length else 0.0
        log_scale = float((log_peak - self.bits[n] * np.log(2.0)).sum())
        return float(np.log(total) + log_scale) if total > 0 else -np.inf

    def _is_comfortable(self, values: np.ndarray) -> bool:
        if self.engine.dtype == torch.float32:  # what underflows there is lost, and has a marginal near 0
            return bool(np.isfinite(values).all())
        possible = values[values != 0]
        return not len(possible) or bool(possible.min() > 1 / COMFORT and possible.max() < COMFORT)

    def _cells(self, inner: dict[int, torch.Tensor], leaf: torch.Tensor, n: int) -> np.ndarray:
        """(cells, N) of one sentence, in the order of charts."""
        length, n_interminals = self.lengths[n], len(self.engine.root_inner)
        starts, ends = cell_bounds(length)
        leaves = np.zeros((len(starts), leaf.shape[0]))
        leaves[ends - starts == 1] = leaf[:, :length, n].T.double().cpu().numpy()
        return np.concatenate([cells_of_widths(inner, length, n_interminals, n, 0.0), leaves], axis=1)
