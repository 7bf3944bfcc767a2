"""A causal model beside the exact next word: at every word of a sentence and at its end, over all words and the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import GPT2LMHeadModel

from pcfg_artifact.grammar.expectation import expected_length
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.exact_comparison import Gap, distance_metrics, grouped_metrics
from pcfg_artifact.mlm.forward import to_device
from pcfg_artifact.mlm.gpt2 import next_word_logits
from pcfg_artifact.mlm.packing import Batch, cut_by_tokens, pack
from pcfg_artifact.parsing.prefix.left_to_right import next_words
from pcfg_artifact.system.progress import ProgressBar

# By where the predicted word stands: words before it, constituents around it (0: it is the end), words of its sentence.
BINS = {"entropy": (0, 1, 2, 3, 4, 5, 6, np.inf), "position": (0, 1, 2, 4, 8, 16, 32, np.inf),
        "depth": (0, 1, 4, 7, 10, 14, np.inf), "length": (1, 6, 11, 21, 31, np.inf)}


@torch.no_grad()
def next_word_predictions(model: GPT2LMHeadModel, sentences: Sequence[np.ndarray],
                          batch_tokens: int) -> Iterator[tuple[int, np.ndarray]]:
    """Pairs (s, log probability (L+1, n_words + 1) of every next word and, last, of the end), longest sentence first.

    The softmax is over all tokens: what a model gives to other special tokens is lost to it.
    """
    model.eval()
    device = next(model.parameters()).device
    lengths = np.array([len(words) for words in sentences])
    by_length = np.argsort(-lengths, kind="stable")
    for rows, sizes in cut_by_tokens(by_length, lengths[by_length] + 2, batch_tokens):
        inputs, where, _ = to_device(as_causal_batch([sentences[s] for s in rows], sizes), device)
        scores = next_word_logits(model, inputs, where).double().log_softmax(-1).cpu().numpy()
        scores = np.concatenate([scores[:, tokens.FIRST_WORD:], scores[:, [tokens.END]]], axis=1)
        yield from zip(rows.tolist(), np.split(scores, np.cumsum(lengths[rows] + 1)[:-1]), strict=True)


def as_causal_batch(sentences: Sequence[np.ndarray], sizes: list[int]) -> Batch:
    """One row per sentence, longest first, in rectangles of `sizes` rows; every word and the end is predicted."""
    row = np.repeat(np.arange(len(sentences)), [len(words) + 1 for words in sentences])
    column = np.concatenate([np.arange(1, len(words) + 2) for words in sentences])
    ids = np.concatenate([np.append(tokens.of_words(np.asarray(words, np.int64)), tokens.END) for words in sentences])
    return pack(row, column, ids, np.ones(len(ids), bool), ids, sizes, ahead=1)


def next_word_gaps(grammar: PCFG, models: Mapping[str, GPT2LMHeadModel], sentences: Sequence[np.ndarray],
                   batch_tokens: int, progress: ProgressBar) -> dict[str, Gap]:
    """Every model beside the exact next word, which is computed once for all of them."""
    predictions = {name: next_word_predictions(model, sentences, batch_tokens) for name, model in models.items()}
    gaps: dict[str, dict[int, Gap]] = {name: {} for name in models}
    for found in progress(zip(*predictions.values(), strict=True), total=len(sentences), desc="next words"):
        s = found[0][0]  # all models go through the sentences in one order
        exact = next_words(grammar, sentences[s]).next_word
        targets = with_end(sentences[s], grammar.n_words)
        for name, (_, predicted) in zip(predictions, found, strict=True):
            gaps[name][s] = Gap.between(predicted, exact, targets)
    return {name: Gap.join([by_sentence[s] for s in range(len(sentences))]) for name, by_sentence in gaps.items()}


def with_end(words: np.ndarray, n_words: int) -> np.ndarray:
    """(L+1,) what is predicted in a sentence: its words, and the end, which is counted as one more word."""
    return np.append(np.asarray(words, np.int64), n_words)


def unigram_with_end(grammar: PCFG, word_share: np.ndarray) -> np.ndarray:
    """(n_words + 1,) shares of words and of the end in endless text; word_share: of the words among words."""
    length = expected_length(grammar)
    return np.append(word_share * length, 1.0) / (length + 1.0)


def unigram_next_word_loss(grammar: PCFG, word_share: np.ndarray, sentences: Sequence[np.ndarray]) -> float:
    """Mean loss, in nats, of predicting every word and end by its share alone."""
    targets = np.concatenate([with_end(words, grammar.n_words) for words in sentences])
    return float(-np.log(unigram_with_end(grammar, word_share)[targets]).mean())


def next_word_circumstances(depths: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """What is known of every predicted word and end; depths: of the words of each sentence in its tree, (L,) each."""
    return {"position": np.concatenate([np.arange(len(depth) + 1) for depth in depths]),
            "depth": np.concatenate([np.append(depth, 0) for depth in depths]),
            "length": np.concatenate([np.full(len(depth) + 1, len(depth)) for depth in depths])}


def next_word_metrics(gap: Gap, unigram: float, known: Mapping[str, np.ndarray], model: str, seed: int
                      ) -> list[Metric]:
    """Perplexities of model, optimum and unigram on the same words, what lies between, and where."""
    dimensions: dict[str, Any] = {"table": "next_words", "model": model, "seed": seed}
    excess, _ = gap.excess()
    closed = 1.0 - excess / (unigram - float(gap.exact.mean()))
    return [*distance_metrics(gap, unigram, **dimensions),
            Metric(metric="closed", value=closed, n=len(gap.model), unit="fraction", **dimensions),
            *grouped_metrics(gap, known, BINS, **dimensions)]
