"""Inside-Outside with weights that are torch tensors: log weights that can be differentiated, and expected counts.

The derivative is the outside pass itself: the forward call computes inside, outside and counts of every sentence, and
going backward only multiplies them by what comes in.

Legend.  B sentences, S starts of one width, K splits, N symbols, I in-terminals, P pre-terminals, R rules.  A cell has
log m of its largest inside value and a = alpha / m, so that no product leaves the range of the numbers; the outside
value of a cell is kept as b = beta m / Z, so that a b is the marginal.  Then, with Z the weight of the sentence,

    d log Z / d w(A -> B C) = sum over i < k < j of  b(A,i,j) a(B,i,k) a(C,k,j) m(i,k) m(k,j) / m(i,j)

and likewise for leaves and root: the outside pass is the gradient, and nothing is taped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import cell_bounds
from pcfg_artifact.parsing.charts import Chart, log_of
from pcfg_artifact.parsing.engine import EngineOptions
from pcfg_artifact.parsing.leaves import Sentence, emissions, word_ids

DENSE = 0.05  # share of all (parent, left, right) from which on rules are multiplied as a matrix
BATCH = 32  # sentences of like length that are computed at once


# ---- inside and outside of a batch -----------------------------------------------------------------------------------


class RuleShape:
    """Which rules there are: children and parents of the binary ones, in the grammar's order, on one device."""

    def __init__(self, grammar: PCFG, device: torch.device) -> None:
        self.n_interminals, self.n_symbols = grammar.n_interminals, grammar.n_nonterminals
        parent, left, right = (torch.as_tensor(x.astype(np.int64), device=device) for x in grammar.binary.T)
        self.parent, self.pair = parent, left * self.n_symbols + right
        self.is_dense = len(parent) > DENSE * self.n_interminals * self.n_symbols ** 2
        if not self.is_dense:  # only the pairs that some rule has
            pairs, self.pair = torch.unique(self.pair, return_inverse=True)
            self.left, self.right = pairs // self.n_symbols, pairs % self.n_symbols

    def pairs(self, left_BSKN: torch.Tensor, right_BSKN: torch.Tensor) -> torch.Tensor:
        """(B, S, Q) sum over splits of left times right, for every pair of children."""
        if self.is_dense:
            return torch.einsum("bskl,bskr->bslr", left_BSKN, right_BSKN).flatten(2)
        return (left_BSKN[..., self.left] * right_BSKN[..., self.right]).sum(2)

    def parents(self, weights_R: torch.Tensor, pairs_BSQ: torch.Tensor) -> torch.Tensor:
        """(B, S, I) what rules make of pairs."""
        if self.is_dense:
            return pairs_BSQ @ self._matrix(weights_R)
        shape = (*pairs_BSQ.shape[:2], self.n_interminals)
        return pairs_BSQ.new_zeros(shape).index_add(2, self.parent, pairs_BSQ[..., self.pair] * weights_R)

    def children(self, weights_R: torch.Tensor, parents_BSI: torch.Tensor, left_BSKN: torch.Tensor,
                 right_BSKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, S, K, N) twice: what parents give left children beside `right`, and right ones beside `left`."""
        if self.is_dense:
            given = (parents_BSI @ self._matrix(weights_R).T).unflatten(2, (self.n_symbols, self.n_symbols))
            return torch.einsum("bslr,bskr->bskl", given, right_BSKN), torch.einsum("bslr,bskl->bskr", given, left_BSKN)
        shape = (*parents_BSI.shape[:2], len(self.left))
        given = parents_BSI.new_zeros(shape).index_add(2, self.pair, parents_BSI[..., self.parent] * weights_R)
        zeros = torch.zeros_like(left_BSKN)
        return (zeros.index_add(3, self.left, given[:, :, None] * right_BSKN[..., self.right]),
                zeros.index_add(3, self.right, given[:, :, None] * left_BSKN[..., self.left]))

    def by_rule(self, parents_BSI: torch.Tensor, pairs_BSQ: torch.Tensor) -> torch.Tensor:
        """(B, R) sum over cells of parent times pair, for every rule."""
        if self.is_dense:
            return torch.einsum("bsi,bsq->biq", parents_BSI, pairs_BSQ)[:, self.parent, self.pair]
        return (parents_BSI[..., self.parent] * pairs_BSQ[..., self.pair]).sum(1)

    def _matrix(self, weights_R: torch.Tensor) -> torch.Tensor:
        """(Q, I)"""
        matrix = weights_R.new_zeros(self.n_symbols ** 2, self.n_interminals)
        matrix[self.pair, self.parent] = weights_R
        return matrix


class WeightedPass:
    """One batch.  leaves (B, longest, P), 0 after the end of a sentence; by width: a[w] (B, S, N), log_m[w] (B, S)."""

    def __init__(self, shape: RuleShape, root: torch.Tensor, binary: torch.Tensor, leaves: torch.Tensor,
                 lengths: list[int]) -> None:
        self.shape, self.root, self.binary, self.lengths = shape, root, binary, lengths
        self.longest = leaves.shape[1]
        self.a: dict[int, torch.Tensor] = {}
        self.log_m: dict[int, torch.Tensor] = {}
        self.is_empty: dict[int, torch.Tensor] = {}
        words = torch.cat([leaves.new_zeros(*leaves.shape[:2], shape.n_interminals), leaves], dim=2)
        self._keep(1, words, leaves.new_zeros(leaves.shape[:2]))
        for width in range(2, self.longest + 1):
            left, right, log_factors, is_empty = self._splits(width)
            largest = log_factors.masked_fill(is_empty, -torch.inf).amax(2)
            largest = torch.where(largest.isinf(), log_factors.amax(2), largest)
            pairs = shape.pairs(left * self._exp(log_factors - largest[..., None])[..., None], right)
            parents = shape.parents(binary, pairs)
            self._keep(width, torch.cat([parents, parents.new_zeros(*parents.shape[:2], leaves.shape[2])], 2), largest)
        self.top = torch.stack([self.a[n][s, 0] for s, n in enumerate(lengths)])
        self.share = self.top @ root  # Z / m of the whole sentence
        log_m = torch.stack([self.log_m[n][s, 0] for s, n in enumerate(lengths)])
        self.log_weights = torch.log(self.share) + log_m

    def _keep(self, width: int, values: torch.Tensor, log_factor: torch.Tensor) -> None:
        peak = values.amax(2)
        # An empty cell has an m too, of its children: a rule of weight 0 that could fill it has a derivative.
        self.is_empty[width] = peak <= 0
        peak = torch.where(peak > 0, peak, 1.0)
        self.a[width] = values / peak[..., None]
        self.log_m[width] = torch.log(peak) + log_factor

    def _splits(self, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Left and right children (B, S, K, N) of every cell of a width; of each split (B, S, K) the log of their m's
        product, and whether one of them is empty."""
        n = self.longest - width + 1
        both = [(k, slice(0, n), width - k, slice(k, k + n)) for k in range(1, width)]
        return (torch.stack([self.a[k][:, here] for k, here, _, _ in both], 2),
                torch.stack([self.a[k][:, there] for _, _, k, there in both], 2),
                torch.stack([self.log_m[k][:, here] + self.log_m[j][:, there] for k, here, j, there in both], 2),
                torch.stack([self.is_empty[k][:, here] | self.is_empty[j][:, there] for k, here, j, there in both], 2))

    @staticmethod
    def _exp(logs: torch.Tensor) -> torch.Tensor:
        """exp, kept far from the largest number: only splits with an empty child come near it."""
        return torch.exp(logs.clamp(max=np.log(torch.finfo(logs.dtype).max) / 4))

    def outside(self) -> None:
        """b[w] (B, S, N), and derivatives of the log weights: by_root (B, N), by_rule (B, R), by_leaf (B, longest, P).

        A sentence without weight has derivatives of 0.
        """
        n_interminals = self.shape.n_interminals
        self.b = {width: torch.zeros_like(a) for width, a in self.a.items()}
        one_over = torch.where(self.share > 0, 1.0 / torch.where(self.share > 0, self.share, 1.0), 0.0)
        self.by_root = self.top * one_over[:, None]
        for s, length in enumerate(self.lengths):
            self.b[length][s, 0] = self._typed(self.root, length) * one_over[s]
        self.by_rule = torch.zeros(len(self.lengths), len(self.binary), dtype=self.top.dtype, device=self.top.device)
        for width in range(self.longest, 1, -1):
            n = self.longest - width + 1
            left, right, log_factors, _ = self._splits(width)
            factors = self._exp(log_factors - self.log_m[width][..., None])[..., None]
            parents = self.b[width][..., :n_interminals]
            self.by_rule += self.shape.by_rule(parents, self.shape.pairs(left * factors, right))
            to_left, to_right = self.shape.children(self.binary, parents, left * factors, right * factors)
            for k in range(1, width):
                self.b[k][:, :n] += self._typed(to_left[:, :, k - 1], k)
                self.b[width - k][:, k:k + n] += self._typed(to_right[:, :, k - 1], width - k)
        self.by_leaf = self.b[1][..., n_interminals:] * torch.exp(-self.log_m[1])[..., None]

    def _typed(self, values: torch.Tensor, width: int) -> torch.Tensor:
        """Zero for symbols that cannot stand over a span of this width."""
        typed = torch.zeros_like(values)
        symbols = slice(self.shape.n_interminals, None) if width == 1 else slice(0, self.shape.n_interminals)
        typed[..., symbols] = values[..., symbols]
        return typed


