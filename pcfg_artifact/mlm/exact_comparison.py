"""The Bayes-optimal masked language model under named masks, and a trained model's distance from it.

Everything is in nats per masked word; a perplexity is the exponential of a mean over masked words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions, LazyLeaves, leaf_outsides
from pcfg_artifact.parsing.masking import hidden_words, observed_leaves
from pcfg_artifact.parsing.masks import Masking, selected_channel
from pcfg_artifact.parsing.prefix.infix import infix_outside
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.threads import ordered_map


@dataclass(frozen=True)
class MaskedSentence:
    """One sentence under one set of masks: its words, what is seen of them (-1 = <mask>), and where to predict."""

    index: int  # in its split
    words: np.ndarray  # (L,)
    seen: np.ndarray  # (L,)
    positions: np.ndarray  # (masked,)


def masked_sentences(grammar: PCFG, sentences: Ragged, masking: Masking, *, seed: int, n: int,
                     max_length: int) -> list[MaskedSentence]:
    """The first `n` sentences of at most `max_length` words under the named masks; some may have none."""
    chosen = np.flatnonzero(sentences.lengths <= max_length)[:n]
    return [MaskedSentence(int(s), *hidden_words(grammar, sentences.row(s), masking, seed, int(s))) for s in chosen]


def exact_predictions(grammar: PCFG, sentences: Sequence[MaskedSentence], masking: Masking,
                      options: EngineOptions = DEFAULT) -> Iterator[np.ndarray]:
    """(masked, n_words) posterior of every word at every masked position, exact for the masking process.

    Under 80/10/10 the position that is predicted is known to have been selected: if it shows the word o, then
    P(shows o | word w) multiplies what the context says.
    """
    leaves = LazyLeaves(lambda s: observed_leaves(grammar, sentences[s].seen, masking), len(sentences))
    found = leaf_outsides(grammar, leaves, options)
    return _posteriors(grammar, sentences, (outside[sentence.positions]
                                            for sentence, outside in zip(sentences, found, strict=True)))


def window_predictions(grammar: PCFG, sentences: Sequence[MaskedSentence], masking: Masking, window: int,
                       n_threads: int = 1) -> Iterator[np.ndarray]:
    """The same from the words within `window` of each masked one alone: no predictor that sees no more can be better.

    It sees, of these words, what the model sees of them, and where the sentence ends if that is nearer.
    """
    def outside(sentence: MaskedSentence) -> np.ndarray:
        leaves, length = observed_leaves(grammar, sentence.seen, masking), len(sentence.seen)
        rows = [infix_outside(grammar, leaves[max(t - window, 0):t + window + 1], min(t, window), begins=t < window,
                              ends=t + window >= length) for t in sentence.positions.tolist()]
        return np.array(rows).reshape(len(rows), grammar.n_preterminals)

    return _posteriors(grammar, sentences, ordered_map(outside, sentences, n_threads))


def _posteriors(grammar: PCFG, sentences: Sequence[MaskedSentence], outside: Iterable[np.ndarray]
                ) -> Iterator[np.ndarray]:
    """(masked, n_words) of every sentence, from beta (masked, P) of its masked positions up to a factor each."""
    head, word = grammar.lexical.T
    emit = csr_matrix((grammar.lexical_prob, (head - grammar.n_interminals, word)),
                      shape=(grammar.n_preterminals, grammar.n_words))
    channel = selected_channel(grammar.n_words)
    for sentence, beta in zip(sentences, outside, strict=True):
        weights = beta @ emit
        for row, shown in enumerate(sentence.seen[sentence.positions]):
            if shown >= 0:
                weights[row] *= channel.given(shown, grammar.n_words)
        yield weights / weights.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Gap:
    """One entry per masked word, in nats: loss of the model, loss of the optimum, KL(exact || model), exact entropy."""

    model: np.ndarray
    exact: np.ndarray
    divergence: np.ndarray
    entropy: np.ndarray

    @classmethod
    def between(cls, log_model: np.ndarray, exact: np.ndarray, targets: np.ndarray) -> Gap:
        """log_model, exact: (masked, n_words)."""
        rows, exact = np.arange(len(targets)), exact.astype(np.float64)
        log_exact = np.log(np.where(exact > 0, exact, 1.0))
        with np.errstate(divide="ignore"):  # an impossible target costs infinitely much
            loss = -np.log(exact[rows, targets])
        return cls(model=-log_model[rows, targets], exact=loss,
                   divergence=(exact * (log_exact - np.where(exact > 0, log_model, 0.0))).sum(axis=1),
                   entropy=-(exact * log_exact).sum(axis=1))

    @classmethod
    def join(cls, parts: Sequence[Gap]) -> Gap:
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def excess(self) -> tuple[float, float]:
        """Mean loss above the optimum, and its standard error: no model can be below zero by more than noise."""
        from scipy.stats import sem  # here, because every training process would pay for it and none calls this

        difference = self.model - self.exact
        return float(difference.mean()), float(sem(difference))


# ---- where a model is far from the optimum --------------------------------------------------------------------------

Bins = Mapping[str, tuple[float, ...]]  # edges, by circumstance
BINS: Bins = {"entropy": (0, 1, 2, 3, 4, 5, 6, np.inf), "length": (1, 6, 11, 21, 31, np.inf),
              "depth": (1, 4, 7, 10, 14, np.inf), "masked neighbours": (0, 1, np.inf)}
PLACES = ("first", "inside", "last")


def circumstances(sentences: Sequence[MaskedSentence], depths: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """What is known of every masked word: its place, its depth in the true tree, its sentence, its neighbours."""
    parts: dict[str, list[np.ndarray]] = {"place": [], "depth": [], "length": [], "masked neighbours": []}
    for sentence, depth in zip(sentences, depths, strict=True):
        t, length = sentence.positions, len(sentence.words)
        hidden = np.zeros(length + 2, int)
        hidden[t + 1] = 1
        parts["place"].append(np.where(t == 0, 0, np.where(t == length - 1, 2, 1)))
        parts["depth"].append(np.asarray(depth)[t])
        parts["length"].append(np.full(len(t), length))
        parts["masked neighbours"].append(hidden[t] + hidden[t + 2])
    return {name: np.concatenate(values) for name, values in parts.items()}


def word_depths(spans: Sequence[tuple[int, int]], length: int) -> np.ndarray:
    """(L,) number of spans of two or more words around each word of a tree."""
    steps = np.zeros(length + 1, int)
    for i, j in spans:
        if j - i > 1:
            steps[i] += 1
            steps[j] -= 1
    return np.cumsum(steps)[:-1]


def bin_groups(known: Mapping[str, np.ndarray], bins: Bins) -> Iterator[tuple[str, str, np.ndarray]]:
    """(circumstance, bin, boolean mask) of sets of predictions, by what is known of each and the edges of the bins."""
    for name, edges in bins.items():
        values = known[name]
        for low, high in pairwise(edges):
            last = high if name == "entropy" else high - 1  # the others are whole numbers
            label = f"{low}+" if high == np.inf else f"{low}" if low == last else f"{low}-{last}"
            yield name, label, (values >= low) & (values < high)


# ---- as numbers ----------------------------------------------------------------------------------------------------


def distance_metrics(gap: Gap, unigram: float, **dimensions: Any) -> list[Metric]:
    """Perplexities of model, optimum and unigram on the same words, and what lies between, in nats."""
    n, (excess, error) = len(gap.model), gap.excess()
    perplexities = {"perplexity": gap.model.mean(), "exact_perplexity": gap.exact.mean(), "unigram_perplexity": unigram}
    return [*(Metric(metric=name, value=math.exp(loss), n=n, unit="perplexity", **dimensions)
              for name, loss in perplexities.items()),
            Metric(metric="kl", value=float(gap.divergence.mean()), n=n, unit="nats", **dimensions),
            Metric(metric="excess", value=excess, error=error, n=n, unit="nats", **dimensions)]


def masked_word_groups(gap: Gap, known: Mapping[str, np.ndarray], **dimensions: Any) -> list[Metric]:
    """A masked model by what is known of every masked word (circumstances)."""
    by_place = [metric for k, name in enumerate(PLACES)
                for metric in _of_group(gap, known["place"] == k, group="place", bin=name, **dimensions)]
    return [*by_place, *grouped_metrics(gap, known, BINS, **dimensions)]


def grouped_metrics(gap: Gap, known: Mapping[str, np.ndarray], bins: Bins, **dimensions: Any) -> list[Metric]:
    """KL divergence and excess loss by circumstance (`known`, of every prediction) and by exact entropy."""
    return [metric for group, label, chosen in bin_groups({**known, "entropy": gap.entropy}, bins)
            for metric in _of_group(gap, chosen, group=group, bin=label, **dimensions)]


def _of_group(gap: Gap, chosen: np.ndarray, **dimensions: Any) -> list[Metric]:
    """Of the chosen predictions; nothing where there is none."""
    return [Metric(metric=name, value=float(values[chosen].mean()), n=int(chosen.sum()), unit="nats", **dimensions)
            for name, values in (("kl", gap.divergence), ("excess", gap.model - gap.exact)) if chosen.any()]
