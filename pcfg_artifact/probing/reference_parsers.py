"""Parsers to compare the probes with, on the probes' own test sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.baselines import BASELINES
from pcfg_artifact.probing.corpus import Corpus
from pcfg_artifact.probing.settings import SAMPLED, SETTINGS, TREEBANK
from pcfg_artifact.probing.targets import Span
from pcfg_artifact.probing.tasks import score_spans

EXACT_PARSER = "IO"


def parser_metrics(corpora: Mapping[str, Corpus], widest: int, rng: np.random.Generator) -> Iterator[Metric]:
    """F1 of the exact parser, by span width too, and of trees that know nothing; corpora: by the name of the text.

    Settings that are tested on the same text have the same F1, by width it is given once.
    """
    for parser in (EXACT_PARSER, *BASELINES):
        for text, corpus in corpora.items():
            spans: Sequence[Sequence[Span]] = corpus.parses if parser == EXACT_PARSER else \
                [list(BASELINES[parser](int(length), rng)) for length in corpus.lengths]
            for score in score_spans(corpus, spans):
                if score.width is not None and (parser != EXACT_PARSER or score.width > widest):
                    continue
                for setting in SETTINGS if score.width is None else (SAMPLED, TREEBANK):
                    if setting.test.name == text:
                        yield score.at(model=parser, setting=setting.name)