# ---- weights of a grammar --------------------------------------------------------------------------------------------


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
    table = emissions(grammar)
    rules = [table.rule[table.first[w]:table.first[w + 1]] if w >= 0 else table.rule[:0] for w in ids]
    return np.repeat(np.arange(len(ids)), [len(of_word) for of_word in rules]), np.concatenate(rules)


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


# ---- fitting probabilities to sentences ------------------------------------------------------------------------------


def em_step(grammar: PCFG, sentences: Sequence[Sentence], device: str = "cpu") -> tuple[PCFG, float]:
    """The grammar whose probabilities are the expected counts of this one's rules, divided by those of their heads.

    Also the mean log probability of the sentences under the grammar that came in, which no round makes worse.  Rules of
    a symbol that is never expected stay as they are.
    """
    totals = [np.zeros_like(p) for p in (grammar.root, grammar.binary_prob, grammar.lexical_prob)]
    log_prob = 0.0
    for s, chart in enumerate(weighted_charts(grammar, sentences, RuleWeights.of(grammar, device=device),
                                              EngineOptions(backend="torch", device=device))):
        if chart.counts is None or chart.log_prob == -np.inf:
            raise UsageError(f"the grammar gives sentence {s} no probability, so that no rule of it can be counted; "
                             f"leave it out, or begin with a grammar that knows its words")
        log_prob += chart.log_prob
        for total, counts in zip(totals, chart.counts, strict=True):
            total += counts
    root, binary, lexical = totals
    fitted = replace(
        grammar, root=root / root.sum(), symbol_counts=None, word_counts=None, written=None,
        binary_prob=_shares(binary, grammar.binary[:, 0], grammar.binary_prob),
        lexical_prob=_shares(lexical, grammar.lexical[:, 0], grammar.lexical_prob))
    return fitted, log_prob / len(sentences)


