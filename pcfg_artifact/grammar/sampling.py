"""Exact draws of trees from a PCFG.

Sentence s of a seed has its own random stream, derived from (seed, s): any block of sentences can be drawn again
alone, by any number of workers, and is the same.  A tree is stored as the rules of its nodes in preorder, 2L - 1 of
them for L words: rule r < R is binary rule r, rule R + e is lexical rule e.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numba import njit, uint64

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.expectation import reachable, spectral_radius
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.random_streams import derive_seed
from pcfg_artifact.treebank.tree import Tree

MAX_REJECTIONS = 1_000_000  # for one sentence: a length cap this unlikely is a mistake, not a request
STEP = np.uint64(0x9E3779B97F4A7C15)  # between the states of a random stream


class SampledTrees(Sequence[Tree]):
    """n draws: a sequence of binary trees, built on access; `rules` and `tokens` are the arrays behind it."""

    def __init__(self, grammar: PCFG, rules: Ragged, n_rejected: int) -> None:
        self.grammar, self.rules, self.n_rejected = grammar, rules, n_rejected

    def __len__(self) -> int:
        return self.rules.n_rows

    def __getitem__(self, s: int) -> Tree:  # type: ignore[override]
        if not -len(self) <= s < len(self):
            raise IndexError(s)
        return tree_of_rules(self.grammar, self.rules.row(s % len(self)))

    @property
    def tokens(self) -> Ragged:
        """Word ids of every sentence."""
        # A tree of L words has 2L - 1 rules.
        offsets = (self.rules.offsets + np.arange(len(self) + 1)) // 2
        emitted: np.ndarray = self.grammar.lexical[:, 1].astype(id_dtype(self.grammar.n_words))
        words = np.empty(int(offsets[-1]) + 1, emitted.dtype)  # one more, where the words of binary rules would go
        _words(self.rules.values, len(self.grammar.binary), emitted, words)
        return Ragged(words[:-1], offsets)


def id_dtype(n_ids: int) -> type:
    """The smallest type for so many words or rules."""
    return np.uint16 if n_ids <= 1 << 16 else np.uint32


def tree_of_rules(grammar: PCFG, rules: np.ndarray) -> Tree:
    """The binary tree of one preorder rule sequence."""
    names, n_binary = grammar.nonterminals, len(grammar.binary)
    stack: list[Tree] = []
    for rule in rules[::-1].astype(np.int64):  # from the right, children are complete before their parent
        if rule >= n_binary:
            a, word = grammar.lexical[rule - n_binary]
            stack.append(Tree(names[a], word=grammar.words[word]))
        else:
            stack.append(Tree(names[grammar.binary[rule, 0]], (stack.pop(), stack.pop())))
    return stack[0]


def sample_trees(grammar: PCFG, n: int, seed: int = 0, max_length: int | None = None) -> SampledTrees:
    """Draw n trees; with `max_length`, longer sentences are drawn again and counted in `n_rejected`."""
    return Sampler(grammar, seed, max_length).draw(0, n)


class TreeSampler(Protocol):
    """Draws blocks of an endless sequence of trees; longer ones than max_length are drawn again."""

    grammar: PCFG
    max_length: int | None
    rule_dtype: type

    def draw(self, first: int, n: int) -> SampledTrees:
        """Trees first, first + 1, ..., first + n - 1."""
        ...


@dataclass
class Sampler:
    """Draws blocks of the endless sequence of sentences that belongs to (grammar, seed, max_length)."""

    grammar: PCFG
    seed: int
    max_length: int | None = None

    def __post_init__(self) -> None:
        grammar = self.grammar
        if not grammar.is_proper:
            raise GrammarError("cannot sample from a grammar whose rules do not sum to 1; normalise it first")
        if self.max_length is None and not spectral_radius(grammar, among=reachable(grammar)) < 1.0:
            raise GrammarError("the grammar's draws have no finite expected length; give a length cap (max_length)")
        shortest = shortest_yield(grammar)[grammar.root > 0].min()
        if shortest == np.inf:
            raise GrammarError("no symbol of the root distribution ever ends in words, so that there is no sentence "
                               "to draw; give it a rule that leads to words")
        if self.max_length is not None and self.max_length < shortest:
            raise GrammarError(f"max_length {self.max_length} is below the shortest sentence of the grammar "
                               f"({shortest:.0f} words); raise it")
        heads = np.concatenate([grammar.binary[:, 0], grammar.lexical[:, 0]])
        self._first = np.searchsorted(heads, np.arange(grammar.n_nonterminals + 1))
        probability = np.concatenate([grammar.binary_prob, grammar.lexical_prob])
        self._keep, self._alias = _alias_tables(self._first, probability)
        self._root = np.cumsum(grammar.root / grammar.root.sum())
        self.rule_dtype = id_dtype(len(heads))
        self._base = uint64(derive_seed(self.seed, "sampler"))

    def draw(self, first: int, n: int) -> SampledTrees:
        """Sentences first, first + 1, ..., first + n - 1."""
        rules, lengths, n_rejected = _draw(
            self._base, first, n, self.max_length or 0, self._root, self._first, self._keep, self._alias,
            self.grammar.binary, len(self.grammar.binary), np.empty(max(64, 64 * n), self.rule_dtype))
        if n_rejected < 0:
            raise GrammarError(f"max_length {self.max_length} rejected {MAX_REJECTIONS:,} draws in a row; raise it")
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum(2 * lengths - 1, out=offsets[1:])
        return SampledTrees(self.grammar, Ragged(rules, offsets), n_rejected)


def shortest_yield(grammar: PCFG) -> np.ndarray:
    """(N,) fewest words each symbol can yield with positive probability; inf where it yields nothing."""
    shortest = np.full(grammar.n_nonterminals, np.inf)
    shortest[grammar.lexical[grammar.lexical_prob > 0, 0]] = 1
    rules = grammar.binary[grammar.binary_prob > 0]
    while True:
        before = shortest.copy()
        np.minimum.at(shortest, rules[:, 0], shortest[rules[:, 1]] + shortest[rules[:, 2]])
        if np.array_equal(before, shortest):
            return shortest


def _alias_tables(first: np.ndarray, probability: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias tables, one per non-terminal, over its contiguous rules first[a] .. first[a + 1] - 1."""
    keep, alias = np.ones(len(probability)), np.arange(len(probability), dtype=np.int64)
    for a in range(len(first) - 1):
        low, high = first[a], first[a + 1]
        scaled = probability[low:high] / probability[low:high].sum() * (high - low)
        small = [int(r) for r in np.flatnonzero(scaled < 1.0)]
        large = [int(r) for r in np.flatnonzero(scaled >= 1.0)]
        while small and large:
            s, g = small.pop(), large[-1]
            keep[low + s], alias[low + s] = scaled[s], low + g
            scaled[g] -= 1.0 - scaled[s]
            if scaled[g] < 1.0:
                small.append(large.pop())
        # What rounding leaves over has mass 1 up to rounding, unless it may never be drawn.
        for s in small:
            if probability[low + s] == 0.0:
                keep[low + s], alias[low + s] = 0.0, low + int(probability[low:high].argmax())
    return keep, alias


