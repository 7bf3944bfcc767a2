"""Inside-Outside with a latent-variable PCFG, over the entries that the plain PCFG leaves.

Legend.  Cells and entries as in a Chart: cell (i, j) holds entries offsets[cell]:offsets[cell + 1], each a symbol with
a vector over its states.  A parent, B left child, C right child; x, y, z states of A, B, C.
Vectors of cell (i, j) are divided by exp(scale[cell]), the size of its largest inside value under the PCFG, so that no
length of sentence leaves the range of float64.

Work is cubic in the states once for every rule in a cell, not for every split: a pair (B, C) first gathers
sum over k of alpha(B,i,k) (x) alpha(C,k,j), and every rule A -> B C then multiplies that matrix once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from os import sched_getaffinity
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numba import njit

from pcfg_artifact.grammar.latent import LatentPCFG
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import cell_of, n_cells
from pcfg_artifact.parsing.charts import Chart, span_maxima
from pcfg_artifact.parsing.cpu_kernels.rule_index import grouped
from pcfg_artifact.parsing.decoding import AT_ONCE, Parse, parse_of, with_retries
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions, each_chart
from pcfg_artifact.parsing.leaves import Sentence, word_ids
from pcfg_artifact.system.threads import ordered_map

PRUNING = 1e-5  # entries with a smaller posterior under the PCFG are left out
VECTORS = njit(nogil=True, fastmath={"reassoc", "contract"})  # sums in any order, so that loops become vectors
USELESS = -1  # slot of a pair that makes nothing that survives in the cell


@dataclass(frozen=True, eq=False)
class Survivors:
    """The entries (A, i, j) of a PCFG's chart that survive pruning, with the words (L,) and the sentence's log_pcfg.

    Cell c (in the order of `cell_bounds`) holds entries offsets[c]:offsets[c + 1]; symbols, starts, ends (E,);
    scale (cells,) is the largest log inside value of each cell.
    """

    words: np.ndarray
    log_pcfg: float
    offsets: np.ndarray
    symbols: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, chart: Chart, words: np.ndarray, pruning: float = PRUNING) -> Survivors:
        length = chart.length
        kept = np.flatnonzero((chart.entry_marginals >= pruning) & (chart.entry_marginals > 0.0))
        starts, ends = (bounds[kept] for bounds in chart.entry_bounds)
        cells = cell_of(starts, ends, length)
        scale = np.full(n_cells(length), -np.inf)
        np.maximum.at(scale, cells, chart.entry_log_inside[kept])
        return cls(words, chart.log_prob, np.searchsorted(cells, np.arange(n_cells(length) + 1)),
                   chart.symbols[kept].astype(np.int64), starts, ends, scale)


@dataclass(frozen=True, eq=False)
class LatentChart:
    """What a latent-variable PCFG says of one sentence, for the entries (A, i, j) that survive pruning.

    Entries as in Survivors.  total: the estimated probability of the sentence as a multiple of the PCFG's,
    exp(log_pcfg); it can be 0 or less, because estimates may be negative.
    entry_marginals (E,): |outside . inside| / |total|, the absolute value for the same reason.
    """

    length: int
    log_pcfg: float
    total: float
    offsets: np.ndarray
    symbols: np.ndarray
    entry_marginals: np.ndarray

    @property
    def is_negative(self) -> bool:
        """The PCFG knows the sentence, but the latent estimate of its probability is not positive."""
        return self.log_pcfg > -np.inf and self.total <= 0.0

    @property
    def log_prob(self) -> float:
        """Log of the estimated probability; -inf where the estimate is not positive."""
        return self.log_pcfg + float(np.log(self.total)) if self.total > 0.0 else -np.inf

    def span_scores(self) -> np.ndarray:
        """(L+1, L+1): s(i, j) = max over A of the marginal of (A, i, j)."""
        return span_maxima(self.length, self.offsets, self.entry_marginals)


def latent_inside_outside(grammar: LatentPCFG, sentences: Sequence[Sentence], pruning: float = PRUNING,
                          options: EngineOptions = DEFAULT) -> Iterator[LatentChart]:
    """A latent chart for every sentence (words, or word ids), in their order, one by one."""
    ids = [word_ids(grammar.pcfg, sentence) for sentence in sentences]
    charts = each_chart(grammar.pcfg, ids, options)
    survivors = (Survivors.of(chart, words, pruning) for chart, words in zip(charts, ids, strict=True))
    return latent_charts(grammar, survivors, options.n_threads)


def latent_charts(grammar: LatentPCFG, survivors: Iterable[Survivors],
                  n_threads: int | None = None) -> Iterator[LatentChart]:
    """The latent charts of sentences that are pruned already."""
    work = partial(latent_chart, grammar, latent_rules(grammar))
    return ordered_map(work, survivors, n_threads or len(sched_getaffinity(0)))  # the kernels release the interpreter


def latent_chart(grammar: LatentPCFG, rules: LatentRules, kept: Survivors) -> LatentChart:
    length, symbols = len(kept.words), kept.symbols
    if not len(symbols):
        return LatentChart(length, kept.log_pcfg, 0.0, kept.offsets, symbols, np.zeros(0))
    alpha, beta = (np.zeros((len(symbols), grammar.root.shape[1])) for _ in range(2))
    leaves = np.flatnonzero(kept.ends - kept.starts == 1)
    lexical = lexical_rules(grammar.pcfg, symbols[leaves], kept.words[kept.starts[leaves]])
    cells = np.repeat(np.arange(n_cells(length)), np.diff(kept.offsets))
    alpha[leaves] = grammar.lexical[lexical] * np.exp(-kept.scale[cells[leaves]])[:, None]
    inside(rules, length, kept.offsets, symbols, kept.scale, alpha)
    whole = np.flatnonzero(kept.ends - kept.starts == length)
    beta[whole] = grammar.root[symbols[whole]]
    outside(rules, length, kept.offsets, symbols, kept.scale, alpha, beta)

    products = (alpha * beta).sum(axis=1)
    total = float(products[whole].sum())
    return LatentChart(length, kept.log_pcfg, total * float(np.exp(kept.scale[length - 1] - kept.log_pcfg)),
                       kept.offsets, symbols, np.abs(products) / (abs(total) or 1.0))


def latent_parses(grammar: LatentPCFG, sentences: Sequence[Sequence[str]], options: EngineOptions = DEFAULT
                  ) -> Iterator[tuple[Parse, LatentChart]]:
    """The PCFG's parse and the latent chart of every sentence, given as words, in order; one pass of the PCFG for both.

    The options are those of the PCFG's pass; the latent one uses the processor.
    """
    def read(chart: Chart, words: np.ndarray, n_attempts: int) -> tuple[Parse, Survivors]:
        return parse_of(chart, n_attempts), Survivors.of(chart, words)

    both = with_retries(grammar.pcfg, sentences, read, options)
    while block := list(islice(both, AT_ONCE)):
        charts = latent_charts(grammar, (kept for _, kept in block), options.n_threads)
        yield from ((plain, chart) for (plain, _), chart in zip(block, charts, strict=True))


def lexical_rules(pcfg: PCFG, symbols: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Indices of the lexical rules symbol -> word, all of which the grammar has."""
    return np.searchsorted(pcfg.lexical[:, 0].astype(np.int64) * pcfg.n_words + pcfg.lexical[:, 1],
                           symbols * pcfg.n_words + words)


