"""The positive control: interventions on the transformer of Theorem 3.2, where chart entries have known coordinates.

Each layer's coordinates of forbidden spans are set to 0 as soon as they are written.  The transformer then computes the
constrained charts, so the measured effect must equal the exact one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pcfg_artifact.constructions.agreement import entry_errors, linear
from pcfg_artifact.constructions.transformer import ConstructedTransformer
from pcfg_artifact.interventions.counterfactuals import Question, log_ratio, masked_leaves
from pcfg_artifact.interventions.effects import Observations
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm.exact_comparison import MaskedSentence
from pcfg_artifact.parsing.chart_index import cell_bounds
from pcfg_artifact.parsing.constraints import Constraints, forbidden_cells, forbidden_entries
from pcfg_artifact.parsing.engine import EngineOptions, leaf_charts


def cleared_embeddings(model: ConstructedTransformer, leaves: np.ndarray, constraints: Constraints) -> torch.Tensor:
    """(tokens, d) last embeddings of a sentence with these leaves (L, P), after the coordinates of all spans that the
    constraints (without labels) forbid were cleared in both passes."""
    length = len(leaves)
    is_forbidden = forbidden_cells(length, constraints)
    spans = [(int(i), int(j)) for i, j in zip(*(bounds[is_forbidden] for bounds in cell_bounds(length)), strict=True)]
    embeddings = next(model.steps_from_leaves([torch.from_numpy(leaves)]))
    has_outside = False  # until the root is written, the outside blocks hold positions
    _clear(model, embeddings[0], spans, has_outside)
    for layer, weights in zip(model.layers, model.plan.layers, strict=True):
        embeddings = layer(embeddings)
        has_outside |= weights.computes[0] in ("root", "outside")
        _clear(model, embeddings[0], spans, has_outside)
    return embeddings[0]


def _clear(model: ConstructedTransformer, embeddings: torch.Tensor, spans: Sequence[tuple[int, int]],
           has_outside: bool) -> None:
    plan = model.plan
    for readout in (plan.inside, plan.outside) if has_outside else (plan.inside,):
        for i, j in spans:
            embeddings[readout.row(i, j), plan.space[readout.blocks[j - i - 1]]] = 0.0


def constructed_change(model: ConstructedTransformer, sentence: MaskedSentence, span: tuple[int, int]
                       ) -> tuple[np.ndarray, float]:
    """(masked, n_words) log probabilities with the span required less those with it forbidden; and the largest relative
    error of the charts of both cases against constrained Inside-Outside."""
    grammar, leaves = model.grammar, masked_leaves(model.grammar, sentence)
    distributions, worst = [], 0.0
    for is_required in (True, False):
        constraints: Constraints = {span: is_required}
        embeddings = cleared_embeddings(model, leaves, constraints)
        chart = next(leaf_charts(grammar, [leaves], EngineOptions(outside="full"),
                                 [forbidden_entries(grammar, len(leaves), constraints)]))
        errors = map(entry_errors, model.read_charts(embeddings), linear(chart))
        worst = max(worst, *(float(error.max()) for error in errors))
        distributions.append(model.word_distributions(embeddings)[sentence.positions])
    return log_ratio(*distributions), worst


def observe_constructed(model: ConstructedTransformer, sentences: Sequence[MaskedSentence],
                        questions: Sequence[Question]) -> tuple[Observations, float]:
    """What is measured of trained models, with coordinates in place of a probe; and the largest chart error."""
    found, worst = Observations(), 0.0
    for question in questions:
        sentence = sentences[question.sentence]
        change, error = constructed_change(model, sentence, question.span)
        worst = max(worst, error)
        found.add(question.sentence, question.span, sentence.positions, question.weights, question.change, change)
    return found, worst


def constructed_metrics(seen: Observations, chart_error: float) -> list[Metric]:
    """Statistics over every masked word, since the coordinates of all layers are cleared."""
    slope, *others = seen.estimates(np.ones(len(seen.sentence), bool))
    errors = {"slope_off_by": abs(slope.value - 1), "chart_error": chart_error}
    return [slope, *others, *(slope.at(metric=metric, value=value, error=None, unit="relative_error")
                              for metric, value in errors.items())]
