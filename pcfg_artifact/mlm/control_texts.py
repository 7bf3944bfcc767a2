"""Texts without syntax, on which control models are trained: shuffled sentences, and those of the grammar's bigrams.

What a probe reads from a model of shuffled sentences rests on which words there are and which share a sentence; from a
model of bigram text, on which words are neighbours.  What it reads beyond that from a model of the grammar's own
sentences is what their structure adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, identity, vstack
from scipy.sparse.linalg import splu

from pcfg_artifact.grammar.expectation import expected_counts
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.system.ragged import Ragged


def shuffled(sentences: Ragged, rng: np.random.Generator) -> Ragged:
    """The same sentences, the words of each in random order."""
    owner = np.repeat(np.arange(sentences.n_rows), sentences.lengths)
    return Ragged(sentences.values[np.lexsort((rng.random(len(owner)), owner))], sentences.offsets)


@dataclass(frozen=True)
class Choices:
    """Random choices, one distribution a row; entries of no probability are left out."""

    cumulative: np.ndarray  # (entries,) row r rises from r to r + 1
    first: np.ndarray  # (rows + 1,) first entry of each row
    value: np.ndarray  # (entries,) what an entry stands for

    @classmethod
    def of(cls, weights: csr_matrix) -> Choices:
        """Rows of weights, which need not sum to 1; a row without any is never asked for."""
        weights = csr_matrix(weights)
        weights.eliminate_zeros()
        rows = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
        before = np.concatenate([[0.0], np.cumsum(weights.data)])
        begins = before[weights.indptr]
        share = (before[1:] - begins[rows]) / (begins[1:] - begins[:-1])[rows]
        return cls(rows + share, weights.indptr, weights.indices)

    def draw(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(n,) a value from each of these rows."""
        entry = np.searchsorted(self.cumulative, rows + rng.random(len(rows)), side="right")
        return self.value[np.minimum(entry, self.first[rows + 1] - 1)]  # r + u may round to r + 1


@dataclass(frozen=True)
class BigramModel:
    """The Markov chain over words in which every pair of neighbours, edges included, is as likely as in the grammar.

    A step draws the pre-terminal that emitted the last word, the pre-terminal (or the end) after it, and its word: in
    a PCFG, neighbours depend on a word through its pre-terminal alone.
    """

    preterminal: Choices  # by word
    following: Choices  # by pre-terminal, and in the last row after the edge; the value n_preterminals is the end
    word: Choices  # by pre-terminal

    @classmethod
    def of(cls, grammar: PCFG) -> BigramModel:
        head, word = grammar.lexical.T
        head = head - grammar.n_interminals
        shape = (grammar.n_preterminals, grammar.n_words)
        emitted = csr_matrix((grammar.lexical_prob, (head, word)), shape)
        counts = expected_counts(grammar)[grammar.n_interminals:]
        occurring = csr_matrix((grammar.lexical_prob * counts[head], (word, head)), shape[::-1])
        return cls(Choices.of(occurring), Choices.of(csr_matrix(neighbouring_preterminals(grammar))),
                   Choices.of(emitted))

    def in_place_of(self, sentences: Ragged, rng: np.random.Generator) -> Ragged:
        """As many sentences."""
        return self.draw(sentences.n_rows, sentences.values.dtype, rng)

    def draw(self, n: int, dtype: Any, rng: np.random.Generator) -> Ragged:
        """n sentences."""
        n_preterminals = len(self.word.first) - 1
        words, owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        owner, tag = np.arange(n), self.following.draw(np.full(n, n_preterminals), rng)
        while len(owner):
            word = self.word.draw(tag, rng)
            words.append(word)
            owners.append(owner)
            tag = self.following.draw(self.preterminal.draw(word, rng), rng)
            owner, tag = owner[tag < n_preterminals], tag[tag < n_preterminals]
        by_sentence = np.argsort(np.concatenate(owners), kind="stable")
        lengths = np.bincount(np.concatenate(owners), minlength=n)
        return Ragged(np.concatenate(words)[by_sentence].astype(dtype),
                      np.concatenate([[0], np.cumsum(lengths)]))


def neighbouring_preterminals(grammar: PCFG) -> np.ndarray:
    """(P + 1, P + 1) how often one pre-terminal stands right before another in a sentence, on average; P is its edge.

    The words of a rule A -> B C that meet are the last of B and the first of C.
    """
    counts = expected_counts(grammar)
    parent, left, right = grammar.binary.T
    times = counts[parent] * grammar.binary_prob
    pairs = csr_matrix((times, (left, right)), (grammar.n_nonterminals,) * 2)
    first, last = (edge_preterminals(grammar, child, counts > 0) for child in (left, right))
    found = np.zeros((grammar.n_preterminals + 1,) * 2)
    found[:-1, :-1] = last.T @ (pairs @ first)
    found[-1, :-1], found[:-1, -1] = grammar.root @ first, grammar.root @ last
    return np.maximum(found, 0.0)  # of rounding in the solutions


def edge_preterminals(grammar: PCFG, child: np.ndarray, is_drawn: np.ndarray) -> np.ndarray:
    """(N, P) probability that the first (child: the left one of every rule) or last pre-terminal of a span is this one;
    zero for symbols that no draw holds."""
    n, total = grammar.n_interminals, grammar.n_nonterminals
    parent = grammar.binary[:, 0]
    matrix = csr_matrix((grammar.binary_prob * is_drawn[parent], (parent, child)), (total, total))
    below = splu((identity(n) - matrix[:n, :n]).tocsc()).solve(matrix[:n, n:].toarray())
    return vstack([csr_matrix(below), identity(grammar.n_preterminals)]).toarray()
