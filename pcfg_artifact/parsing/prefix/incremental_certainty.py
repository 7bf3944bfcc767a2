"""How much of a tree is settled when its spans have just been read, some words later, and at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pcfg_artifact.parsing.prefix.tree_facts import IncrementalFacts, TreeFacts

SURE = 0.95  # a span is settled when its posterior is this much or more


class Settling(NamedTuple):
    """Of constituents; n of them in the trees, in n_words words.

    probability: mean posterior of those in the trees.  share: of those in the trees, settled.  bits: uncertainty
    whether each span is in the tree, summed over all spans, per word.
    """

    probability: float
    share: float
    bits: float
    n: int
    n_words: int


def settling(trees: Sequence[TreeFacts], facts: Sequence[IncrementalFacts]) -> Iterator[Settling]:
    """At the end of each span, 1, 2, ... words later, and last at the end of the sentence: all spans every time.

    No span is chosen by what comes after it, so that more evidence never loses in expectation.
    """
    delays = len(facts[0].later) - 1
    chosen = [np.triu(np.ones(fact.now.spans.shape, bool), 2) for fact in facts]
    truth = np.concatenate([tree.spans[mask] for tree, mask in zip(trees, chosen, strict=True)]) > 0
    n_words = sum(len(fact.now.n_open) for fact in facts)
    for when in range(delays + 2):
        posterior = np.concatenate([(fact.whole.spans if when > delays else fact.later[when])[mask]
                                    for fact, mask in zip(facts, chosen, strict=True)])
        yield Settling(float(posterior[truth].mean()), float((posterior[truth] >= SURE).mean()),
                       float(_binary_entropy(posterior).sum() / n_words), int(truth.sum()), n_words)


def _binary_entropy(p: np.ndarray) -> np.ndarray:
    p = np.clip(p, 0.0, 1.0)
    sides = np.stack([p, 1.0 - p])
    return -(sides * np.log2(np.where(sides > 0, sides, 1.0))).sum(axis=0)
