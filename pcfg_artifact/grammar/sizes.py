"""What a reader wants to know of a learned grammar, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcfg_artifact.grammar.expectation import expected_length, frequencies, spectral_radius
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.treebank.tree import Tree

TOP = 20  # the paper counts the pre-terminals that its 20 most frequent in-terminals can produce


def grammar_sizes(grammar: PCFG, trees: Sequence[Tree]) -> list[Metric]:
    """Of a grammar learned from these trees."""
    most_frequent = np.argsort(-frequencies(grammar)[:grammar.n_interminals], kind="stable")[:TOP]
    children = np.unique(grammar.binary[np.isin(grammar.binary[:, 0], most_frequent), 1:])

    def size(metric: str, value: float, unit: str = "count", **dimensions: Any) -> Metric:
        return Metric(table="grammar", metric=metric, value=value, n=len(trees), unit=unit, **dimensions)

    return [
        size("interminals", grammar.n_interminals),
        size("preterminals", grammar.n_preterminals),
        size("nonterminals", grammar.n_nonterminals),
        size("binary_rules", len(grammar.binary)),
        size("lexical_rules", len(grammar.lexical)),
        size("child_pairs", len(np.unique(grammar.binary[:, 1:], axis=0))),
        size("words", grammar.n_words),
        size("root_labels", int((grammar.root > 0).sum())),
        size("preterminals", int((children >= grammar.n_interminals).sum()), group="children of the most frequent",
             size=TOP),
        size("expected_length", expected_length(grammar), "words"),
        size("mean_training_length", float(np.mean([len(tree.words()) for tree in trees])), "words"),
        size("spectral_radius", spectral_radius(grammar), "ratio"),
    ]
