"""Parsers to hold the probes against, on the probes' own test sentences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pcfg_artifact.parsing import best_binary_tree
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.targets import Span, decode
from pcfg_artifact.probing.tasks import Scores, score_spans


def inside_outside_tree(length: int, scores: np.ndarray | None) -> set[Span]:
    """The Labelled-Recall tree of exact span scores; right-branching where the grammar gives no probability."""
    return right_branching(length) if scores is None else set(best_binary_tree(scores))


def right_branching(length: int) -> set[Span]:
    return {(i, length) for i in range(length)} | {(i, i + 1) for i in range(length)}


def left_branching(length: int) -> set[Span]:
    return {(0, j) for j in range(1, length + 1)} | {(i, i + 1) for i in range(length)}


def balanced(length: int) -> set[Span]:
    """Every span is halved; of an odd number of words the left half has one more."""
    spans, todo = set(), [(0, length)]
    while todo:
        i, j = todo.pop()
        spans.add((i, j))
        if j - i > 1:
            middle = (i + j + 1) // 2
            todo += [(i, middle), (middle, j)]
    return spans


def random_tree(length: int, rng: np.random.Generator) -> set[Span]:
    """Split points uniform at every step: the tree of gap depths in random order."""
    return decode(np.diff(rng.permutation(length - 1), prepend=0))


def score_baselines(corpora: Mapping[str, Corpus], rng: np.random.Generator) -> dict[str, dict[str, Scores]]:
    """Name of the baseline -> corpus -> scores."""
    parsers = {
        "IO": inside_outside_tree,
        "right": lambda length, _: right_branching(length),
        "left": lambda length, _: left_branching(length),
        "balanced": lambda length, _: balanced(length),
        "random": lambda length, _: random_tree(length, rng),
    }
    return {parser: {name: score_spans(corpus, [parse(len(words), scores) for words, scores
                                                in zip(corpus.sentences, corpus.scores, strict=True)])
                     for name, corpus in corpora.items()}
            for parser, parse in parsers.items()}
