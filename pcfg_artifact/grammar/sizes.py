"""What a reader wants to know of a learned grammar, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.grammar.expectation import expected_length, frequencies, spectral_radius
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.treebank.tree import Tree

TOP = 20  # the paper counts the pre-terminals that its 20 most frequent in-terminals can produce


def grammar_sizes(grammar: PCFG, trees: Sequence[Tree]) -> dict[str, tuple[float, str]]:
    """Name -> (value, unit) of what a reader wants to know of a learned grammar."""
    most_frequent = np.argsort(-frequencies(grammar)[:grammar.n_interminals], kind="stable")[:TOP]
    children = np.unique(grammar.binary[np.isin(grammar.binary[:, 0], most_frequent), 1:])
    return {
        "interminals": (grammar.n_interminals, "count"),
        "preterminals": (grammar.n_preterminals, "count"),
        "nonterminals": (grammar.n_nonterminals, "count"),
        "binary_rules": (len(grammar.binary), "count"),
        "lexical_rules": (len(grammar.lexical), "count"),
        "child_pairs": (len(np.unique(grammar.binary[:, 1:], axis=0)), "count"),
        "words": (grammar.n_words, "count"),
        "root_labels": (int((grammar.root > 0).sum()), "count"),
        cells.preterminals_of_top(TOP): (int((children >= grammar.n_interminals).sum()), "count"),
        "expected_length": (expected_length(grammar), "words"),
        "mean_training_length": (float(np.mean([len(tree.words()) for tree in trees])), "words"),
        "spectral_radius": (spectral_radius(grammar), "ratio"),
    }
