"""Parsers to compare the probes with, on the probes' own test sentences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pcfg_artifact.parsing import BASELINES
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.tasks import Scores, score_spans

EXACT_PARSER = "IO"


def score_parsers(corpora: Mapping[str, Corpus], rng: np.random.Generator) -> dict[str, dict[str, Scores]]:
    """Name of the parser -> corpus -> scores; IO is the exact one."""
    exact = {EXACT_PARSER: {name: score_spans(corpus, corpus.parses) for name, corpus in corpora.items()}}
    return exact | {parser: {name: score_spans(corpus, [parse(int(length), rng) for length in corpus.lengths])
                             for name, corpus in corpora.items()}
                    for parser, parse in BASELINES.items()}
