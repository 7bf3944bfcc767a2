"""Learned transforms W, the directions in which the vectors of a span lie, for every width of the span; and what is
done about the negative entries that a projection W+ W can put into probabilities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from pcfg_artifact.errors import UsageError
from pcfg_artifact.parsing.charts import Chart

Transforms = dict[int, np.ndarray]  # width of the span -> W (k, n)

STATISTICS = ("marginals", "inside", "outside")
ROUNDING = 1e-12  # smaller entries are rounding errors, which would make impossible symbols possible


class Correlations:
    """X of every width: the sum over sentences s of X_s / |X_s|, with X_s the sum of v v^T over the spans of s.

    v is a vector over the chosen in-terminals: marginals, inside or outside probabilities of the span.  Sentences are
    added one by one and not kept, so memory does not depend on how many there are.
    """

    def __init__(self, interminals: np.ndarray, max_width: int) -> None:
        self.interminals = np.asarray(interminals)
        self.n_sentences = 0
        self._sums = np.zeros((max_width + 1, len(self.interminals), len(self.interminals)))

    def add(self, chart: Chart, statistic: str = "marginals") -> None:
        """Add one sentence, unless it has no probability."""
        if chart.log_prob == -np.inf:
            return
        if chart.length >= len(self._sums):
            raise UsageError(f"the sentence has {chart.length} words; these correlations reach {len(self._sums) - 1}")
        vectors = span_vectors(chart, self.interminals, statistic)
        for width in range(2, chart.length + 1):
            starts = np.arange(chart.length - width + 1)
            of_width = vectors[starts, starts + width]
            used = np.flatnonzero(of_width.any(axis=0))
            correlation = of_width[:, used].T @ of_width[:, used]
            norm = np.linalg.norm(correlation)
            if norm > 0:
                self._sums[width][np.ix_(used, used)] += correlation / norm
        self.n_sentences += 1

    def transforms(self, rank: int) -> Transforms:
        """W of every width that occurred: a basis of the (at most) `rank` leading eigenvectors of its X."""
        self._check(rank)
        return {width: steady_basis(leading_eigenvectors(total, rank))
                for width, total in enumerate(self._sums) if total.any()}

    def shared_transform(self, rank: int) -> Transforms:
        """One W for all widths, from the sum of their X."""
        self._check(rank)
        return {2: steady_basis(leading_eigenvectors(self._sums.sum(axis=0), rank))}

    def _check(self, rank: int) -> None:
        if rank < 1:
            raise UsageError(f"rank {rank} was asked for, expected at least 1")
        if not self._sums.any():
            raise UsageError("no sentence of two or more words with probability was added; W cannot be learned")


def transform_of_width(transforms: Transforms, width: int) -> np.ndarray:
    """W (k, n in-terminals) for spans of `width` words: that of the largest known width up to it, else of the smallest
    known one."""
    if not transforms:
        raise UsageError("no transform W was given; learn them from marginals first")
    smaller = [known for known in transforms if known <= width]
    return transforms[max(smaller) if smaller else min(transforms)]


def inverse_of(transform: np.ndarray) -> np.ndarray:
    """W+ (n in-terminals, k) in float64 whatever the precision of W, so that the algorithm and the transformer read the
    same numbers and differ in the order of sums alone."""
    return np.linalg.pinv(transform.astype(np.float64))


def span_vectors(chart: Chart, interminals: np.ndarray, statistic: str) -> np.ndarray:
    """(L+1, L+1, n) vectors of the spans of width >= 2, up to a factor for each width, which X_s / |X_s| removes."""
    starts, ends = chart.entry_bounds
    index_of = np.full(chart.n_nonterminals, -1)
    index_of[interminals] = np.arange(len(interminals))
    column = index_of[chart.symbols]
    if statistic == "marginals":
        values = chart.entry_marginals
    elif statistic in STATISTICS:
        logs = chart.entry_log_inside if statistic == "inside" else chart.entry_log_outside
        peak = np.full(chart.length + 1, -np.inf)
        np.maximum.at(peak, (ends - starts)[column >= 0], logs[column >= 0])
        peak[peak == -np.inf] = 0.0
        values = np.exp(np.where(column >= 0, logs - peak[ends - starts], -np.inf))
    else:
        raise UsageError(f"statistic {statistic!r} is unknown; expected one of {', '.join(STATISTICS)}")
    kept = (column >= 0) & (ends - starts >= 2)
    vectors = np.zeros((chart.length + 1, chart.length + 1, len(interminals)))
    vectors[starts[kept], ends[kept], column[kept]] = values[kept]
    return vectors


def leading_eigenvectors(matrix: np.ndarray, rank: int) -> np.ndarray:
    """(rank, n) orthonormal rows, largest eigenvalue first."""
    return _without_rounding(np.linalg.eigh(matrix)[1][:, ::-1][:, :rank].T)


def steady_basis(vectors: np.ndarray) -> np.ndarray:
    """(k, n) rows that span the same space: k columns form the identity, the others are mixtures of them.

    W+ W is the same for every basis, but its rounding error is not.  Entries of 1e-9, as sums of products of
    orthonormal eigenvectors of about 1, lose nine digits.  With this basis most of them are entries of W+ itself.
    """
    k = len(vectors)
    _, triangle, order = linalg.qr(vectors, mode="economic", pivoting=True)
    steady = np.zeros_like(vectors)
    steady[:, order[:k]] = np.eye(k)
    steady[:, order[k:]] = linalg.solve_triangular(triangle[:, :k], triangle[:, k:])
    return _without_rounding(steady[np.argsort(order[:k])])


def _without_rounding(vectors: np.ndarray) -> np.ndarray:
    return np.where(np.abs(vectors) < ROUNDING, 0.0, vectors)


# ---- signs -----------------------------------------------------------------------------------------------------------


class SignRule(NamedTuple):
    """Where negative entries become 0: when they are stored, and when they are used as a key.

    An attention head applies ReLU to its key but not to its query, so the paper's low-rank transformer does not compute
    the projected recursion as written.  There are three readings, for the algorithm and the transformer alike:

        clip      when they are stored (a ReLU feed-forward part)
        literal   only where a value is used as a key
        signed    nowhere (every head twice, once for each sign of its key)

    Used as a key are: the left child in the inside recursion; in the outside recursion the parent (outside) where the
    sibling is on the left, and the sibling (inside) where it is on the right.
    """

    name: str
    clips_stored: bool
    clips_keys: bool

    def stored(self, values: np.ndarray) -> np.ndarray:
        return values.clip(min=0) if self.clips_stored else values

    def key(self, values: np.ndarray) -> np.ndarray:
        return values.clip(min=0) if self.clips_keys else values


clip = SignRule("clip", clips_stored=True, clips_keys=True)
literal = SignRule("literal", clips_stored=False, clips_keys=True)
signed = SignRule("signed", clips_stored=False, clips_keys=False)

SIGN_RULES = {rule.name: rule for rule in (clip, literal, signed)}


def rule_named(name: str) -> SignRule:
    if name not in SIGN_RULES:
        raise UsageError(f"sign rule {name!r} is unknown; expected one of {', '.join(SIGN_RULES)}")
    return SIGN_RULES[name]
