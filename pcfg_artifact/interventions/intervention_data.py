"""What interventions are made on: masked sentences, their exact marginals, and the spans that are put in question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pcfg_artifact.errors import StageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.interventions.counterfactuals import (
    Question,
    answer_questions,
    constituent_probabilities,
    masked_charts,
    spans_in_question,
)
from pcfg_artifact.mlm.exact_comparison import MaskedSentence, masked_sentences
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.parsing.options import EngineOptions
from pcfg_artifact.system.ragged import Ragged


@dataclass(frozen=True, eq=False)
class InterventionData:
    """Sentences that probes are fitted on, sentences that are intervened on, and the questions about these."""

    train: Sequence[MaskedSentence]
    train_marginals: Sequence[np.ndarray]
    test: Sequence[MaskedSentence]
    test_marginals: Sequence[np.ndarray]
    questions: Sequence[Question]


def build(grammar: PCFG, train: Ragged, test: Ragged, *, mask_rate: float, max_length: int, n_train: int, n_test: int,
          widths: Sequence[int], n_questions: int, seed: int, options: EngineOptions) -> InterventionData:
    """The first sentences of both splits that are short enough, masked; sentences without a mask say nothing."""
    masking = Masking(mask_rate, "mask")
    chosen = [[one for one in masked_sentences(grammar, sentences, masking, seed=seed, n=n, max_length=max_length)
               if len(one.positions)] for sentences, n in ((train, n_train), (test, n_test))]
    marginals = [[constituent_probabilities(chart) for chart in masked_charts(grammar, sentences, options)]
                 for sentences in chosen]
    spans = [found for width in widths for found in spans_in_question(marginals[1], width, n_questions, seed)]
    if not spans:
        raise StageError(f"no span of {', '.join(map(str, widths))} words is in question in {len(chosen[1])} masked "
                         f"sentences; raise intervene.n_test or intervene.max_length")
    questions = answer_questions(grammar, chosen[1], spans, options)
    return InterventionData(chosen[0], marginals[0], chosen[1], marginals[1], questions)
