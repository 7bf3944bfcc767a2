"""Expected counts of a PCFG: how often each symbol occurs in a draw, how long a sentence is, whether draws end; and the
sizes that a report shows of a grammar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csc_matrix, identity
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.schema import Metric

TOP = 20  # the paper counts the pre-terminals that its 20 most frequent in-terminals can produce


def child_matrix(grammar: PCFG) -> csc_matrix:
    """(N, N) sparse: entry [a, b] is the expected number of children b of one node a."""
    parent, left, right = grammar.binary.T
    rows, columns = np.concatenate([parent, parent]), np.concatenate([left, right])
    values = np.concatenate([grammar.binary_prob, grammar.binary_prob])
    return csc_matrix((values, (rows, columns)), shape=(grammar.n_nonterminals,) * 2)


def reachable(grammar: PCFG) -> np.ndarray:
    """(N,) whether a draw can hold the symbol."""
    reached = grammar.root > 0
    matrix = child_matrix(grammar)
    while True:
        further = reached | (reached @ matrix > 0)
        if np.array_equal(further, reached):
            return reached
        reached = further


def spectral_radius(grammar: PCFG, *, among: np.ndarray | None = None) -> float:
    """Largest modulus of an eigenvalue of the child matrix over in-terminals; below 1, expected length is finite.

    among (N,): of these symbols alone.
    """
    n = grammar.n_interminals
    matrix = child_matrix(grammar)[:n, :n]
    if among is not None:
        chosen = np.flatnonzero(among[:n])
        matrix = matrix[chosen][:, chosen]
    return max((radius for radius, _ in component_radii(matrix)), default=0.0)


def component_radii(matrix: csc_matrix) -> Iterator[tuple[float, np.ndarray]]:
    """Spectral radius and members of every strongly connected component of a square matrix that has nothing negative.

    It is block-triangular over them: the largest radius is its own.  A dense eigenvalue routine would lose digits on
    the whole, which is defective.
    """
    n_components, component = connected_components(matrix, connection="strong")
    for c in range(n_components):
        members = np.flatnonzero(component == c)
        block = matrix[members][:, members].toarray()
        yield (float(np.abs(np.linalg.eigvals(block)).max()) if len(members) > 1 else float(block[0, 0])), members


def expected_counts(grammar: PCFG) -> np.ndarray:
    """(N,) expected number of nodes of each symbol in one tree drawn from the grammar."""
    drawn = reachable(grammar)
    radius = spectral_radius(grammar, among=drawn)
    if not radius < 1.0:
        raise GrammarError(f"the spectral radius of the grammar is {radius:.6f}, expected below 1: "
                           f"trees drawn from it do not end with probability 1 in finite expected length")
    # count = root + count @ children
    system = identity(grammar.n_nonterminals, format="csc") - child_matrix(grammar)
    if drawn.all():
        return splu(system).solve(grammar.root, trans="T")
    counts = np.zeros(grammar.n_nonterminals)
    counts[drawn] = splu(system[drawn][:, drawn].tocsc()).solve(grammar.root[drawn], trans="T")
    return counts


def expected_length(grammar: PCFG) -> float:
    """Expected number of words in one sentence drawn from the grammar."""
    return float(expected_counts(grammar)[grammar.n_interminals:].sum())


def derivation_entropy(grammar: PCFG) -> float:
    """Entropy in nats of the trees that the grammar draws, words included: that of every choice, as often as it is
    expected.  (h(A) = entropy of A's rules + expected h of the children; the system is that of expected counts.)"""
    if not grammar.is_proper:
        raise GrammarError("the rules of the grammar do not sum to 1, so that its trees have no entropy; normalise it")
    heads = np.concatenate([grammar.binary[:, 0], grammar.lexical[:, 0]])
    prob = np.concatenate([grammar.binary_prob, grammar.lexical_prob])
    return float(entropy_terms(grammar.root).sum() + expected_counts(grammar)[heads] @ entropy_terms(prob))


def entropy_terms(p: np.ndarray) -> np.ndarray:
    """-p log p, 0 for 0."""
    return -p * np.log(np.where(p > 0, p, 1.0))


def frequencies(grammar: PCFG) -> np.ndarray:
    """(N,) how often each symbol occurs: training counts where the grammar has them, expected counts otherwise."""
    return grammar.symbol_counts if grammar.symbol_counts is not None else expected_counts(grammar)


def grammar_sizes(grammar: PCFG, lengths: Sequence[int]) -> list[Metric]:
    """The sizes of a grammar; lengths: words of the trees that it was learned from, or that were drawn from it."""
    most_frequent = np.argsort(-frequencies(grammar)[:grammar.n_interminals], kind="stable")[:TOP]
    children = np.unique(grammar.binary[np.isin(grammar.binary[:, 0], most_frequent), 1:])

    def size(metric: str, value: float, unit: str = "count", **dimensions: Any) -> Metric:
        return Metric(table="grammar", metric=metric, value=value, n=len(lengths), unit=unit, **dimensions)

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
        size("mean_training_length", float(np.mean(lengths)), "words"),
        size("spectral_radius", spectral_radius(grammar), "ratio"),
    ]


def symbol_shares(grammar: PCFG) -> list[Metric]:
    """Relative frequency of every symbol by rank, in-terminals and pre-terminals apart (the frequency figure)."""
    counts, n = frequencies(grammar), grammar.n_interminals
    return [Metric(table="frequency", group=kind, index=rank, metric="share", value=share, n=int(part.sum()),
                   unit="fraction")
            for kind, part in (("in-terminals", counts[:n]), ("pre-terminals", counts[n:]))
            for rank, share in enumerate(np.sort(part)[::-1] / part.sum(), start=1)]
