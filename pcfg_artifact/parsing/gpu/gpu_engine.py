"""The `gpu` engine: batches of sentences by length on one GPU, exact, with the host a batch ahead of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
import triton

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import cell_bounds, n_cells
from pcfg_artifact.parsing.charts import BestTree, Chart, SpanScores, log_of
from pcfg_artifact.parsing.constraints import Forbidden, each_forbidden
from pcfg_artifact.parsing.cpu import CpuEngine
from pcfg_artifact.parsing.cpu_kernels import logspace
from pcfg_artifact.parsing.cpu_kernels.rule_index import compiled
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions, leave_to_cpu
from pcfg_artifact.parsing.gpu.batch_pass import FORMS, GPU_BLOCKS, LN_2, BatchPass, first_of_width, interpreter_blocks
from pcfg_artifact.parsing.gpu.row_sums import DeviceRules
from pcfg_artifact.system.machine import available_memory, free_gpu_memory

Result = TypeVar("Result")

WINDOW = 512  # sentences within which batches are sorted by length
SHARE = 0.3  # of the free memory: two batches are under way, and reading one back takes some more
# Compute capabilities with float64 at half the rate of float32, which the float64 form needs to pay.
FULL_DOUBLE = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}


def gpu_device(name: str) -> torch.device:
    """The device of a name, `cpu` meaning the first GPU; a CPU only where Triton interprets its kernels."""
    if triton.knobs.runtime.interpret:
        return torch.device(name)
    device = torch.device("cuda" if name == "cpu" else name)
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device {str(device)!r} cannot be used by the engine `gpu` ({error}); use the engine `cpu`: "
                         f"--set machine.device=cpu in a run, --backend cpu in a tool, backend='cpu' in Python"
                         ) from error
    return device


def form_of(device: torch.device) -> str:
    """float64 where the GPU has it at half rate, float32 with exponents where it has not."""
    is_gpu = device.type == "cuda"
    return "float64" if not is_gpu or torch.cuda.get_device_capability(device) in FULL_DOUBLE else "float32"


_kept: WeakKeyDictionary[PCFG, dict[tuple[str, str], DeviceRules]] = WeakKeyDictionary()  # by device and form


class Sentence(NamedTuple):
    """A sentence by its leaves (L, P), and what its trees may not use."""

    leaves: np.ndarray
    forbidden: Forbidden


class Work(NamedTuple, Generic[Result]):
    """What is wanted of sentences: launched on a batch, read back by sentence, and what the cpu engine does instead."""

    launch: Callable[[BatchPass], tuple[torch.Tensor, ...]]
    read: Callable[[list[Sentence], list[np.ndarray]], list[Result]]
    on_cpu: Callable[[np.ndarray, Forbidden], Result]


class Launched(NamedTuple):
    """A batch under way: its status and results on their way to the host, and what tells that they are there."""

    sentences: list[Sentence]
    results: tuple[torch.Tensor, ...]
    arrived: Any


class GpuEngine:
    """One grammar on one device."""

    def __init__(self, grammar: PCFG, options: EngineOptions = DEFAULT) -> None:
        self.device = gpu_device(options.device)
        self.is_gpu = self.device.type == "cuda" and not triton.knobs.runtime.interpret
        self.is_full = options.is_full
        name = form_of(self.device) if options.dtype == "auto" else options.dtype
        self.form = FORMS[name]
        self.grammar = compiled(grammar)
        self.fallback = CpuEngine(grammar, options)
        kept = _kept.setdefault(grammar, {})
        key = str(self.device), name
        if key not in kept:
            kept[key] = DeviceRules(self.grammar, self.form.dtype, self.device)
        self.rules = kept[key]
        self.blocks = interpreter_blocks(self.rules) if triton.knobs.runtime.interpret else GPU_BLOCKS
        self._leave_to_cpu = partial(leave_to_cpu, grammar)

    # ---- what an engine gives --------------------------------------------------------------------------------------

    def charts(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[Chart]:
        def launch(run: BatchPass) -> tuple[torch.Tensor, ...]:
            run.inside()
            run.outside(is_pruned=not self.is_full)
            return (run.log_z(), *self._entries(run))

        return self._each(Work(launch, self._charts, self.fallback.chart), leaves, forbidden)

    def log_probs(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[float]:
        def launch(run: BatchPass) -> tuple[torch.Tensor, ...]:
            run.inside()
            return (run.log_z(),)

        work = Work(launch, lambda _, results: results[0].tolist(), self.fallback.log_prob)
        return self._each(work, leaves, forbidden)

    def best_trees(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[BestTree]:
        def launch(run: BatchPass) -> tuple[torch.Tensor, ...]:
            run.inside(is_best=True)
            return run.alpha, run.exponents

        return self._each(Work(launch, self._best_trees, self.fallback.best_tree), leaves, forbidden)

    def span_scores(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[SpanScores]:
        """Log Z and the largest marginal of every span, reduced on the device."""
        def launch(run: BatchPass) -> tuple[torch.Tensor, ...]:
            run.inside()
            run.outside(is_pruned=True)
            return run.log_z(), run.span_scores()

        def read(sentences: list[Sentence], results: list[np.ndarray]) -> list[SpanScores]:
            found = []
            for (rows, _), log_prob, scores in zip(sentences, *results, strict=True):
                square = np.zeros((len(rows) + 1, len(rows) + 1))
                square[cell_bounds(len(rows))] = scores[chart_order(len(rows), len(results[1][0]))]
                found.append(SpanScores(len(rows), float(log_prob), square))
            return found

        def on_cpu(rows: np.ndarray, one: Forbidden) -> SpanScores:
            chart = self.fallback.chart(rows, one)
            return SpanScores(chart.length, chart.log_prob, chart.span_scores())

        return self._each(Work(launch, read, on_cpu), leaves, forbidden)

    def leaf_outside(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[np.ndarray]:
        """(L, P) beta of every pre-terminal over every word, each row scaled to sum to 1 (0 where nothing fits)."""
        def launch(run: BatchPass) -> tuple[torch.Tensor, ...]:
            run.inside()
            run.outside(is_pruned=not self.is_full)
            return (run.leaf_outside(),)

        def read(sentences: list[Sentence], results: list[np.ndarray]) -> list[np.ndarray]:
            return [values[:len(rows)] for (rows, _), values in zip(sentences, results[0], strict=True)]

        def on_cpu(rows: np.ndarray, one: Forbidden) -> np.ndarray:
            return self.fallback.chart(rows, one).leaf_outside(self.grammar.n_interminals)

        return self._each(Work(launch, read, on_cpu), leaves, forbidden)

    # ---- batches ---------------------------------------------------------------------------------------------------

    def _each(self, work: Work[Result], leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden]
              ) -> Iterator[Result]:
        """A result for each sentence, in order: the next batch is launched before the results of one are read."""
        all_forbidden = each_forbidden(forbidden, len(leaves))
        done: dict[int, Result] = {}
        following, waiting = 0, None
        for batch in chain(self._batches(leaves), [None]):
            launched = None if batch is None else (list(batch), self._launched(
                work, [Sentence(rows, all_forbidden[s]) for s, rows in batch.items()]))
            if waiting is not None:
                numbers, parts = waiting
                done.update(zip(numbers, [result for part in parts for result in self._read(work, part)], strict=True))
            waiting = launched
            while following in done:
                yield done.pop(following)
                following += 1

    def _batches(self, leaves: Sequence[np.ndarray]) -> Iterator[dict[int, np.ndarray]]:
        """Sentences of like length by their number, as many as the free memory holds; empty ones by themselves."""
        for begin in range(0, len(leaves), WINDOW):
            window = {s: leaves[s] for s in range(begin, min(begin + WINDOW, len(leaves)))}
            budget = SHARE * self._free_memory()
            batch: dict[int, np.ndarray] = {}
            for s, rows in sorted(window.items(), key=lambda item: (len(item[1]), item[0])):
                is_full = (len(batch) + 1) * self.bytes_of(len(rows)) > budget
                if batch and (is_full or not len(next(iter(batch.values())))):
                    yield batch
                    batch = {}
                batch[s] = rows
            yield batch

    def _free_memory(self) -> int:
        if self.device.type != "cuda":
            return available_memory()
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return free_gpu_memory(str(self.device)) + kept  # torch gives what it keeps to the next batch

    def _current(self) -> AbstractContextManager[Any]:
        """Triton launches kernels on the current GPU, wherever their tensors are."""
        return torch.cuda.device(self.device) if self.is_gpu else nullcontext()

    def bytes_of(self, length: int) -> int:
        """Memory of one sentence: both charts, what parents give pairs, the edges of its words, its leaves."""
        rules, item = self.rules, self.form.dtype.itemsize
        by_cell = (2 * rules.row_size + rules.pairs.n) * item + 8
        by_word = (rules.right_edges.n + rules.left_edges.n + rules.n_columns + rules.word_pairs.n) * item \
            + 8 * self.grammar.n_preterminals
        return n_cells(length) * by_cell + length * by_word

    def _launched(self, work: Work[Result], sentences: list[Sentence]) -> list[Launched]:
        """The batch, in halves where the device has no memory for all of it; a sentence that does not fit is alone and
        without results."""
        if not len(sentences[0].leaves):
            return [Launched([one], (), None) for one in sentences]
        try:
            with self._current():
                run = self._pass(sentences)
                results = tuple(x.to("cpu", non_blocking=True) for x in (run.status, *work.launch(run)))
        except torch.OutOfMemoryError:
            if len(sentences) == 1:
                return [Launched(sentences, (), None)]
            half = len(sentences) // 2
            return self._launched(work, sentences[:half]) + self._launched(work, sentences[half:])
        arrived = None
        if self.is_gpu:
            arrived = torch.cuda.Event()
            arrived.record(torch.cuda.current_stream(self.device))
        return [Launched(sentences, results, arrived)]

    def _read(self, work: Work[Result], launched: Launched) -> list[Result]:
        """Results of a batch; what left the range, or did not fit, is done by the cpu engine, and counted."""
        if not launched.results:
            self._leave_to_cpu("memory", sum(len(one.leaves) > 0 for one in launched.sentences))
            return [work.on_cpu(*one) for one in launched.sentences]
        if launched.arrived is not None:
            launched.arrived.synchronize()
        status, *results = (x.numpy() for x in launched.results)
        self._leave_to_cpu("range", int(np.count_nonzero(status)))
        return [work.on_cpu(*one) if is_lost else result for one, is_lost, result in zip(
            launched.sentences, status, work.read(launched.sentences, results), strict=True)]

    def _pass(self, sentences: list[Sentence]) -> BatchPass:
        lengths = [len(rows) for rows, _ in sentences]
        n_interminals, longest = self.grammar.n_interminals, max(lengths)
        leaves = np.zeros((len(sentences), longest, self.grammar.n_preterminals))
        for n, (rows, one) in enumerate(sentences):
            leaves[n, :len(rows)] = one.allowed_leaves(rows, n_interminals)
        return BatchPass(self.rules, self.form, self.blocks, self._on_device(leaves),
                         self._on_device(np.array(lengths, np.int32)), self._forbidden(sentences, longest))

    def _on_device(self, values: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(values)
        if self.is_gpu:
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def _forbidden(self, sentences: list[Sentence], longest: int) -> torch.Tensor | None:
        """(N, cells, row size) 1 where something is forbidden; None where nothing is."""
        if all(one.is_empty for _, one in sentences):
            return None
        n_interminals, n_preterminals = self.grammar.n_interminals, self.grammar.n_preterminals
        found = np.zeros((len(sentences), n_cells(longest), self.rules.row_size), np.int8)
        for n, (rows, one) in enumerate(sentences):
            if not one.is_empty:
                by_cell, order = one.by_cell(n_interminals + n_preterminals), chart_order(len(rows), n_cells(longest))
                is_word = order < longest
                found[n, order[~is_word], :n_interminals] = by_cell[~is_word, :n_interminals]
                found[n, order[is_word], :n_preterminals] = by_cell[is_word, n_interminals:]
        return self._on_device(found)

    # ---- reading back ----------------------------------------------------------------------------------------------

    def _entries(self, run: BatchPass) -> tuple[torch.Tensor, ...]:
        """Entries of all charts, cell by cell: how many each cell has, their symbols, logs of inside and outside."""
        n_interminals, n_preterminals = self.grammar.n_interminals, self.grammar.n_preterminals
        lengths = run.lengths.tolist()
        orders = [chart_order(length, run.n_cells) for length in lengths]
        rows = self._on_device(np.concatenate([n * run.n_cells + order for n, order in enumerate(orders)]))
        is_word = self._on_device(np.concatenate([order < run.longest for order in orders]))[:, None]
        column = torch.arange(self.rules.row_size, device=self.device)
        is_typed = torch.where(is_word, column < n_preterminals, column < n_interminals)
        alpha, beta = (torch.where(is_typed, chart.flatten(0, 1)[rows], 0.0).double()
                       for chart in (run.alpha, run.beta))
        is_entry = (alpha > 0) | (beta > 0) if self.is_full else alpha > 0
        cell, symbol = torch.nonzero(is_entry, as_tuple=True)
        logs = [torch.log(values[cell, symbol]) + LN_2 * exponents.flatten()[rows][cell].double()
                for values, exponents in ((alpha, run.exponents), (beta, run.outside_exponents))]
        numbered = torch.where(is_word[cell, 0], symbol + n_interminals, symbol)  # as in the grammar
        return is_entry.sum(dim=1), numbered.to(torch.int32), *logs

    def _charts(self, sentences: list[Sentence], results: list[np.ndarray]) -> list[Chart]:
        log_probs, counts, symbols, inside, outside = results
        all_offsets = np.concatenate([[0], np.cumsum(counts)])
        charts, first = [], 0
        for (rows, _), log_prob in zip(sentences, log_probs.tolist(), strict=True):
            last = first + n_cells(len(rows))
            entries, offsets = slice(all_offsets[first], all_offsets[last]), all_offsets[first:last + 1]
            charts.append(Chart(
                length=len(rows), n_nonterminals=self.grammar.n_interminals + self.grammar.n_preterminals,
                log_prob=log_prob, offsets=offsets - offsets[0], symbols=symbols[entries], inside=inside[entries],
                outside=outside[entries], log_scale=np.zeros(len(rows) + 1), is_log=True))
            first = last
        return charts

    def _best_trees(self, sentences: list[Sentence], results: list[np.ndarray]) -> list[BestTree]:
        n_interminals, trees = self.grammar.n_interminals, []
        for (rows, one), values, exponents in zip(sentences, *results, strict=True):
            order = chart_order(len(rows), len(exponents))
            is_filled = exponents[order] > -1_000_000  # rows of words have other symbols, and nobody reads them here
            mantissas = np.where(is_filled[:, None], values[order, :n_interminals].astype(np.float64), 0.0)
            log_leaves = log_of(one.allowed_leaves(rows, n_interminals))
            log_best = log_of(mantissas) + LN_2 * exponents[order, None]
            trees.append(logspace.best_tree(self.grammar, log_leaves, log_best))
        return trees


def chart_order(length: int, n_all: int) -> np.ndarray:
    """Where the cells of a sentence, in the order of charts, lie among the n_all cells of the longest of a batch."""
    starts, ends = cell_bounds(length)
    return first_of_width(ends - starts, int(np.sqrt(2 * n_all))) + starts
