"""Few non-terminals: the symbols that are kept, and the grammar without the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.expectation import frequencies
from pcfg_artifact.grammar.pcfg import PCFG


def select_symbols(grammar: PCFG, n_interminals: int | None, n_preterminals: int | None
                   ) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the most frequent in-terminals and pre-terminals, most frequent first (ties: lower id); None keeps all.

    Frequency is the number of nodes in the training trees, or the expected number where the grammar has no counts.
    """
    counts = frequencies(grammar)
    chosen = []
    for first, n, kept in ((0, grammar.n_interminals, n_interminals),
                           (grammar.n_interminals, grammar.n_preterminals, n_preterminals)):
        if kept is not None and kept < 1:
            raise UsageError(f"{kept} symbols were asked for; expected at least 1, or None for all")
        order = np.argsort(-counts[first:first + n], kind="stable")
        chosen.append(first + order[:kept])
    return chosen[0], chosen[1]


def restrict(grammar: PCFG, interminals: np.ndarray) -> PCFG:
    """The same symbols without the rules that use another in-terminal; root cut to `interminals`, not renormalised.

    Leaf probabilities of all pre-terminals stay.  A root that is a pre-terminal (a sentence of one word) is cut too.
    """
    is_kept = np.zeros(grammar.n_nonterminals, bool)
    is_kept[interminals] = True
    root = np.where(is_kept, grammar.root, 0.0)
    is_kept[grammar.n_interminals:] = True
    rules = is_kept[grammar.binary].all(axis=1)
    return replace(grammar, root=root, binary=grammar.binary[rules], binary_prob=grammar.binary_prob[rules],
                   is_proper=False, written=None)


def compact(grammar: PCFG, interminals: np.ndarray) -> PCFG:
    """The restricted grammar with `interminals` alone, numbered in the order given; all pre-terminals stay."""
    few = restrict(grammar, interminals)
    new_id = np.full(grammar.n_nonterminals, -1, np.int32)
    new_id[interminals] = np.arange(len(interminals))
    new_id[grammar.n_interminals:] = len(interminals) + np.arange(grammar.n_preterminals)
    kept = np.flatnonzero(new_id >= 0)
    order = kept[np.argsort(new_id[kept])]
    return replace(few, interminals=tuple(grammar.interminals[a] for a in interminals), root=few.root[order],
                   binary=new_id[few.binary], lexical=np.stack([new_id[few.lexical[:, 0]], few.lexical[:, 1]], axis=1),
                   symbol_counts=None if few.symbol_counts is None else few.symbol_counts[order])
