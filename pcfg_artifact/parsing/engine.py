"""Engines for Inside-Outside: their options, the role that each of them plays, the one list of them, and the calls.

A new engine is a class with the three methods of `Engine` and one entry in ENGINES.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import BestTree, Chart, SpanScores
from pcfg_artifact.parsing.constraints import Constraints, Forbidden, all_forbidden
from pcfg_artifact.parsing.leaves import Sentence, sentence_leaves

if TYPE_CHECKING:
    from pcfg_artifact.parsing.differentiable import RuleWeights

Outside = Literal["pruned", "full"]
Precision = Literal["auto", "float64", "float32"]


@dataclass(frozen=True)
class EngineOptions:
    """backend: name of an engine (ENGINES); "auto" is "cpu", or "gpu" where device is another than the CPU.

    outside: "pruned" gives beta where alpha is not 0, "full" gives beta of every non-terminal of the right type.
    device and dtype are for "gpu", whose device "cpu" is the first GPU; dtype "auto" is float64 where the GPU has it at
    half rate, and float32 with exponents elsewhere.  n_threads is for "cpu" (None: all cores).
    """

    backend: str = "auto"
    device: str = "cpu"
    outside: Outside = "pruned"
    dtype: Precision = "auto"
    n_threads: int | None = None

    def __post_init__(self) -> None:
        for name, value, known in (("outside", self.outside, get_args(Outside)),
                                   ("dtype", self.dtype, get_args(Precision))):
            if value not in known:
                raise UsageError(f"{name} {value!r} is unknown; expected {' or '.join(known)}")

    @property
    def is_full(self) -> bool:
        return self.outside == "full"


DEFAULT = EngineOptions()


# ---- the role, and who plays it -------------------------------------------------------------------------------------


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
    from pcfg_artifact.parsing.gpu.gpu_engine import GpuEngine
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
    return ("auto", *ENGINES)


def engine_for(grammar: PCFG, options: EngineOptions) -> Engine:
    """The engine that the options name."""
    backend = options.backend
    if backend == "auto":
        backend = "cpu" if options.device == "cpu" else "gpu"
    if backend not in ENGINES:
        raise UsageError(f"backend {backend!r} is unknown; expected one of {', '.join(backends())}")
    return ENGINES[backend](grammar, options)


# ---- calls ----------------------------------------------------------------------------------------------------------


def inside_outside(grammar: PCFG, sentences: Sequence[Sentence], backend: str = "auto", device: str = "cpu",
                   outside: Outside = "pruned", dtype: Precision = "auto", n_threads: int | None = None,
                   constraints: Sequence[Constraints] | None = None, weights: RuleWeights | None = None) -> list[Chart]:
    """A chart for every sentence (a list of words, or an array of word ids), in order; options as in EngineOptions.

    constraints: for each sentence, spans that its tree must have or may not have, {(i, j): True, (k, l, "NP"): False};
    where no tree keeps them the sentence has probability 0, log_prob = -inf.
    With weights (differentiable.RuleWeights; backend="torch") each is a WeightedChart of those weights: its
    log_weight can be differentiated by them, and it has the expected count of every rule.
    """
    options = EngineOptions(backend, device, outside, dtype, n_threads)
    if weights is None:
        return list(each_chart(grammar, sentences, options, constraints))
    if backend != "torch":
        raise UsageError(f"weights are differentiated by torch, found backend={backend!r}; say backend='torch'")
    if constraints is not None:
        raise UsageError("weights and constraints were given, expected one of the two; a constrained sentence has no "
                         "gradient here")
    from pcfg_artifact.parsing.differentiable import weighted_charts  # torch takes seconds to load

    return list(weighted_charts(grammar, sentences, weights, options))


def each_chart(grammar: PCFG, sentences: Sequence[Sentence], options: EngineOptions = DEFAULT,
               constraints: Sequence[Constraints] | None = None) -> Iterator[Chart]:
    """The charts of inside_outside one by one, in memory that does not grow with the number of sentences."""
    forbidden = all_forbidden(grammar, [len(sentence) for sentence in sentences], constraints)
    return leaf_charts(grammar, leaves_of(grammar, sentences), options, forbidden)


def leaf_charts(grammar: PCFG, leaves: Sequence[np.ndarray], options: EngineOptions = DEFAULT,
                forbidden: Sequence[Forbidden] = ()) -> Iterator[Chart]:
    """The same for sentences given by their leaves, (L, P) each: any weights, so masks and noise are leaves too.

    forbidden: entries that no tree of each sentence has (constraints.py makes them), or none at all.
    """
    return engine_for(grammar, options).charts(leaves, forbidden)


def leaf_span_scores(grammar: PCFG, leaves: Sequence[np.ndarray], options: EngineOptions = DEFAULT
                     ) -> Iterator[SpanScores | Chart]:
    """What a Labelled-Recall tree needs of every sentence, in order; engines that can reduce it bring no more."""
    engine = engine_for(grammar, options)
    return engine.span_scores(leaves) if isinstance(engine, ReducingEngine) else engine.charts(leaves)


def leaf_outsides(grammar: PCFG, leaves: Sequence[np.ndarray], options: EngineOptions = DEFAULT,
                  forbidden: Sequence[Forbidden] = ()) -> Iterator[np.ndarray]:
    """(L, P) for each sentence: beta of every pre-terminal over every word, each row scaled to sum to 1, or 0."""
    engine = engine_for(grammar, options)
    if isinstance(engine, ReducingEngine):
        return engine.leaf_outside(leaves, forbidden)
    return (chart.leaf_outside(grammar.n_interminals) for chart in engine.charts(leaves, forbidden))


def log_probabilities(grammar: PCFG, sentences: Sequence[Sentence], options: EngineOptions = DEFAULT,
                      constraints: Sequence[Constraints] | None = None) -> Iterator[float]:
    """Log probability of every sentence, in their order: the inside pass alone.

    With constraints, the probability of the sentence together with a tree that keeps them.
    """
    forbidden = all_forbidden(grammar, [len(sentence) for sentence in sentences], constraints)
    return engine_for(grammar, options).log_probs(leaves_of(grammar, sentences), forbidden)


class LazyLeaves(Sequence[np.ndarray]):
    """Leaves of many sentences, each made when it is asked for."""

    def __init__(self, leaves_of: Callable[[int], np.ndarray], n_sentences: int) -> None:
        self._leaves_of, self._n_sentences = leaves_of, n_sentences

    def __len__(self) -> int:
        return self._n_sentences

    def __getitem__(self, s: Any) -> Any:
        if not 0 <= s < self._n_sentences:
            raise IndexError(s)  # it ends a loop over them
        return self._leaves_of(s)


def leaves_of(grammar: PCFG, sentences: Sequence[Sentence]) -> LazyLeaves:
    return LazyLeaves(lambda s: sentence_leaves(grammar, sentences[s]), len(sentences))
