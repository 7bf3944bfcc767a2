"""How sure a grammar is of the nodes of a tree: the posterior probability of each."""

from __future__ import annotations

from typing import NamedTuple

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.treebank.tree import Tree


class Node(NamedTuple):
    """A node of a tree with grammar labels and the posterior probability of (label, start, end)."""

    start: int
    end: int
    label: str
    marginal: float


def node_marginals(grammar: PCFG, chart: Chart, tree: Tree) -> list[Node]:
    """The nodes of a tree over the chart's sentence, children before parents; 0 where the grammar has no such label."""
    return [Node(i, j, label, _marginal(grammar, chart, label, i, j)) for label, i, j in tree.labelled_spans()]


def _marginal(grammar: PCFG, chart: Chart, label: str, i: int, j: int) -> float:
    symbol = grammar.nonterminal_index.get(label)
    cell = i * chart.length - i * (i - 1) // 2 + (j - i - 1)  # cells are ordered by i, then by j
    begin, end = chart.offsets[cell], chart.offsets[cell + 1]
    found = chart.entry_marginals[begin:end][chart.symbols[begin:end] == symbol]
    return float(found[0]) if len(found) else 0.0