_rules: WeakKeyDictionary[LatentPCFG, LatentRules] = WeakKeyDictionary()


def latent_rules(grammar: LatentPCFG) -> LatentRules:
    """The rules of a grammar as the kernels read them, built once."""
    if grammar not in _rules:
        _rules[grammar] = _compile(grammar)
    return _rules[grammar]


def _compile(grammar: LatentPCFG) -> LatentRules:
    parent, left, right = grammar.pcfg.binary.T.astype(np.int64)
    n = grammar.pcfg.n_nonterminals
    pairs, pair_of_rule = np.unique(left * n + right, return_inverse=True)
    first, rule = grouped(pair_of_rule, len(pairs))
    pair_of = np.full(n * n, -1, np.int32)
    pair_of[pairs] = np.arange(len(pairs))
    return LatentRules(pair_of.reshape(n, n), first, rule, parent[rule],
                       grammar.n_states.astype(np.int64), grammar.offsets, grammar.tensors)


# ---- compiled kernels ------------------------------------------------------------------------------------------------


class LatentRules(NamedTuple):
    """Binary rules by child pair q: those of q are first[q]:first[q + 1] of `rule` and `parent`.

    pair_of (N, N): q, or -1 where no rule has these children.  tensors: flat, rule r begins at begin[r].
    """

    pair_of: np.ndarray
    first: np.ndarray
    rule: np.ndarray
    parent: np.ndarray
    n_states: np.ndarray
    begin: np.ndarray
    tensors: np.ndarray


class CellWork(NamedTuple):
    """Room for one cell; memory that no cell uses is never touched.

    entry_of (N,): entry of a symbol in the cell, -1 = none.  Every pair that makes something in the cell has a slot:
    met_in (Q,) is the last cell that met a pair, slot_of (Q,) its slot there, pairs (Q,) the pair of a slot,
    matrices (Q, S * S) the matrix over the states of B and C that passes between parents and children.
    """

    entry_of: np.ndarray
    met_in: np.ndarray
    slot_of: np.ndarray
    pairs: np.ndarray
    matrices: np.ndarray


@njit(nogil=True)
def new_work(rules, n_most):
    n_pairs = len(rules.first) - 1
    return CellWork(np.full(len(rules.n_states), -1), np.full(n_pairs, -1), np.empty(n_pairs, np.int64),
                np.empty(n_pairs, np.int64), np.empty((n_pairs, n_most * n_most)))


@njit(nogil=True, cache=True)
def inside(rules: LatentRules, length: int, offsets: np.ndarray, symbols: np.ndarray, scale: np.ndarray,
           alpha: np.ndarray) -> None:
    """Fill alpha (E, S), whose entries of width 1 are given and whose others are 0, from narrow to wide spans."""
    work = new_work(rules, alpha.shape[1])
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            visit(rules, i, i + width, length, offsets, symbols, scale, alpha, alpha, work, False)