def _shares(counts: np.ndarray, heads: np.ndarray, before: np.ndarray) -> np.ndarray:
    total = np.bincount(heads, counts)[heads] if len(heads) else counts
    return np.where(total > 0, counts / np.where(total > 0, total, 1.0), before)


def normalised(grammar: PCFG, scores: RuleWeights) -> RuleWeights:
    """Probabilities of rules from any scores: the softmax over the rules of each head, differentiable."""
    heads = [torch.zeros(len(scores.root), dtype=torch.int64), torch.as_tensor(grammar.binary[:, 0].astype(np.int64)),
             torch.as_tensor(grammar.lexical[:, 0].astype(np.int64))]
    return RuleWeights(*(_softmax(x, head.to(x.device), grammar.n_nonterminals)
                         for x, head in zip(scores, heads, strict=True)))


def _softmax(scores: torch.Tensor, heads: torch.Tensor, n_heads: int) -> torch.Tensor:
    peak = torch.full((n_heads,), -torch.inf, dtype=scores.dtype, device=scores.device)
    peak = peak.scatter_reduce(0, heads, scores.detach(), "amax")
    exponentials = torch.exp(scores - peak[heads])
    return exponentials / exponentials.new_zeros(n_heads).index_add(0, heads, exponentials)[heads]
