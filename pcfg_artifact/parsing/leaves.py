"""Leaves: the weight with which every pre-terminal yields what is seen at every position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numba import njit

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG

Sentence = Sequence[str] | np.ndarray  # words, or word ids of the grammar (-1 = a word that nothing yields)


class Emissions:
    """P(A -> w) by word: the entries of word w are first[w]:first[w + 1], each with its head A, its prob and its rule,
    the row of grammar.lexical."""

    def __init__(self, grammar: PCFG) -> None:
        self.rule = np.argsort(grammar.lexical[:, 1], kind="stable")
        self.n_preterminals = grammar.n_preterminals
        self.head = grammar.lexical[self.rule, 0] - grammar.n_interminals
        self.prob = grammar.lexical_prob[self.rule]
        self.first = np.zeros(grammar.n_words + 1, np.int64)
        np.cumsum(np.bincount(grammar.lexical[:, 1], minlength=grammar.n_words), out=self.first[1:])
        # A word that is not seen is summed out: 1 for a proper grammar, otherwise the mass that its rules have.
        mass = np.bincount(self.head, self.prob, minlength=self.n_preterminals)
        self.any_word = np.ones(self.n_preterminals) if grammar.is_proper else mass

    def of(self, ids: np.ndarray) -> np.ndarray:
        """(L, P) P(A -> w_t); rows of zeros where the id is negative."""
        leaves = np.zeros((len(ids), self.n_preterminals))
        fill(leaves, ids, self.first, self.head, self.prob)
        return leaves


# Compiled, because a dozen calls of NumPy for each sentence took a sixth of the time of one of ten words.
@njit(nogil=True, cache=True)
def fill(leaves: np.ndarray, ids: np.ndarray, first: np.ndarray, head: np.ndarray, prob: np.ndarray) -> None:
    """leaves[t, A] = P(A -> w_t)"""
    for t in range(len(ids)):
        if ids[t] >= 0:
            for entry in range(first[ids[t]], first[ids[t] + 1]):
                leaves[t, head[entry]] = prob[entry]


_emissions: WeakKeyDictionary[PCFG, Emissions] = WeakKeyDictionary()


def emissions(grammar: PCFG) -> Emissions:
    """The emission table of a grammar, built once."""
    if grammar not in _emissions:
        _emissions[grammar] = Emissions(grammar)
    return _emissions[grammar]


def word_ids(grammar: PCFG, sentence: Sentence) -> np.ndarray:
    """(L,) int64 ids of a sentence given as words or as ids."""
    if isinstance(sentence, str):
        raise UsageError(f"a sentence must be a list of words, found the string {sentence[:40]!r}; split it first")
    if not len(sentence):
        return np.zeros(0, np.int64)
    if isinstance(sentence[0], str):  # asked before NumPy, which reads all of them first
        return grammar.encode(list(sentence)).astype(np.int64)
    array = np.asarray(sentence)
    if array.dtype.kind not in "iu":
        return grammar.encode(list(sentence)).astype(np.int64)
    if array.max() >= grammar.n_words:
        raise UsageError(f"word id {array.max()} is outside this grammar's {grammar.n_words} words; "
                         f"the sentence was encoded with another grammar")
    return array.astype(np.int64)


def sentence_leaves(grammar: PCFG, sentence: Sentence, masked: Iterable[int] = ()) -> np.ndarray:
    """(L, P) weights of a sentence; at a masked position every pre-terminal has its whole mass (1)."""
    table = emissions(grammar)
    leaves = table.of(word_ids(grammar, sentence))
    if positions := list(masked):
        leaves[positions] = table.any_word
    return leaves
