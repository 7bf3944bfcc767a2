"""Fitting the probabilities of a grammar to sentences: one round of EM, and what gradient descent needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.differentiable import RuleWeights, weighted_charts
from pcfg_artifact.parsing.leaves import Sentence
from pcfg_artifact.parsing.options import EngineOptions


def em_step(grammar: PCFG, sentences: Sequence[Sentence], device: str = "cpu") -> tuple[PCFG, float]:
    """The grammar whose probabilities are the expected counts of this one's rules, divided by those of their heads.

    Also the mean log probability of the sentences under the grammar that came in, which no round makes worse.  Rules of
    a symbol that is never expected stay as they are.
    """
    totals = [np.zeros_like(p) for p in (grammar.root, grammar.binary_prob, grammar.lexical_prob)]
    log_prob = 0.0
    for s, chart in enumerate(weighted_charts(grammar, sentences, RuleWeights.of(grammar, device=device),
                                              EngineOptions(backend="torch", device=device))):
        if chart.counts is None or chart.log_prob == -np.inf:
            raise UsageError(f"the grammar gives sentence {s} no probability, so that no rule of it can be counted; "
                             f"leave it out, or begin with a grammar that knows its words")
        log_prob += chart.log_prob
        for total, counts in zip(totals, chart.counts, strict=True):
            total += counts
    root, binary, lexical = totals
    fitted = replace(
        grammar, root=root / root.sum(), symbol_counts=None, word_counts=None, written=None,
        binary_prob=_shares(binary, grammar.binary[:, 0], grammar.binary_prob),
        lexical_prob=_shares(lexical, grammar.lexical[:, 0], grammar.lexical_prob))
    return fitted, log_prob / len(sentences)


def _shares(counts: np.ndarray, heads: np.ndarray, before: np.ndarray) -> np.ndarray:
    total = np.bincount(heads, counts)[heads] if len(heads) else counts
    return np.where(total > 0, counts / np.where(total > 0, total, 1.0), before)


def normalised(grammar: PCFG, scores: RuleWeights) -> RuleWeights:
    """Probabilities of rules from any scores: the softmax over the rules of each head, differentiable."""
    heads = [torch.zeros(len(scores.root), dtype=torch.int64), torch.as_tensor(grammar.binary[:, 0].astype(np.int64)),
             torch.as_tensor(grammar.lexical[:, 0].astype(np.int64))]
    return RuleWeights(*(_softmax(x, head.to(x.device), grammar.n_nonterminals)
                         for x, head in zip(scores, heads, strict=True)))


def _softmax(scores: torch.Tensor, heads: torch.Tensor, n_heads: int) -> torch.Tensor:
    peak = torch.full((n_heads,), -torch.inf, dtype=scores.dtype, device=scores.device)
    peak = peak.scatter_reduce(0, heads, scores.detach(), "amax")
    exponentials = torch.exp(scores - peak[heads])
    return exponentials / exponentials.new_zeros(n_heads).index_add(0, heads, exponentials)[heads]
