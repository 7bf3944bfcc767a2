"""Interventions on one layer of a trained model: states are edited, and the layers above run on.

Every question (a span of a masked sentence) has two sets of states: from one a probe reads that the span is a
constituent, from the other that it is none.  The model's change of a masked word is the difference of its log
probabilities between the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from pcfg_artifact.interventions.counterfactuals import MARGIN, Question
from pcfg_artifact.interventions.edit_states import moved, nearest, random_steps, span_inputs, with_span
from pcfg_artifact.interventions.effects import STATISTICS, Observations, mean_over_sentences
from pcfg_artifact.interventions.run_from_layer import log_probs_above
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm.exact_comparison import MaskedSentence
from pcfg_artifact.mlm.model import MaskedLM
from pcfg_artifact.probing.control_tasks import pair_label
from pcfg_artifact.probing.linear_probe import LinearProbe
from pcfg_artifact.probing.probes import FittedProbe, Probe

# Methods of editing states: a probe, under its name (LINEAR is always one); the nearest state of another sentence; and
# three controls.
LINEAR, STATES = LinearProbe.name, "states of another sentence"
RANDOM, CONTROL_TASK, OTHER_SENTENCES = "random direction", "control task", "spans of other sentences"
MASKED = "<mask>"
GROUPED = (LINEAR, STATES, RANDOM)
DISTANCES = (0, 1, 3, 6, np.inf)  # words; at 0 the word's own state is edited
SLOPE = ("slope",)

Pair = tuple[np.ndarray, np.ndarray]  # states (n, 2 width) for "a constituent", and for "none"


@dataclass(frozen=True, eq=False)
class Masked:
    """Masked sentences as one layer sees them: marginals (L+1, L+1) and states (L+2, width) of each.

    device: where probes are fitted to them.
    """

    sentences: Sequence[MaskedSentence]
    marginals: Sequence[np.ndarray]
    states: Sequence[np.ndarray]
    device: str = "cpu"

    def inputs(self, width: int, chosen: Sequence[int]) -> np.ndarray:
        return np.concatenate([span_inputs(self.states[s], width) for s in chosen])

    def targets(self, width: int, chosen: Sequence[int]) -> np.ndarray:
        return np.concatenate([np.diagonal(self.marginals[s], width) for s in chosen])

    def control_labels(self, width: int, chosen: Sequence[int], seed: int) -> np.ndarray:
        """A random number for the pair of words at the ends of each span, masks included."""
        labels = []
        for s in chosen:
            seen = [MASKED if word < 0 else str(word) for word in self.sentences[s].seen]
            labels += [pair_label(seen[i], seen[i + width - 1], seed) for i in range(len(seen) - width + 1)]
        return np.array(labels)

    def fit(self, probe: Probe, width: int, chosen: Sequence[int], seed: int, *, is_control: bool = False
            ) -> FittedProbe:
        """The probe, fitted to the spans of one width of the chosen sentences."""
        targets = self.control_labels(width, chosen, seed) if is_control else self.targets(width, chosen)
        return probe.fit(self.inputs(width, chosen), targets.astype(np.float64), (seed,),
                         device=self.device if probe.uses_gpu else "cpu", overwrite_x=True)


@dataclass
class LayerOutcome:
    """What the interventions on one layer did.

    observations: by method.  answers, two for each method: `completeness` is how much the answer of a probe fitted to
    other sentences changes; `change_of_other_answers` is the same for spans that share a word with the edited one.
    """

    observations: dict[str, Observations] = field(default_factory=lambda: defaultdict(Observations))
    answers: list[Metric] = field(default_factory=list)


def intervene(model: MaskedLM, layer: int, train: Masked, test: Masked, questions: Sequence[Question],
              probes: Mapping[str, Probe], seed: int) -> LayerOutcome:
    """All interventions on one layer by these probes, among them the linear one."""
    outcome = LayerOutcome()
    widths = sorted({question.width for question in questions})
    half, other_half = range(0, len(train.sentences), 2), range(1, len(train.sentences), 2)
    linear, apart = ({width: train.fit(probes[LINEAR], width, chosen, seed) for width in widths}
                     for chosen in (half, other_half))
    pairs: dict[str, dict[int, Pair]] = defaultdict(dict)  # method -> index of the question -> states
    for width in widths:
        chosen = [q for q, question in enumerate(questions) if question.width == width]
        x = np.stack([_read(test, questions[q]) for q in chosen])
        by_method = _pairs(x, train, width, half, linear[width], probes, seed)
        for method, (ones, zeros) in by_method.items():
            pairs[method].update(zip(chosen, zip(ones, zeros, strict=True), strict=True))
    for q in range(len(questions)):
        _observe(model, layer, test, questions, q, {method: found[q] for method, found in pairs.items()}, outcome)
    sentence = np.array([question.sentence for question in questions])
    for method, found in pairs.items():
        answers = np.array([_answers(test, question, found[q], linear, apart[question.width])
                            for q, question in enumerate(questions)])
        outcome.answers += [
            mean_over_sentences(sentence, values, table="interventions", probe=method, metric=metric, unit="fraction")
            for metric, values in zip(("completeness", "change_of_other_answers"), answers.T, strict=True)]
    return outcome


def _pairs(x: np.ndarray, train: Masked, width: int, half: Sequence[int], linear: FittedProbe,
           probes: Mapping[str, Probe], seed: int) -> dict[str, Pair]:
    """The states that every method gives to the spans of one width whose states are x."""
    found: dict[str, Pair] = {}
    for method, probe in probes.items():
        fitted = linear if method == LINEAR else train.fit(probe, width, half, seed)
        found[method] = moved(fitted, x, 1.0), moved(fitted, x, 0.0)
    inputs, marginals = train.inputs(width, half), train.targets(width, half)
    pools = inputs[marginals >= 1 - MARGIN], inputs[marginals <= MARGIN]
    if all(map(len, pools)):
        found[STATES] = nearest(pools[0], x), nearest(pools[1], x)
    found[RANDOM] = random_steps(x, *found[LINEAR], seed)
    control = train.fit(probes[LINEAR], width, half, seed, is_control=True)
    found[CONTROL_TASK] = moved(control, x, 1.0), moved(control, x, 0.0)
    return found


def _read(test: Masked, question: Question) -> np.ndarray:
    return span_inputs(test.states[question.sentence], question.width)[question.span[0]]


def _observe(model: MaskedLM, layer: int, test: Masked, questions: Sequence[Question], q: int,
             pairs: Mapping[str, Pair], outcome: LayerOutcome) -> None:
    """Run the layers above with the states of every method, and compare the change with the exact one."""
    question = questions[q]
    sentence = test.sentences[question.sentence]
    x = np.stack([one for pair in pairs.values() for one in pair])
    states = with_span(test.states[question.sentence], question.span, x)
    log_probs = log_probs_above(model, layer, states, sentence.positions)
    place = question.sentence, question.span, sentence.positions
    for method, (ones, zeros) in zip(pairs, log_probs.reshape(len(pairs), 2, *log_probs.shape[1:]), strict=True):
        outcome.observations[method].add(*place, question.weights, question.change, ones - zeros)
        if method == LINEAR and (other := _of_another_sentence(questions, q)) is not None:
            rows = np.arange(len(sentence.positions)) % len(other.change)
            outcome.observations[OTHER_SENTENCES].add(*place, other.weights[rows], other.change[rows], ones - zeros)


def _of_another_sentence(questions: Sequence[Question], q: int) -> Question | None:
    """The next question about a span of the same width in another sentence."""
    for step in range(1, len(questions)):
        other = questions[(q + step) % len(questions)]
        if other.width == questions[q].width and other.sentence != questions[q].sentence:
            return other
    return None


def _answers(test: Masked, question: Question, pair: Pair, linear: Mapping[int, FittedProbe], apart: FittedProbe
             ) -> tuple[float, float]:
    """Changes from "none" to "a constituent": of the answer of a probe fitted to other sentences, and the mean absolute
    one of the answers for other spans, which share exactly one of the two words with the edited span."""
    read = apart.predict(np.stack(pair).astype(np.float32))[0]
    first, last = question.span[0], question.span[1] - 1
    changes = []
    for width, probe in linear.items():
        answers = [probe.predict(span_inputs(with_span(test.states[question.sentence], question.span, one[None])[0],
                                             width))[0] for one in pair]
        starts = np.arange(len(answers[0]))
        shares = np.isin(starts, (first, last)).astype(int) + np.isin(starts + width - 1, (first, last))
        changes.append(np.abs(answers[0] - answers[1])[shares == 1])
    flat = np.concatenate(changes)
    return float(read[0] - read[1]), float(flat.mean()) if len(flat) else 0.0


# ---- the outcome in numbers ------------------------------------------------------------------------------------------


def layer_metrics(outcome: LayerOutcome, is_middle: bool) -> list[Metric]:
    """Slopes at masked words elsewhere and at those whose own state was edited; everything for the middle layer."""
    found = list(outcome.answers) if is_middle else []
    for method, seen in outcome.observations.items():
        elsewhere = seen.estimates(seen.is_elsewhere, STATISTICS if is_middle else SLOPE, probe=method)
        found += [*elsewhere, *seen.estimates(~seen.is_elsewhere, SLOPE, probe=method, group="moved words")]
        if is_middle:
            found += [slope.at(metric="slope_in_errors", value=abs(slope.value) / slope.error, error=None, unit="ratio")
                      for slope in elsewhere if slope.metric == "slope" and slope.error]
            found += group_metrics(method, seen) if method in GROUPED else ()
    return [metric for metric in found if np.isfinite(metric.value)]


def group_metrics(method: str, seen: Observations) -> Iterator[Metric]:
    """Slopes by width of the span, and by distance of the masked word from the edited states."""
    width, distance = np.asarray(seen.width), np.asarray(seen.distance)
    for one in np.unique(width):
        yield from seen.estimates((width == one) & seen.is_elsewhere, SLOPE, probe=method, group="width",
                                  width=int(one))
    for low, high in pairwise(DISTANCES):
        name = f"{low}+" if high == np.inf else f"{low}" if high - low == 1 else f"{low}-{high - 1:.0f}"
        yield from seen.estimates((distance >= low) & (distance < high), SLOPE, probe=method, group="distance",
                                  bin=name)
