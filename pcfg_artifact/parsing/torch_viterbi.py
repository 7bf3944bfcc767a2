"""Viterbi of the `torch` engine: the largest log probability of a subtree for every entry of a padded batch.

Legend as in torch_engine.py; sums of products become maxima of sums of logs, with -inf for impossible.
"""

from __future__ import annotations

import numpy as np
import torch

from pcfg_artifact.parsing.cpu_kernels.rule_index import LeafRules, RuleIndex
from pcfg_artifact.parsing.torch_constraints import Masks


class RuleTensors:
    """Rules one by one: their parent, the rows of both children, their log probability."""

    def __init__(self, parent: np.ndarray, left: np.ndarray, right: np.ndarray, prob: np.ndarray, like: torch.Tensor
                 ) -> None:
        self.parent, self.left, self.right = (torch.as_tensor(x.astype(np.int64), device=like.device)
                                              for x in (parent, left, right))
        self.log_prob = torch.as_tensor(np.log(prob), dtype=like.dtype, device=like.device)[:, None, None]

    @classmethod
    def of_leaves(cls, rules: LeafRules, like: torch.Tensor) -> RuleTensors:
        """left: the pre-terminal, right: the other child."""
        leaf = np.repeat(np.arange(len(rules.first) - 1), np.diff(rules.first))
        return cls(rules.parent, leaf, rules.other, rules.prob, like)

    def best(self, left: torch.Tensor, right: torch.Tensor, total: torch.Tensor) -> None:
        """total(A) = max(total(A), log P(A -> B C) + left(B) + right(C))"""
        if len(self.parent):
            value = self.log_prob + left[self.left] + right[self.right]
            total.scatter_reduce_(0, self.parent[:, None, None].expand_as(value), value, "amax")


def best_subtrees(grammar: RuleIndex, leaves: torch.Tensor, masks: Masks) -> dict[int, torch.Tensor]:
    """Width -> (I, S, N) from log leaves (P, longest, N), in which forbidden ones are -inf."""
    longest, n_sentences = leaves.shape[1:]
    inner = grammar.inner
    pair_of_rule = np.repeat(np.arange(len(inner.left)), np.diff(inner.first))
    pairs = RuleTensors(inner.parent, pair_of_rule, pair_of_rule, inner.prob, leaves)
    left_child, right_child = (torch.as_tensor(x.astype(np.int64), device=leaves.device)
                               for x in (inner.left, inner.right))
    right_leaf, left_leaf, two_leaves = (RuleTensors.of_leaves(rules, leaves) for rules in (
        grammar.right_leaf, grammar.left_leaf, grammar.two_leaves))
    best: dict[int, torch.Tensor] = {}
    for width in range(2, longest + 1):
        n_starts = longest - width + 1
        total = leaves.new_full((grammar.n_interminals, n_starts, n_sentences), -np.inf)
        if width == 2:
            two_leaves.best(leaves[:, :n_starts], leaves[:, 1:], total)
        else:
            below = best[width - 1]
            right_leaf.best(leaves[:, width - 1:], below[:, :n_starts], total)
            left_leaf.best(leaves[:, :n_starts], below[:, 1:], total)
        if width >= 4 and len(inner.left):
            product = leaves.new_full((len(inner.left), n_starts, n_sentences), -np.inf)
            for k in range(2, width - 1):
                children = best[k][left_child, :n_starts] + best[width - k][right_child, k:k + n_starts]
                torch.maximum(product, children, out=product)
            pairs.best(product, torch.zeros_like(product), total)
        masks.fill(total, width, -np.inf)
        best[width] = total
    return best
