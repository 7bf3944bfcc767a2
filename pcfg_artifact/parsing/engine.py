"""inside_outside: one call, several engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing import cpu, reference
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.compiled import compiled
from pcfg_artifact.parsing.leaves import Sentence, sentence_leaves

BACKENDS = ("auto", "reference", "cpu", "torch")
OUTSIDES = ("pruned", "full")


def inside_outside(grammar: PCFG, sentences: Sequence[Sentence], backend: str = "auto", device: str = "cpu",
                   outside: str = "pruned", dtype: str = "float64", n_threads: int | None = None) -> list[Chart]:
    """A chart for every sentence, in their order.

    sentences: lists of words, or arrays of word ids.  outside: "pruned" gives beta where alpha is not 0,
    "full" gives beta of every non-terminal of the right type.  backend "auto" is "cpu", or "torch" where device is
    another than the CPU; dtype is for "torch", n_threads for "cpu" (default: all cores).
    """
    return list(each_chart(grammar, sentences, backend, device, outside, dtype, n_threads))


def each_chart(grammar: PCFG, sentences: Sequence[Sentence], backend: str = "auto", device: str = "cpu",
               outside: str = "pruned", dtype: str = "float64", n_threads: int | None = None) -> Iterator[Chart]:
    """The charts of inside_outside one by one, in memory that does not grow with the number of sentences."""
    leaves = LazyLeaves(lambda s: sentence_leaves(grammar, sentences[s]), len(sentences))
    return leaf_charts(grammar, leaves, backend, device, outside, dtype, n_threads)


class LazyLeaves(Sequence):
    """Leaves of many sentences, each made when it is asked for."""

    def __init__(self, leaves_of: Callable[[int], np.ndarray], n_sentences: int) -> None:
        self._leaves_of, self._n_sentences = leaves_of, n_sentences

    def __len__(self) -> int:
        return self._n_sentences

    def __getitem__(self, s: int) -> np.ndarray:
        if not 0 <= s < self._n_sentences:
            raise IndexError(s)
        return self._leaves_of(s)


def leaf_charts(grammar: PCFG, leaves: Sequence[np.ndarray], backend: str = "auto", device: str = "cpu",
                outside: str = "pruned", dtype: str = "float64", n_threads: int | None = None) -> Iterator[Chart]:
    """The same for sentences given by their leaves, (L, P) each: any weights, so masks and noise are leaves too."""
    for name, value, known in (("backend", backend, BACKENDS), ("outside", outside, OUTSIDES)):
        if value not in known:
            raise UsageError(f"{name} {value!r} is unknown; expected one of {', '.join(known)}")
    if backend == "auto":
        backend = "cpu" if device == "cpu" else "torch"
    if backend == "reference":
        return (_reference_chart(grammar, rows, outside) for rows in leaves)
    if backend == "torch":
        from pcfg_artifact.parsing import torch_engine  # imported only here: torch takes seconds to load
        return torch_engine.Engine(compiled(grammar), outside == "full", device, dtype).charts(leaves)
    return cpu.charts(compiled(grammar), leaves, outside == "full", n_threads)


def _reference_chart(grammar: PCFG, leaves: np.ndarray, outside: str) -> Chart:
    log_inside = reference.inside(grammar, leaves)
    log_outside = reference.outside(grammar, log_inside)
    if outside == "pruned":
        log_outside[log_inside == -np.inf] = -np.inf
    return Chart.from_logs(reference.log_probability(grammar, log_inside), log_inside, log_outside)
