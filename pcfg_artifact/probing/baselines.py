"""Parsers to hold the probes against, on the probes' own test sentences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pcfg_artifact.parsing import best_binary_tree
from pcfg_artifact.parsing.baselines import balanced, left_branching, random_branching, right_branching
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.tasks import Scores, score_spans


def score_baselines(corpora: Mapping[str, Corpus], rng: np.random.Generator) -> dict[str, dict[str, Scores]]:
    """Name of the baseline -> corpus -> scores.  IO without span scores (no probability) is right-branching."""
    parsers = {
        "IO": lambda length, scores: right_branching(length) if scores is None else best_binary_tree(scores),
        "right": lambda length, scores: right_branching(length),
        "left": lambda length, scores: left_branching(length),
        "balanced": lambda length, scores: balanced(length),
        "random": lambda length, scores: random_branching(length, rng),
    }
    return {parser: {name: score_spans(corpus, [parse(len(words), scores) for words, scores
                                                in zip(corpus.sentences, corpus.scores, strict=True)])
                     for name, corpus in corpora.items()}
            for parser, parse in parsers.items()}
