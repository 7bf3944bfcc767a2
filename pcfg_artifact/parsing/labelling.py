"""Labels for the spans of a Labelled-Recall tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import SpanChart, entries_of
from pcfg_artifact.parsing.decoding import labelled_recall
from pcfg_artifact.treebank.tree import Tree

NO_LABEL = "X"  # of a span to which the grammar gives no probability


def labelled_tree(grammar: PCFG, chart: SpanChart, words: Sequence[str]) -> Tree | None:
    """The Labelled-Recall tree over `words`, each span with its most probable symbol; None for the empty sentence."""
    stack: list[Tree] = []
    for i, j in reversed(labelled_recall(chart)):  # from the right, children are complete before their parent
        label = _best_label(grammar, chart, i, j)
        if j - i == 1:
            stack.append(Tree(label, word=words[i]))
        else:
            left, right = stack.pop(), stack.pop()
            stack.append(Tree(label, (left, right)))
    return stack[0] if stack else None


def _best_label(grammar: PCFG, chart: SpanChart, i: int, j: int) -> str:
    entries = entries_of(chart, i, j)
    marginals = chart.entry_marginals[entries]
    if not marginals.max(initial=0.0) > 0:
        return NO_LABEL
    return grammar.nonterminals[chart.symbols[entries][int(np.argmax(marginals))]]
