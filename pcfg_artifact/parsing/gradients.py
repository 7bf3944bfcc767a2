"""Inside-Outside with weights that are torch tensors: log weights that can be differentiated, and expected counts.

The derivative is the outside pass itself (weighted_pass.py): the forward call computes inside, outside and counts of
every sentence, and going backward only multiplies them by what comes in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.leaves import Sentence, word_ids
from pcfg_artifact.parsing.options import EngineOptions
from pcfg_artifact.parsing.reference import log_of
from pcfg_artifact.parsing.triangle import cell_bounds
from pcfg_artifact.parsing.weighted_pass import RuleShape, WeightedPass

BATCH = 32  # sentences of like length that are computed at once


class RuleWeights(NamedTuple):
    """root (N,), binary (R,), lexical (E,): a weight, 0 or more, for every rule of a grammar, in the grammar's order.

    They need not sum to 1.
    """

    root: torch.Tensor
    binary: torch.Tensor
    lexical: torch.Tensor

    @classmethod
    def of(cls, grammar: PCFG, *, requires_grad: bool = False, device: str = "cpu", dtype: torch.dtype = torch.float64
           ) -> RuleWeights:
        """The probabilities of a grammar, as tensors."""
        return cls(*(torch.tensor(p, dtype=dtype, device=device, requires_grad=requires_grad)
                     for p in (grammar.root, grammar.binary_prob, grammar.lexical_prob)))

    def checked(self, grammar: PCFG) -> RuleWeights:
        expected = {"root": grammar.root.shape, "binary": grammar.binary_prob.shape,
                    "lexical": grammar.lexical_prob.shape}
        for name, weights in self._asdict().items():
            if tuple(weights.shape) != expected[name]:
                raise UsageError(f"the weights of {name} have the shape {tuple(weights.shape)}, expected "
                                 f"{expected[name]}: one for each of the grammar's rules")
            if not bool((weights >= 0).all()):
                raise UsageError(f"the weights of {name} must be 0 or more, found {float(weights.min())}; "
                                 f"take their exponential or softmax")
        return self


class RuleCounts(NamedTuple):
    """How often each rule is expected in the trees of a sentence, shaped like RuleWeights."""

    root: np.ndarray
    binary: np.ndarray
    lexical: np.ndarray


@dataclass(frozen=True, eq=False)
class WeightedChart(Chart):
    """A chart made with RuleWeights.  log_weight: log_prob as a tensor that can be differentiated."""

    log_weight: Any = None  # a torch.Tensor; the fields of Chart have no defaults before it
    counts: RuleCounts | None = None


class _LogWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, root: torch.Tensor, binary: torch.Tensor, leaves: torch.Tensor, shape: RuleShape,
                lengths: list[int], kept: list[WeightedPass] | None) -> torch.Tensor:
        run = WeightedPass(shape, root, binary, leaves, lengths)
        if any(ctx.needs_input_grad) or kept is not None:
            run.outside()
            ctx.save_for_backward(run.by_root, run.by_rule, run.by_leaf)
        if kept is not None:
            kept.append(run)
        return run.log_weights.clone()  # what is returned becomes a part of the graph; the pass keeps its own

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        by_root, by_rule, by_leaf = ctx.saved_tensors
        return grads[0] @ by_root, grads[0] @ by_rule, grads[0][:, None, None] * by_leaf, None, None, None


def log_weights(grammar: PCFG, leaves: Sequence[torch.Tensor], root: torch.Tensor, binary: torch.Tensor
                ) -> torch.Tensor:
    """(sentences,) log of the summed weight of all trees, differentiable by root (N,), binary (R,) and leaves (L, P).

    -inf, with derivatives of 0, where a sentence has no tree.
    """
    shape = RuleShape(grammar, binary.device)
    found: dict[int, torch.Tensor] = {}
    for batch in _batches([len(rows) for rows in leaves]):
        padded = torch.nn.utils.rnn.pad_sequence([leaves[s] for s in batch], batch_first=True)
        values: Any = _LogWeights.apply(root, binary, padded, shape, [len(leaves[s]) for s in batch], None)
        found.update(zip(batch, values, strict=True))
    return torch.stack([found[s] for s in range(len(leaves))]) if leaves else binary.new_zeros(0)


def leaf_weights(grammar: PCFG, sentence: Sentence, lexical: torch.Tensor) -> torch.Tensor:
    """(L, P) weights of a sentence's words, differentiable by lexical (E,)."""
    position, entry = _entries(grammar, word_ids(grammar, sentence))
    leaves = lexical.new_zeros(len(sentence), grammar.n_preterminals)
    head = grammar.lexical[entry, 0] - grammar.n_interminals
    return leaves.index_put(tuple(torch.as_tensor(x, device=lexical.device) for x in (position, head.astype(np.int64))),
                            lexical[torch.as_tensor(entry, device=lexical.device)])


