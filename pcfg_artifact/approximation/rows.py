"""The approximations that are measured, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pcfg_artifact.approximation.algorithm import Approximation
from pcfg_artifact.approximation.merging import choose_classes, merge_symbols
from pcfg_artifact.approximation.restriction import restrict, select_symbols
from pcfg_artifact.approximation.transforms import STATISTICS, Correlations
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.engine import EngineOptions, each_chart
from pcfg_artifact.parsing.leaves import Sentence


class Row(NamedTuple):
    """An approximation by its kind, and the in-terminals that it keeps or its rank."""

    model: str
    size: int | None = None


Rows = dict[Row, Approximation]
EXACT = Row("exact")
COSTED = (Row("few", 10), Row("few", 20), Row("few", 40), Row("low_rank", 15))  # the paper gives their costs in percent


def few_symbols(grammar: PCFG, sizes: Sequence[int], n_preterminals: int) -> Rows:
    """Table 1: the most frequent in-terminals (and all of them) with the most frequent pre-terminals."""
    rows = {}
    for size in (None, *sizes):
        interminals, preterminals = select_symbols(grammar, size, n_preterminals)
        name = Row("few_preterminals") if size is None else Row("few", size)
        rows[name] = Approximation(grammar, None if size is None else interminals, preterminals)
    return rows


@dataclass(frozen=True, eq=False)
class Learned:
    """Correlations over I~ from exact charts by statistic, from charts of the restricted grammar, and over all of I."""

    exact: dict[str, Correlations]
    restricted: Correlations
    all_interminals: Correlations


def learn_correlations(grammar: PCFG, sentences: Sequence[Sentence], n_interminals: int, n_threads: int | None = None,
                       progress: Callable[..., Iterable] = lambda items, **_: items) -> Learned:
    """One pass over training sentences with the exact grammar, one with the restricted."""
    interminals, _ = select_symbols(grammar, n_interminals, None)
    longest = max(len(sentence) for sentence in sentences)
    learned = Learned({statistic: Correlations(interminals, longest) for statistic in STATISTICS},
                      Correlations(interminals, longest), Correlations(np.arange(grammar.n_interminals), longest))
    charts = each_chart(grammar, sentences, EngineOptions(outside="full", n_threads=n_threads))
    for chart in progress(charts, total=len(sentences), desc="correlations"):
        for statistic, correlations in learned.exact.items():
            correlations.add(chart, statistic)
        learned.all_interminals.add(chart)
    for chart in each_chart(restrict(grammar, interminals), sentences, EngineOptions(n_threads=n_threads)):
        learned.restricted.add(chart)
    return learned


def low_rank(grammar: PCFG, learned: Learned, ranks: Sequence[int], n_preterminals: int, max_length: int) -> Rows:
    """Table 2: W of every width from exact marginals."""
    correlations = learned.exact["marginals"]
    _, preterminals = select_symbols(grammar, None, n_preterminals)
    return {Row("low_rank", rank): Approximation(grammar, correlations.interminals, preterminals,
                                                 correlations.transforms(rank), max_length=max_length)
            for rank in ranks}


def ablations(grammar: PCFG, learned: Learned, ranks: Sequence[int], n_preterminals: int, max_length: int) -> Rows:
    """Other methods to learn W and to treat signs, after the two rows that they are compared with."""
    marginals, inside, outside = (learned.exact[statistic] for statistic in STATISTICS)
    interminals = marginals.interminals
    _, preterminals = select_symbols(grammar, None, n_preterminals)
    few = Approximation(grammar, interminals, preterminals, max_length=max_length)
    rows = {Row("few"): few, Row("few_leaves"): replace(few, few_leaves=True)}
    for rank in ranks:
        usual = replace(few, transforms=marginals.transforms(rank))
        rows |= {
            Row("low_rank", rank): usual,
            Row("shared_W", rank): replace(few, transforms=marginals.shared_transform(rank)),
            Row("all_interminals", rank): replace(few, interminals=None,
                                                  transforms=learned.all_interminals.transforms(rank)),
            Row("separate_W", rank): replace(few, transforms=inside.transforms(rank),
                                             outside_transforms=outside.transforms(rank)),
            Row("inside_W", rank): replace(few, transforms=inside.transforms(rank)),
            Row("outside_W", rank): replace(few, transforms=outside.transforms(rank)),
            Row("literal_signs", rank): replace(usual, sign_rule="literal"),
            Row("signed", rank): replace(usual, sign_rule="signed"),
            Row("low_rank_leaves", rank): replace(usual, few_leaves=True),
        }
        if learned.restricted.n_sentences:  # none if the restricted grammar derives no sentence
            rows[Row("restricted_W", rank)] = replace(few, transforms=learned.restricted.transforms(rank))
    return rows


def merged(grammar: PCFG, sizes: Sequence[int], n_preterminals: int, smoothing: float) -> Rows:
    """Grammars of the same size in which every symbol has joined a class: exact inference in each."""
    rows = {}
    for size in sizes:
        n_interminals = min(size, grammar.n_interminals)
        classes = choose_classes(grammar, n_interminals, min(n_preterminals, grammar.n_preterminals))
        rows[Row("merged", size)] = Approximation(merge_symbols(grammar, classes, smoothing))
    return rows
