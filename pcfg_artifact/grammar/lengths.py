"""How long the sentences and constituents of a grammar are, and the grammar of its shorter constituents."""

from __future__ import annotations

import numpy as np
from scipy.sparse import diags, identity
from scipy.sparse.linalg import splu

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.expectation import child_matrix, reachable
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.treebank.binarise import is_artificial


def yield_lengths(grammar: PCFG, max_length: int) -> np.ndarray:
    """(max_length + 1, N): probability that a symbol yields so many words."""
    found = np.zeros((max_length + 1, grammar.n_nonterminals))
    found[1:2, grammar.n_interminals:] = grammar.rule_mass()[grammar.n_interminals:]
    parent, left, right = grammar.binary.T
    for n in range(2, max_length + 1):
        both = (found[1:n][:, left] * found[n - 1:0:-1][:, right]).sum(axis=0)
        found[n] = np.bincount(parent, grammar.binary_prob * both, minlength=grammar.n_nonterminals)
    return found


def begun_lower(grammar: PCFG, max_length: int, share: float) -> PCFG:
    """The grammar of the highest constituents of which at least `share` have at most `max_length` words.

    Each begins a sentence as often as it is met on the way down from the root.  Nodes that binarisation made are passed
    over, and so are single words.
    """
    is_short = yield_lengths(grammar, max_length).sum(axis=0) >= share
    is_short &= [not is_artificial(name) for name in grammar.nonterminals]
    # count = root + count @ children, where short symbols are not entered
    passed = diags((~is_short).astype(float)) @ child_matrix(grammar)
    count = splu((identity(grammar.n_nonterminals, format="csc") - passed).tocsc()).solve(grammar.root, trans="T")
    root = np.where(is_short, count, 0.0)
    root[grammar.n_interminals:] = 0.0
    if not root.sum() > 0:
        raise GrammarError(f"no constituent of the grammar has at most {max_length} words in {share:.0%} of the cases; "
                           f"give a grammar of shorter sentences, or raise construct.max_length")
    return with_root(grammar, root / root.sum())


def with_root(grammar: PCFG, root: np.ndarray) -> PCFG:
    """The same rules under another distribution (N,) of the symbol at the top, without symbols that it never leads to.
    """
    names, words = grammar.nonterminals, grammar.words
    is_used = reachable(PCFG(grammar.interminals, grammar.preterminals, words, root, grammar.binary,
                             grammar.binary_prob, grammar.lexical, grammar.lexical_prob, is_proper=grammar.is_proper))
    return PCFG.from_rules(
        {names[a]: float(root[a]) for a in np.flatnonzero(root)},
        [(names[a], names[b], names[c], p) for (a, b, c), p in
         zip(grammar.binary.tolist(), grammar.binary_prob.tolist(), strict=True) if is_used[a] and p > 0],
        [(names[a], words[w], p) for (a, w), p in
         zip(grammar.lexical.tolist(), grammar.lexical_prob.tolist(), strict=True)
         if is_used[a] and p > 0],
        is_proper=grammar.is_proper)