@njit(cache=True, nogil=True, inline="always")
def mix(z):
    """Finaliser of splitmix64: a bijection of 64-bit words that looks random."""
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@njit(cache=True, nogil=True, inline="always")
def uniform(state):
    """53 random bits as a float in [0, 1)."""
    return float(mix(state) >> uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def _words(rules, n_binary, emitted, words):
    """The words that the lexical rules among `rules` emit, in order; no branch on which rules these are."""
    n = uint64(0)
    for rule in rules:
        words[n] = emitted[max(np.int64(rule) - n_binary, 0)]
        n += uint64(rule >= n_binary)


@njit(cache=True, nogil=True)
def _draw(base, first_sentence, n, max_length, root_cdf, first, keep, alias, binary, n_binary, rules):
    """Rules of n sentences one after another, their lengths, and the number of rejected draws (-1: gave up)."""
    lengths = np.empty(n, np.int64)
    stack = np.empty(256, np.int32)
    filled, n_rejected = 0, 0
    for s in range(n):
        state = mix(base ^ mix(uint64(first_sentence + s) + STEP))
        begin, in_a_row = filled, 0
        while True:
            state += STEP
            stack[0] = min(np.searchsorted(root_cdf, uniform(state), side="right"), len(root_cdf) - 1)
            height, length, filled = 1, 0, begin
            while height:
                height -= 1
                a = stack[height]
                state += STEP
                rule = first[a] + int(uniform(state) * (first[a + 1] - first[a]))
                state += STEP
                if uniform(state) >= keep[rule]:
                    rule = alias[rule]
                if filled == len(rules):
                    rules = np.concatenate((rules, np.empty_like(rules)))
                rules[filled] = rule
                filled += 1
                if rule >= n_binary:
                    length += 1
                else:
                    if height + 2 > len(stack):
                        stack = np.concatenate((stack, np.empty_like(stack)))
                    stack[height] = binary[rule, 2]
                    stack[height + 1] = binary[rule, 1]
                    height += 2
                # Every pending symbol yields a word at least.
                if max_length and length + height > max_length:
                    break
            if not (max_length and length + height > max_length):
                break
            n_rejected += 1
            in_a_row += 1
            if in_a_row > MAX_REJECTIONS:
                return rules[:0], lengths, -1
        lengths[s] = length
    return rules[:filled].copy(), lengths, n_rejected
