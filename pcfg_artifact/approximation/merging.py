"""Merged grammars: every symbol joins one of a few classes, so that every sentence keeps some probability.

Classes should keep as much as possible of what a symbol says about its neighbours.  With c the counts in the training
trees and A^ the class of A, a tree of classes, each of which then emits its symbol, has the log likelihood

    J = sum over rules of c(A -> B C) log [c(A^ -> B^ C^) / c(A^)] + sum over nodes of c(A) log [c(A) / c(A^)],

roots and words aside.  Symbols move from class to class, the most frequent first, as long as J rises.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.expectation import expected_counts
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.unknown import UNKNOWN

EXPECTED_TREES = 1e5
MAX_SWEEPS = 50  # treebank grammars converge in 10 to 20


class Counts(NamedTuple):
    """How often each rule was used in training: root (N,), binary (R,), lexical (E,), symbols (N,)."""

    root: np.ndarray
    binary: np.ndarray
    lexical: np.ndarray
    symbols: np.ndarray


class Observed(NamedTuple):
    """What the exchange reads: rules (R, 3), counts of rules, roots and symbols, and the rules of symbol a,
    rule_of[first_rule[a]:first_rule[a + 1]]; the first n_inner classes are of in-terminals."""

    rules: np.ndarray
    binary: np.ndarray
    root: np.ndarray
    symbols: np.ndarray
    first_rule: np.ndarray
    rule_of: np.ndarray
    n_inner: int


class Assignment(NamedTuple):
    """What the exchange changes in place: the class of each symbol, and counts of merged rules, roots and symbols."""

    classes: np.ndarray
    tensor: np.ndarray
    roots: np.ndarray
    sizes: np.ndarray


def rule_counts(grammar: PCFG) -> Counts:
    """Training counts of a relative-frequency grammar, from its probabilities and the counts of its symbols.

    Of a grammar that was not learned: what is expected of EXPECTED_TREES trees.
    """
    symbols = EXPECTED_TREES * expected_counts(grammar) if grammar.symbol_counts is None \
        else grammar.symbol_counts.astype(np.float64)
    binary = grammar.binary_prob * symbols[grammar.binary[:, 0]]
    # Every node is the root of its tree or a child of a rule.
    n_trees = symbols.sum() - 2 * binary.sum()
    return Counts(grammar.root * n_trees, binary, grammar.lexical_prob * symbols[grammar.lexical[:, 0]], symbols)


def choose_classes(grammar: PCFG, n_interminals: int, n_preterminals: int) -> np.ndarray:
    """(N,) class of each symbol: in-terminals in 0 .. n_interminals-1, pre-terminals in the numbers after these.

    Begins with one class for each frequent symbol and all others in the class of the most frequent one.
    """
    for n, kind, available in ((n_interminals, "in-terminal", grammar.n_interminals),
                               (n_preterminals, "pre-terminal", grammar.n_preterminals)):
        if not 1 <= n <= available:
            raise UsageError(f"{n} {kind} classes were asked for, expected 1 to {available}, the number of symbols")
    counts = rule_counts(grammar)
    classes = np.empty(grammar.n_nonterminals, np.int64)
    by_frequency = np.argsort(-counts.symbols, kind="stable")
    for first, chosen, n in ((0, by_frequency[by_frequency < grammar.n_interminals], n_interminals),
                             (n_interminals, by_frequency[by_frequency >= grammar.n_interminals], n_preterminals)):
        classes[chosen] = first
        classes[chosen[:n]] = first + np.arange(n)
    rules = grammar.binary.astype(np.int64)
    members = np.concatenate([rules[:, 0], rules[:, 1], rules[:, 2]])
    of_rule = np.tile(np.arange(len(rules)), 3)
    once = np.unique(np.stack([members, of_rule], axis=1), axis=0)
    first_rule = np.searchsorted(once[:, 0], np.arange(grammar.n_nonterminals + 1))
    n = n_interminals + n_preterminals
    observed = Observed(rules, counts.binary, counts.root, counts.symbols, first_rule, once[:, 1].copy(), n_interminals)
    assignment = Assignment(classes, np.zeros((n_interminals, n, n)), np.zeros(n), np.zeros(n))
    exchange(observed, assignment, by_frequency, grammar.n_interminals)
    return classes


@njit(cache=True)
def entropy_term(x):
    return x * np.log(x) if x > 1e-9 else 0.0  # counts are whole numbers up to rounding


@njit(cache=True)
def exchange(observed, assignment, order, n_interminals):
    """Move symbols between classes, in the order given, until no move raises J."""
    rules, classes = observed.rules, assignment.classes
    for r in range(len(rules)):
        assignment.tensor[classes[rules[r, 0]], classes[rules[r, 1]], classes[rules[r, 2]]] += observed.binary[r]
    for a in range(len(observed.symbols)):
        assignment.roots[classes[a]] += observed.root[a]
        assignment.sizes[classes[a]] += observed.symbols[a]
    for _ in range(MAX_SWEEPS):
        n_moved = 0
        for a in order:
            first, last = (0, observed.n_inner) if a < n_interminals else (observed.n_inner, len(assignment.sizes))
            home = classes[a]
            best, best_gain = home, 1e-6  # a gain must exceed what rounding can make up
            for target in range(first, last):
                if target != home:
                    gain = move(a, target, observed, assignment)
                    if gain > best_gain:
                        best, best_gain = target, gain
                    move(a, home, observed, assignment)
            if best != home:
                move(a, best, observed, assignment)
                n_moved += 1
        if n_moved == 0:
            return


@njit(cache=True)
def move(a, target, observed, assignment):
    """Put symbol a into class `target` and return by how much J grows."""
    rules, classes, roots, sizes, tensor = (observed.rules, assignment.classes, assignment.roots, assignment.sizes,
                                            assignment.tensor)
    home = classes[a]
    gain = 0.0
    # A class of in-terminals normalises twice: over the rules it heads, and over the symbols it names.
    weight = 2.0 if home < observed.n_inner else 1.0
    for x, sign in ((home, -1.0), (target, 1.0)):
        gain -= entropy_term(roots[x]) - weight * entropy_term(sizes[x])
        roots[x] += sign * observed.root[a]
        sizes[x] += sign * observed.symbols[a]
        gain += entropy_term(roots[x]) - weight * entropy_term(sizes[x])
    for x, sign in ((home, -1.0), (target, 1.0)):
        classes[a] = x
        for at in range(observed.first_rule[a], observed.first_rule[a + 1]):
            r = observed.rule_of[at]
            i, j, k = classes[rules[r, 0]], classes[rules[r, 1]], classes[rules[r, 2]]
            gain -= entropy_term(tensor[i, j, k])
            tensor[i, j, k] += sign * observed.binary[r]
            gain += entropy_term(tensor[i, j, k])
    return gain


def merge_symbols(grammar: PCFG, classes: np.ndarray, smoothing: float) -> PCFG:
    """The grammar of classes, re-estimated: relative frequencies of merged rules, with a share `smoothing` of back-off.

    The back-off knows no parent: Pr[B C] = Pr[B is a left child] Pr[C is a right child], every class possible; a root
    is any class, a word the unknown one.  With smoothing > 0 every sentence has probability.
    """
    if not 0 <= smoothing < 1:
        raise UsageError(f"smoothing is {smoothing}, expected a share from 0 to below 1")
    counts = rule_counts(grammar)
    n_inner = int(classes[:grammar.n_interminals].max()) + 1
    n = int(classes.max()) + 1
    tensor = np.zeros((n_inner, n, n))
    np.add.at(tensor, tuple(classes[grammar.binary].T), counts.binary)
    sizes = np.bincount(classes, counts.symbols, minlength=n)
    names = _class_names(grammar, classes, counts.symbols, n)

    left, right = tensor.sum(axis=(0, 2)) + 1.0, tensor.sum(axis=(0, 1)) + 1.0
    backoff = np.outer(left / left.sum(), right / right.sum())
    heads = tensor.sum(axis=(1, 2), keepdims=True)
    rules = (1 - smoothing) * np.divide(tensor, heads, out=np.zeros_like(tensor), where=heads > 0) + smoothing * backoff
    rules /= rules.sum(axis=(1, 2), keepdims=True)

    words = grammar.words if UNKNOWN in grammar.word_index or not smoothing else (*grammar.words, UNKNOWN)
    lexicon = np.zeros((n - n_inner, len(words)))
    np.add.at(lexicon, (classes[grammar.lexical[:, 0]] - n_inner, grammar.lexical[:, 1]), counts.lexical)
    lexicon *= (1 - smoothing) / lexicon.sum(axis=1, keepdims=True)
    if smoothing:
        lexicon[:, words.index(UNKNOWN)] += smoothing
    lexicon /= lexicon.sum(axis=1, keepdims=True)

    root = np.bincount(classes, counts.root, minlength=n)
    root = (1 - smoothing) * root / root.sum() + smoothing / n
    binary, lexical = np.argwhere(rules > 0), np.argwhere(lexicon > 0)
    word_counts = None if grammar.word_counts is None else np.append(grammar.word_counts, 0)[:len(words)]
    return PCFG(interminals=names[:n_inner], preterminals=names[n_inner:], words=words, root=root / root.sum(),
                binary=binary.astype(np.int32), binary_prob=rules[tuple(binary.T)],
                lexical=(lexical + np.array([n_inner, 0])).astype(np.int32), lexical_prob=lexicon[tuple(lexical.T)],
                symbol_counts=sizes, word_counts=word_counts)


def _class_names(grammar: PCFG, classes: np.ndarray, counts: np.ndarray, n: int) -> tuple[str, ...]:
    """Names of classes, each that of its most frequent member."""
    names = [""] * n
    for a in np.argsort(counts, kind="stable"):
        names[classes[a]] = grammar.nonterminals[a]
    return tuple(names)
