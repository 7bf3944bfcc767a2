"""The oracle of prefixes: Jelinek and Lafferty's recurrence, written out and run again for every question.

P(A yields words i+1 .. t and more) is summed over the rules that begin A; the closure R is an inverse matrix; the next
word is predicted by trying every word; the posterior of a span is what is lost when the span is forbidden.
The grammar must be proper and its trees must end with probability 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG

Node = tuple[int, int, int]  # symbol, i, j


def inside(grammar: PCFG, ids: Sequence[int], forbidden: Collection[Node] = ()) -> np.ndarray:
    """(t+1, t+1, N) probability that A yields words i .. j-1, without the forbidden nodes."""
    t = len(ids)
    alpha = np.zeros((t + 1, t + 1, grammar.n_nonterminals))
    for i, w in enumerate(ids):
        chosen = grammar.lexical[:, 1] == w
        alpha[i, i + 1, grammar.lexical[chosen, 0]] = grammar.lexical_prob[chosen]
    for width in range(1, t + 1):
        for i in range(t - width + 1):
            j = i + width
            for k in range(i + 1, j):
                for (a, b, c), prob in zip(grammar.binary, grammar.binary_prob, strict=True):
                    alpha[i, j, a] += prob * alpha[i, k, b] * alpha[k, j, c]
            for a, first, last in forbidden:
                if (first, last) == (i, j):
                    alpha[i, j, a] = 0.0
    return alpha


def unfinished(grammar: PCFG, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(t+1, N) probability that A, begun at i, yields all words from there on and more; and the same times the number
    of nodes that are open after word t, A among them.  At t nothing has been read of A: 1, and nothing is open."""
    t, n = len(alpha) - 1, grammar.n_nonterminals
    left_corner = np.zeros((n, n))
    for (a, b, _), prob in zip(grammar.binary, grammar.binary_prob, strict=True):
        left_corner[a, b] += prob
    closure = np.linalg.inv(np.eye(n) - left_corner)
    found, n_open = np.zeros((2, t + 1, n))
    found[t] = 1.0
    for i in range(t - 1, -1, -1):
        # A -> B C: either B is unfinished itself (the closure), or it ends at k and C is unfinished.
        after_left, open_after_left = np.zeros((2, n))
        for (a, b, c), prob in zip(grammar.binary, grammar.binary_prob, strict=True):
            after_left[a] += prob * sum(alpha[i, k, b] * found[k, c] for k in range(i + 1, t + 1))
            open_after_left[a] += prob * sum(alpha[i, k, b] * n_open[k, c] for k in range(i + 1, t + 1))
        found[i] = closure @ after_left
        n_open[i] = closure @ (open_after_left + found[i])
    return found, n_open


def prefix_probability(grammar: PCFG, ids: Sequence[int], forbidden: Collection[Node] = ()) -> float:
    """Probability of all sentences that begin with these words, over trees without the forbidden nodes."""
    alpha = inside(grammar, ids, forbidden)
    whole = alpha[0, len(ids)] if len(ids) else np.zeros(grammar.n_nonterminals)
    return float(grammar.root @ (whole + unfinished(grammar, alpha)[0][0]))


def sentence_probability(grammar: PCFG, ids: Sequence[int], forbidden: Collection[Node] = ()) -> float:
    """Probability of exactly these words."""
    return float(grammar.root @ inside(grammar, ids, forbidden)[0, len(ids)]) if len(ids) else 0.0


def next_word(grammar: PCFG, ids: Sequence[int]) -> np.ndarray:
    """(V+1,) probability of each word after these, the end last; zeros where these have no probability."""
    so_far = prefix_probability(grammar, ids)
    longer = [prefix_probability(grammar, [*ids, w]) for w in range(grammar.n_words)]
    return np.array([*longer, sentence_probability(grammar, ids)]) / so_far if so_far > 0 else np.zeros(len(longer) + 1)


def n_open(grammar: PCFG, ids: Sequence[int]) -> float:
    """Expected number of constituents that hold the last of these words and the one after it."""
    so_far = prefix_probability(grammar, ids)
    return float(grammar.root @ unfinished(grammar, inside(grammar, ids))[1][0]) / so_far if so_far > 0 else 0.0


def posterior(grammar: PCFG, ids: Sequence[int], node: Node, has_ended: bool = False) -> float:
    """Probability that the tree has this node, given these words (and the end): a tree has it or is left without it."""
    probability = sentence_probability if has_ended else prefix_probability
    so_far = probability(grammar, ids)
    return 1.0 - probability(grammar, ids, [node]) / so_far if so_far > 0 else 0.0