def weighted_charts(grammar: PCFG, sentences: Sequence[Sentence], weights: RuleWeights, options: EngineOptions
                    ) -> Iterator[WeightedChart]:
    """A chart for every sentence, in order, with its differentiable log weight and the expected counts of rules."""
    weights = weights.checked(grammar)
    leaves = [leaf_weights(grammar, sentence, weights.lexical) for sentence in sentences]
    if min(map(len, leaves), default=1) == 0:
        raise UsageError("an empty sentence has no weight to differentiate; leave it out")
    shape = RuleShape(grammar, weights.binary.device)
    root, binary = weights.root.detach(), weights.binary.detach()
    charts: dict[int, WeightedChart] = {}
    for batch in _batches([len(rows) for rows in leaves]):
        padded = torch.nn.utils.rnn.pad_sequence([leaves[s] for s in batch], batch_first=True)
        kept: list[WeightedPass] = []
        lengths = [len(leaves[s]) for s in batch]
        logs: Any = _LogWeights.apply(weights.root, weights.binary, padded, shape, lengths, kept)
        run = kept[0]
        for n, s in enumerate(batch):
            by_word = (run.by_leaf[n] * padded[n].detach())[:len(leaves[s])].cpu().numpy()
            counts = RuleCounts((run.by_root[n] * root).cpu().numpy(), (run.by_rule[n] * binary).cpu().numpy(),
                                _lexical_counts(grammar, word_ids(grammar, sentences[s]), by_word))
            charts[s] = _chart(run, n, logs[n], counts, is_full=options.is_full)
    yield from (charts[s] for s in range(len(leaves)))


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Indices of sentences by length."""
    order = sorted(range(len(lengths)), key=lambda s: (lengths[s], s))
    return (order[begin:begin + BATCH] for begin in range(0, len(order), BATCH))


def _entries(grammar: PCFG, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every lexical rule of every word: the position of the word and the number of the rule."""
    order = np.argsort(grammar.lexical[:, 1], kind="stable")
    words = grammar.lexical[order, 1]
    first, last = np.searchsorted(words, ids, "left"), np.searchsorted(words, ids, "right")
    counts = last - first
    position = np.repeat(np.arange(len(ids)), counts)
    within = np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)
    return position, order[np.repeat(first, counts) + within]


def _lexical_counts(grammar: PCFG, ids: np.ndarray, by_word: np.ndarray) -> np.ndarray:
    position, entry = _entries(grammar, ids)
    values = by_word[position, grammar.lexical[entry, 0] - grammar.n_interminals]
    return np.bincount(entry, values, minlength=len(grammar.lexical))


def _chart(run: WeightedPass, n: int, log_weight: torch.Tensor, counts: RuleCounts, *, is_full: bool) -> WeightedChart:
    length = run.lengths[n]
    starts, ends = cell_bounds(length)
    log_inside = np.full((len(starts), run.shape.n_symbols), -np.inf)
    log_outside = log_inside.copy()
    log_prob = float(run.log_weights[n])
    for width in range(1, length + 1):
        here, n_starts = ends - starts == width, length - width + 1
        log_m = run.log_m[width][n, :n_starts, None].double().cpu().numpy()
        log_inside[here] = log_of(run.a[width][n, :n_starts].double().cpu().numpy()) + log_m
        if log_prob > -np.inf:
            log_outside[here] = log_of(run.b[width][n, :n_starts].double().cpu().numpy()) - log_m + log_prob
    if not is_full:
        log_outside[log_inside == -np.inf] = -np.inf
    chart = Chart.from_cells(length, run.shape.n_symbols, log_prob, log_inside, log_outside)
    return WeightedChart(**vars(chart), log_weight=log_weight, counts=counts)
