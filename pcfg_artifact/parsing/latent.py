"""Inside-Outside with a latent-variable PCFG, over the entries that the plain PCFG leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from pcfg_artifact.grammar.latent import LatentPCFG
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing import latent_kernels
from pcfg_artifact.parsing.charts import Chart, cell_bounds, n_cells
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.latent_kernels import LatentRules
from pcfg_artifact.parsing.leaves import Sentence, word_ids

PRUNING = 1e-5  # entries with a smaller posterior under the PCFG are left out


@dataclass(frozen=True, eq=False)
class LatentChart:
    """What a latent-variable PCFG says of one sentence, for the entries (A, i, j) that survive pruning.

    Cell c (in the order of `cell_bounds`) holds entries offsets[c]:offsets[c + 1].  total: the estimated probability of
    the sentence as a multiple of the PCFG's, exp(log_pcfg); it can be 0 or less, because estimates may be negative.
    entry_marginals (E,): |outside . inside| / |total|.
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
        scores = np.zeros((self.length + 1, self.length + 1))
        filled = np.flatnonzero(np.diff(self.offsets))
        if len(filled):
            starts, ends = cell_bounds(self.length)
            scores[starts[filled], ends[filled]] = np.maximum.reduceat(self.entry_marginals, self.offsets[filled])
        return scores


def latent_inside_outside(grammar: LatentPCFG, sentences: Sequence[Sentence], charts: Sequence[Chart] | None = None,
                          pruning: float = PRUNING, n_workers: int = 1) -> Iterator[LatentChart]:
    """A latent chart for every sentence, in their order, one by one.

    sentences: lists of words, or arrays of word ids.  charts: those of the PCFG, if they are at hand.
    """
    rules = latent_rules(grammar)
    charts = inside_outside(grammar.pcfg, sentences) if charts is None else charts
    ids = [word_ids(grammar.pcfg, sentence) for sentence in sentences]
    with ThreadPoolExecutor(n_workers) as pool:  # the kernels release the interpreter
        yield from pool.map(lambda item: _latent_chart(grammar, rules, *item, pruning), zip(ids, charts, strict=True))


def _latent_chart(grammar: LatentPCFG, rules: LatentRules, ids: np.ndarray, chart: Chart,
                  pruning: float) -> LatentChart:
    length = chart.length
    kept = np.flatnonzero((chart.entry_marginals >= pruning) & (chart.entry_marginals > 0.0))
    if not len(kept):
        return LatentChart(length, chart.log_prob, 0.0, np.zeros(n_cells(length) + 1, np.int64),
                           np.zeros(0, np.int64), np.zeros(0))
    starts, ends = (bounds[kept] for bounds in chart.entry_bounds)
    symbols = chart.symbols[kept].astype(np.int64)
    cells = starts * length - starts * (starts - 1) // 2 + (ends - starts - 1)
    offsets = np.searchsorted(cells, np.arange(n_cells(length) + 1))
    scale = np.full(n_cells(length), -np.inf)
    np.maximum.at(scale, cells, chart.entry_log_inside[kept])

    alpha, beta = (np.zeros((len(kept), grammar.root.shape[1])) for _ in range(2))
    leaves = np.flatnonzero(symbols >= grammar.pcfg.n_interminals)
    lexical = lexical_rules(grammar.pcfg, symbols[leaves], ids[starts[leaves]])
    alpha[leaves] = grammar.lexical[lexical] * np.exp(-scale[cells[leaves]])[:, None]
    latent_kernels.inside(rules, length, offsets, symbols, scale, alpha)
    whole = np.flatnonzero(ends - starts == length)
    beta[whole] = grammar.root[symbols[whole]]
    latent_kernels.outside(rules, length, offsets, symbols, scale, alpha, beta)

    entry_products = (alpha * beta).sum(axis=1)
    scaled = float(entry_products[whole].sum())
    return LatentChart(length, chart.log_prob, scaled * float(np.exp(scale[length - 1] - chart.log_prob)), offsets,
                       symbols, np.abs(entry_products) / (abs(scaled) or 1.0))


def lexical_rules(pcfg: PCFG, symbols: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Numbers of the lexical rules symbol -> word, all of which the grammar has."""
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
    rule = np.argsort(left * n + right, kind="stable")
    pairs, first = np.unique((left * n + right)[rule], return_index=True)
    pair_of = np.full(n * n, -1, np.int32)
    pair_of[pairs] = np.arange(len(pairs))
    return LatentRules(pair_of.reshape(n, n), np.append(first, len(rule)), rule, parent[rule],
                       grammar.n_states.astype(np.int64), grammar.offsets, grammar.tensors)