@njit(nogil=True, cache=True)
def outside(rules: LatentRules, length: int, offsets: np.ndarray, symbols: np.ndarray, scale: np.ndarray,
            alpha: np.ndarray, beta: np.ndarray) -> None:
    """Fill beta (E, S), whose entries of the whole sentence are given and whose others are 0, from wide to narrow."""
    work = new_work(rules, alpha.shape[1])
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            visit(rules, i, i + width, length, offsets, symbols, scale, alpha, beta, work, True)


@njit(nogil=True)
def visit(rules, i, j, length, offsets, symbols, scale, alpha, beta, work, is_outside):
    """All splits of a cell: its alpha from those of the children, or with is_outside their beta from its own."""
    cell, n_slots = cell_of(i, j, length), 0
    if offsets[cell] == offsets[cell + 1]:
        return
    for entry in range(offsets[cell], offsets[cell + 1]):
        work.entry_of[symbols[entry]] = entry
    for k in range(i + 1, j):
        left_cell, right_cell = cell_of(i, k, length), cell_of(k, j, length)
        weight = math.exp(scale[left_cell] + scale[right_cell] - scale[cell])
        for left in range(offsets[left_cell], offsets[left_cell + 1]):
            for right in range(offsets[right_cell], offsets[right_cell + 1]):
                pair = rules.pair_of[symbols[left], symbols[right]]
                if pair < 0:
                    continue
                if work.met_in[pair] != cell:
                    work.met_in[pair], work.slot_of[pair] = cell, USELESS
                    if n_useful(rules, pair, work):
                        work.slot_of[pair], work.pairs[n_slots], work.matrices[n_slots] = n_slots, pair, 0.0
                        if is_outside:
                            from_parents(rules, pair, work.matrices[n_slots], beta, work)
                        n_slots += 1
                slot = work.slot_of[pair]
                if slot == USELESS:
                    continue
                n_left, n_right = rules.n_states[symbols[left]], rules.n_states[symbols[right]]
                if is_outside:
                    to_children(left, right, n_left, n_right, weight, work.matrices[slot], alpha, beta)
                else:
                    from_children(left, right, n_left, n_right, weight, work.matrices[slot], alpha)
    if not is_outside:
        for slot in range(n_slots):
            to_parents(rules, work.pairs[slot], work.matrices[slot], alpha, work)
    for entry in range(offsets[cell], offsets[cell + 1]):
        work.entry_of[symbols[entry]] = -1


@njit(nogil=True)
def n_useful(rules, pair, work):
    """How many rules of a pair make something that survives in the cell."""
    n = 0
    for r in range(rules.first[pair], rules.first[pair + 1]):
        n += work.entry_of[rules.parent[r]] >= 0
    return n


@VECTORS
def from_children(left, right, n_left, n_right, weight, matrix, alpha):
    """M_yz += alpha(B,i,k)_y alpha(C,k,j)_z"""
    for y in range(n_left):
        value = weight * alpha[left, y]
        for z in range(n_right):
            matrix[y * n_right + z] += value * alpha[right, z]


@VECTORS
def to_children(left, right, n_left, n_right, weight, matrix, alpha, beta):
    """beta(B,i,k)_y += M_yz alpha(C,k,j)_z  and  beta(C,k,j)_z += M_yz alpha(B,i,k)_y"""
    for y in range(n_left):
        value, total = weight * alpha[left, y], 0.0
        for z in range(n_right):
            total += matrix[y * n_right + z] * alpha[right, z]
            beta[right, z] += value * matrix[y * n_right + z]
        beta[left, y] += weight * total


@VECTORS
def to_parents(rules, pair, matrix, alpha, work):
    """alpha(A,i,j)_x += T_xyz M_yz, for every rule of a pair"""
    for r in range(rules.first[pair], rules.first[pair + 1]):
        parent = work.entry_of[rules.parent[r]]
        if parent >= 0:
            tensor, n_parent, size = tensor_of(rules, r)
            for x in range(n_parent):
                total = 0.0
                for yz in range(size):
                    total += tensor[x * size + yz] * matrix[yz]
                alpha[parent, x] += total


@VECTORS
def from_parents(rules, pair, matrix, beta, work):
    """M_yz += beta(A,i,j)_x T_xyz, for every rule of a pair"""
    for r in range(rules.first[pair], rules.first[pair + 1]):
        parent = work.entry_of[rules.parent[r]]
        if parent >= 0:
            tensor, n_parent, size = tensor_of(rules, r)
            for x in range(n_parent):
                value = beta[parent, x]
                for yz in range(size):
                    matrix[yz] += value * tensor[x * size + yz]


@njit(inline="always")
def tensor_of(rules, r):
    """The flat tensor of the r-th rule in order of pairs, the states of its parent, and of its children together."""
    rule = rules.rule[r]
    tensor = rules.tensors[rules.begin[rule]:rules.begin[rule + 1]]
    n_parent = rules.n_states[rules.parent[r]]
    return tensor, n_parent, len(tensor) // n_parent
