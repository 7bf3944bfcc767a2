"""Engines by name: the role that each of them plays, and the one list of them.

A new engine is a class with the three methods of `Engine` and one entry in ENGINES.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import Chart, SpanScores
from pcfg_artifact.parsing.constraints import Forbidden
from pcfg_artifact.parsing.options import EngineOptions

AUTO = "auto"


class BestTree(NamedTuple):
    """The most probable tree of a sentence: its log probability and its nodes (2L-1, 3), symbol, i, j, in preorder.

    Symbols are numbered as in the grammar; without any tree log_prob is -inf and there are no nodes.
    """

    log_prob: float
    nodes: np.ndarray

    @classmethod
    def none(cls) -> BestTree:
        return cls(-np.inf, np.zeros((0, 3), np.int64))


class Engine(Protocol):
    """Inside-Outside of one grammar, for sentences given by their leaves, (L, P) each; answers come in their order.

    forbidden: one for each sentence, or none at all; inside and outside of these entries are 0, with any `outside`.
    """

    def charts(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[Chart]:
        """Inside and outside values."""
        ...

    def log_probs(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[float]:
        """Log probability of each sentence, -inf where it is 0."""
        ...

    def best_trees(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[BestTree]:
        """The most probable tree of each sentence (Viterbi)."""
        ...


@runtime_checkable
class ReducingEngine(Engine, Protocol):
    """An engine that is asked for what is read of charts, because a whole chart is far away."""

    def span_scores(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[SpanScores]:
        """The largest marginal of every span."""
        ...

    def leaf_outside(self, leaves: Sequence[np.ndarray], forbidden: Sequence[Forbidden] = ()) -> Iterator[np.ndarray]:
        """(L, P) beta of every pre-terminal over every word, each row scaled to sum to 1 (0 where nothing fits)."""
        ...


# Each is imported only when it is chosen: torch takes seconds to load.


def _reference(grammar: PCFG, options: EngineOptions) -> Engine:
    from pcfg_artifact.parsing.reference import ReferenceEngine
    return ReferenceEngine(grammar, options)


def _cpu(grammar: PCFG, options: EngineOptions) -> Engine:
    from pcfg_artifact.parsing.cpu import CpuEngine
    return CpuEngine(grammar, options)


def _gpu(grammar: PCFG, options: EngineOptions) -> Engine:
    if find_spec("triton") is None:
        raise UsageError("the engine `gpu` needs Triton, which comes with torch's CUDA build (the default on Linux) "
                         "and is not installed here; use the engine `cpu`")
    from pcfg_artifact.parsing.gpu.engine import GpuEngine
    return GpuEngine(grammar, options)


ENGINES: dict[str, Callable[[PCFG, EngineOptions], Engine]] = {"reference": _reference, "cpu": _cpu, "gpu": _gpu}


_left_to_cpu: WeakKeyDictionary[PCFG, Counter[str]] = WeakKeyDictionary()


def leave_to_cpu(grammar: PCFG, why: str, n: int) -> None:
    """Count sentences that an engine could not hold and gave to the engine `cpu`."""
    _left_to_cpu.setdefault(grammar, Counter())[why] += n


def sentences_left_to_cpu(grammar: PCFG) -> dict[str, int]:
    """How many sentences of a grammar other engines have left to the engine `cpu` so far, by reason."""
    return dict(_left_to_cpu.get(grammar, {}))


def backends() -> tuple[str, ...]:
    """Every name that `backend` may have."""
    return (AUTO, *ENGINES)


def engine_for(grammar: PCFG, options: EngineOptions) -> Engine:
    """The engine that the options name."""
    backend = options.backend
    if backend == AUTO:
        backend = "cpu" if options.device == "cpu" else "gpu"
    if backend not in ENGINES:
        raise UsageError(f"backend {backend!r} is unknown; expected one of {', '.join(backends())}")
    return ENGINES[backend](grammar, options)
