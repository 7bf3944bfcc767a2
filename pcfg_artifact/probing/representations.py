"""Hidden states of every layer of a Hugging Face encoder, one row for BOS, each word and EOS of every sentence.

A sentence of L words owns L + 2 consecutive rows: BOS, its words, EOS.  A probe's input is then a choice of rows:
`*_rows` give (n, k) indices of rows, and the probe reads the k rows side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from pcfg_artifact.errors import UsageError
from pcfg_artifact.system.progress import ProgressBar, no_progress

Pooling = Literal["first", "last", "mean"]
Lengths = Sequence[int] | np.ndarray  # words of each sentence
NewArray = Callable[[int, tuple[int, int]], np.ndarray]
LARGEST_STATE = 1e12  # of a float32, so that a sum of squares over millions of rows is one too


def offsets_of(lengths: Lengths) -> np.ndarray:
    """(n+1,) first row of each sentence, and the number of rows."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64) + 2)])


# ---- what a probe reads ----------------------------------------------------------------------------------------------


def word_rows(lengths: Lengths, n_dropped: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(rows of the words of every sentence except its last `n_dropped`, index of the sentence of each)."""
    kept = np.maximum(np.asarray(lengths, np.int64) - n_dropped, 0)
    sentence = np.repeat(np.arange(len(kept)), kept)
    position = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
    return offsets_of(lengths)[sentence] + 1 + position, sentence


def eos_rows(lengths: Lengths) -> np.ndarray:
    """(n, 2) rows [e_i; e_EOS] of every word but the last of its sentence."""
    words, sentence = word_rows(lengths, 1)
    return np.stack([words, offsets_of(lengths)[sentence + 1] - 1], axis=1)


def window_rows(lengths: Lengths, window: int) -> np.ndarray:
    """(n, 2 window + 1) rows of every word but the last and those around it; BOS and EOS stand for what lies beyond."""
    return rows_around(lengths, 1, range(-window, window + 1))


def span_rows(lengths: Lengths, width: int, window: int = 0) -> np.ndarray:
    """(n, k) rows [e_i; e_{i+width-1}] of every span of this width, by sentence and start; with a window, the rows
    around these two as well, each once."""
    offsets = {end + offset for end in (0, width - 1) for offset in range(-window, window + 1)}
    return rows_around(lengths, width - 1, sorted(offsets))


def rows_around(lengths: Lengths, n_dropped: int, offsets: Iterable[int]) -> np.ndarray:
    """(n, k) rows at these offsets from every word but the last `n_dropped` of its sentence, and never beyond it."""
    words, sentence = word_rows(lengths, n_dropped)
    begins = offsets_of(lengths)
    return np.stack([np.clip(words + offset, begins[sentence], begins[sentence + 1] - 1) for offset in offsets], axis=1)


# ---- extraction ------------------------------------------------------------------------------------------------------


def max_pieces(model: Any) -> int | None:
    """How many pieces, BOS and EOS included, the position embeddings hold; None where the model has no such limit."""
    positions = getattr(model.config, "max_position_embeddings", None)
    # RoBERTa counts positions from padding_idx + 1.
    embedding = next((m for name, m in model.named_modules() if name.endswith("position_embeddings")), None)
    padding = getattr(embedding, "padding_idx", None)
    return positions - (0 if padding is None else padding + 1) if positions else None


def encode(tokenizer: Any, sentences: Sequence[Sequence[str]]) -> Any:
    """Piece ids and the word of each piece; every sentence stands between a begin and an end mark."""
    encoded = tokenizer([list(words) for words in sentences], is_split_into_words=True, truncation=False, verbose=False)
    if sentences and not (encoded.word_ids(0)[0] is None and encoded.word_ids(0)[-1] is None):
        raise UsageError("this tokenizer puts no marks before and after a sentence (BOS or CLS, EOS or SEP), which the "
                         "probe's input needs; use an encoder such as BERT or RoBERTa")
    return encoded


def fitting_sentences(model: Any, tokenizer: Any, sentences: Sequence[Sequence[str]]) -> np.ndarray:
    """Indices of the sentences that the model can read whole and in which every word has a piece."""
    limit = max_pieces(model)
    encoded = encode(tokenizer, sentences)
    fits = []
    for s, words in enumerate(sentences):
        pieces = encoded.word_ids(s)
        if (limit is None or len(pieces) <= limit) and len(set(pieces) - {None}) == len(words) > 0:
            fits.append(s)
    return np.array(fits, dtype=np.int64)


@dataclass(frozen=True)
class PaddedBatch:
    """Sentences of similar length, padded: model inputs, and where the rows of each sentence come from."""

    inputs: dict[str, torch.Tensor]
    weights: torch.Tensor  # (B, R, T) weight of each piece in each row (BOS, words, EOS); unused rows are 0
    sentences: np.ndarray  # (B,)
    n_rows: np.ndarray  # (B,)


def length_buckets(lengths: Lengths, max_tokens: int) -> Iterator[np.ndarray]:
    """Indices of sentences by length, longest first, cut so that padded batches hold at most `max_tokens` (or one)."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    start = 0
    while start < len(order):
        count = max(1, max_tokens // int(lengths[order[start]]))
        yield order[start:start + count]
        start += count


def padded_batches(tokenizer: Any, sentences: Sequence[Sequence[str]], pooling: Pooling,
                   max_tokens: int) -> Iterator[PaddedBatch]:
    """Padded batches that cover every sentence once; each must have a piece for every word (`fitting_sentences`)."""
    encoded = encode(tokenizer, sentences)
    n_pieces = [len(ids) for ids in encoded["input_ids"]]
    for bucket in length_buckets(n_pieces, max_tokens):
        longest = max(n_pieces[s] for s in bucket)
        n_rows = np.array([len(sentences[s]) + 2 for s in bucket])
        # Masked, so that any token would do where the tokenizer has none of its own for it, as GPT-2's.
        ids = torch.full((len(bucket), longest), tokenizer.pad_token_id or 0, dtype=torch.long)
        mask = torch.zeros((len(bucket), longest), dtype=torch.long)
        weights = torch.zeros((len(bucket), int(n_rows.max()), longest))
        for b, s in enumerate(bucket):
            ids[b, :n_pieces[s]] = torch.tensor(encoded["input_ids"][s])
            mask[b, :n_pieces[s]] = 1
            weights[b, :n_rows[b], :n_pieces[s]] = torch.from_numpy(pooling_weights(encoded.word_ids(int(s)), pooling))
        yield PaddedBatch({"input_ids": ids, "attention_mask": mask}, weights, bucket, n_rows)


def pooling_weights(word_ids: Sequence[int | None], pooling: Pooling) -> np.ndarray:
    """(L+2, T) weight of each of T pieces in BOS (first piece), in each word, and in EOS (last piece)."""
    pieces = np.array([-1 if w is None else w for w in word_ids])
    n_words = int(pieces.max()) + 1
    weights = np.zeros((n_words + 2, len(pieces)), np.float32)
    weights[0, 0] = weights[-1, -1] = 1.0
    for w in range(n_words):
        of_word = np.flatnonzero(pieces == w)
        of_word = {"first": of_word[:1], "last": of_word[-1:], "mean": of_word}[pooling]
        weights[w + 1, of_word] = 1.0 / len(of_word)
    return weights


@torch.inference_mode()
def extract(model: Any, tokenizer: Any, sentences: Sequence[Sequence[str]], new_array: NewArray, *,
            pooling: Pooling = "first", max_tokens: int = 8192, device: str = "cpu",
            progress: ProgressBar = no_progress, only: int | None = None) -> list[np.ndarray]:
    """Fill one array per layer, 0 = embeddings with position, with the rows of every sentence in the given order.

    only: the one layer that is wanted; None: all.
    new_array(layer, (n_rows, width)) makes the arrays (a memory map on disk, so that memory holds one batch only);
    its dtype decides the precision.
    """
    model = model.to(device).eval()
    offsets = offsets_of([len(words) for words in sentences])
    layers: list[np.ndarray] = []
    for batch in progress(padded_batches(tokenizer, sentences, pooling, max_tokens)):
        hidden = model(**{k: v.to(device) for k, v in batch.inputs.items()}, output_hidden_states=True).hidden_states
        if only is not None:
            hidden = hidden[only:only + 1]
        if not layers:
            layers = [new_array(layer, (int(offsets[-1]), h.shape[-1])) for layer, h in enumerate(hidden, only or 0)]
        weights = batch.weights.to(device)
        for array, h in zip(layers, hidden, strict=True):
            rows = torch.bmm(weights, h.float()).cpu().numpy()
            largest = float(np.abs(rows).max())
            limit = min(LARGEST_STATE, float(np.finfo(array.dtype).max))
            if not largest <= limit:  # written so that NaN fails
                raise UsageError(f"a hidden state of the model is {largest:g}, expected at most {limit:g}: its weights "
                                 f"are damaged, or training went astray; use another model")
            for s, n_rows, values in zip(batch.sentences, batch.n_rows, rows, strict=True):
                array[offsets[s]:offsets[s] + n_rows] = values[:n_rows]
    return layers
