"""Low rank: Inside-Outside over few in-terminals, each vector replaced by W+ W of itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcfg_artifact.approximation import projected
from pcfg_artifact.approximation.restriction import compact
from pcfg_artifact.approximation.signs import rule_named
from pcfg_artifact.approximation.transforms import Transforms, inverse_of, transform_of_width
from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.leaves import Sentence, sentence_leaves

MAX_RESCALINGS = 100  # each brings the widest spans so far near 1; 60 words usually need one or two


class Projections:
    """W and W+ of every width up to max_width as arrays (max_width+1, k, n) and (max_width+1, n, k).

    W of full rank changes nothing but rounding, and rounding would make zeros positive: it is left out (k = 0).
    """

    def __init__(self, transforms: Transforms | None, n: int, max_width: int) -> None:
        matrices = [] if transforms is None else [transform_of_width(transforms, w) for w in range(max_width + 1)]
        for matrix in matrices:
            if matrix.ndim != 2 or matrix.shape[1] != n or matrix.shape != matrices[0].shape:
                raise UsageError(f"a transform has shape {matrix.shape}, expected ({matrices[0].shape[0]}, {n}) "
                                 f"for every width: one column for each of the {n} in-terminals")
        self.is_identity = not matrices or matrices[0].shape[0] == n
        self.max_width = max_width
        if self.is_identity:
            self.encode = np.zeros((max_width + 1, 0, n))
            self.decode = np.zeros((max_width + 1, n, 0))
        else:
            self.encode = np.ascontiguousarray(matrices)
            self.decode = np.ascontiguousarray([inverse_of(matrix) for matrix in matrices])


@dataclass(frozen=True, eq=False)
class ProjectedChart:
    """inside, outside (L+1, L+1, n) of the in-terminals and leaf_outside (L, P), with leaf t divided by scale[t].

    The true alpha(A, i, j) is inside * prod(scale[i:j]), the true beta outside * prod(scale of the words around).
    """

    inside: np.ndarray
    outside: np.ndarray
    leaf_outside: np.ndarray
    log_scale: np.ndarray

    def span_scores(self) -> np.ndarray:
        """(L+1, L+1): max over A of inside times outside, up to one factor for the sentence; widths >= 2."""
        return np.maximum((self.inside * self.outside).max(axis=-1), 0.0)


class LowRank:
    """The approximate algorithm for one grammar: in-terminals in the order of the columns of W."""

    def __init__(self, grammar: PCFG, interminals: np.ndarray, transforms: Transforms | None, max_length: int,
                 sign_rule: str = "clip", outside_transforms: Transforms | None = None) -> None:
        self.grammar = compact(grammar, interminals)
        self.rule = rule_named(sign_rule)
        n = len(interminals)
        self.inside_projections = Projections(transforms, n, max_length)
        self.outside_projections = (self.inside_projections if outside_transforms is None
                                    else Projections(outside_transforms, n, max_length))
        counts = self.grammar.symbol_counts
        share = np.ones(grammar.n_preterminals) if counts is None else counts[n:]
        self._share = share / share.sum()
        self._rules = projected.rules_of(self.grammar)
        self._floors = (0.0 if self.rule.clips_stored else -np.inf, 0.0 if self.rule.clips_keys else -np.inf)

    def chart(self, leaves: np.ndarray, with_leaves: bool = True) -> ProjectedChart:
        """The chart of one sentence from its (L, P) leaves; leaf_outside is left empty unless `with_leaves`."""
        length, n = len(leaves), self.grammar.n_interminals
        if length > self.inside_projections.max_width:
            raise UsageError(f"the sentence has {length} words, "
                             f"more than max_length {self.inside_projections.max_width}")
        # Leaves divided by the word's unigram probability keep long spans near 1; those that drift are scaled again.
        unigram = leaves @ self._share
        log2_scale = np.log2(unigram, out=np.zeros(length), where=unigram > 0)
        # A projection can remove nearly all of one width and nothing of another, so that no scale suits both.  Then
        # none may overflow, and values smaller by hundreds of orders of magnitude become 0.
        may_be_small = False
        projections = self.inside_projections
        for _ in range(MAX_RESCALINGS):
            scaled = leaves * np.exp2(-log2_scale)[:, None]
            left, right = np.zeros((2, length + 1, n, length + 1))
            bits = projected.inside(self._rules, scaled, projections.encode, projections.decode, *self._floors,
                                    left, right, may_be_small)
            if bits == 0.0:
                break
            may_be_small |= bits > 0
            log2_scale += bits
        else:
            raise StageError(f"a sentence of {length} words does not fit into float64 at any scale; shorten max_length")
        beta = np.zeros((length + 1, length + 1, n))
        leaf_beta = np.zeros((length, self.grammar.n_preterminals if with_leaves else 0))
        projections = self.outside_projections
        projected.outside(self._rules, scaled, projections.encode, projections.decode, *self._floors, left, right, beta,
                          leaf_beta)
        return ProjectedChart(np.ascontiguousarray(left.transpose(0, 2, 1)), beta, leaf_beta, log2_scale * np.log(2.0))


def approximate_charts(grammar: PCFG, sentence: Sentence, interminals: np.ndarray, preterminals: np.ndarray,
                       transforms: Transforms | None = None, sign_rule: str = "clip") -> tuple[np.ndarray, np.ndarray]:
    """Inside and outside (L+1, L+1, N) of the approximate algorithm, as probabilities, in the grammar's numbering.

    Inside: all pre-terminals at width 1, `interminals` above.  Outside: `preterminals` at width 1, `interminals` above.
    transforms: width -> W (k, len(interminals)), None for the restriction alone.
    """
    leaves = sentence_leaves(grammar, sentence)
    length = len(leaves)
    chart = LowRank(grammar, interminals, transforms, length, sign_rule).chart(leaves)
    inside, outside = np.zeros((2, length + 1, length + 1, grammar.n_nonterminals))
    fencepost = np.concatenate([[0.0], np.cumsum(chart.log_scale)])
    within = np.triu(np.exp(fencepost[None, :] - fencepost[:, None]))[:, :, None]
    around = np.triu(np.exp(fencepost[-1] - (fencepost[None, :] - fencepost[:, None])))[:, :, None]
    inside[:, :, interminals] = chart.inside * within
    outside[:, :, interminals] = chart.outside * around
    starts = np.arange(length)
    inside[starts, starts + 1, grammar.n_interminals:] = leaves
    outside[starts[:, None], starts[:, None] + 1, preterminals] = (
        chart.leaf_outside[:, preterminals - grammar.n_interminals] * around[starts, starts + 1])
    return inside, outside
