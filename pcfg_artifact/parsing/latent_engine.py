"""Inside-Outside with a latent-variable PCFG, over the entries that the plain PCFG leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from os import sched_getaffinity
from weakref import WeakKeyDictionary

import numpy as np

from pcfg_artifact.grammar.latent import LatentPCFG
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing import latent_kernels
from pcfg_artifact.parsing.chart_index import cell_of, n_cells
from pcfg_artifact.parsing.charts import Chart, span_maxima
from pcfg_artifact.parsing.cpu_kernels.rule_index import grouped
from pcfg_artifact.parsing.decoding import AT_ONCE, Parse, parse_of, with_retries
from pcfg_artifact.parsing.engine import each_chart
from pcfg_artifact.parsing.latent_kernels import LatentRules
from pcfg_artifact.parsing.leaves import Sentence, word_ids
from pcfg_artifact.parsing.options import DEFAULT, EngineOptions
from pcfg_artifact.system.threads import ordered_map

PRUNING = 1e-5  # entries with a smaller posterior under the PCFG are left out


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
    latent_kernels.inside(rules, length, kept.offsets, symbols, kept.scale, alpha)
    whole = np.flatnonzero(kept.ends - kept.starts == length)
    beta[whole] = grammar.root[symbols[whole]]
    latent_kernels.outside(rules, length, kept.offsets, symbols, kept.scale, alpha, beta)

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
