"""Where the heads of an encoder look: how far, on average, and at which words of one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from pcfg_artifact.errors import StageError
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.probing.representations import padded_batches
from pcfg_artifact.system.progress import ProgressBar, no_progress


def attended_distance(attention: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """(B, H) AD = 1/T sum_{i,j} |i - j| A_ij of each sentence and head over its T pieces, BOS and EOS included.

    attention (B, H, M, M) with rows that sum to 1 over the first T of M positions; lengths (B,) holds T.
    """
    position = torch.arange(attention.shape[-1], device=attention.device)
    distance = (position[:, None] - position[None, :]).abs().to(attention.dtype)
    looked = (attention * distance).sum(dim=-1)  # (B, H, M): the mean distance seen from each row
    is_piece = position < lengths[:, None]
    return (looked * is_piece[:, None, :]).sum(dim=-1) / lengths[:, None]


def attention_entropy(attention: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """(B, H) mean entropy of the rows of each sentence and head, in nats; arguments as of attended_distance."""
    is_piece = torch.arange(attention.shape[-1], device=attention.device) < lengths[:, None]
    entropy = torch.special.entr(attention).sum(dim=-1)  # (B, H, M)
    return (entropy * is_piece[:, None, :]).sum(dim=-1) / lengths[:, None]


class HeadStatistics(NamedTuple):
    """Of every head, the mean over sentences; off_by: the largest distance of an attention row's sum from 1."""

    distance: torch.Tensor  # (n_layers, n_heads)
    entropy: torch.Tensor  # (n_layers, n_heads)
    uniform_distance: float  # of a head that looks everywhere alike: (T - 1/T) / 3 in a sentence of T pieces
    off_by: float

    def metrics(self, n: int, by_layer: bool) -> Iterator[Metric]:
        """Of n sentences: the distance of every head, from near to far; by layer its heads' entropy, and their distance
        over that of heads that look everywhere alike."""
        for layer, heads in enumerate(self.distance, start=1):
            for head, value in enumerate(sorted(heads.tolist()), start=1):
                yield Metric(table="attention", layer=layer, index=head, metric="attended_distance", value=value, n=n,
                             unit="tokens")
            if by_layer:
                yield Metric(table="attention", layer=layer, metric="entropy", n=n, unit="nats",
                             value=float(self.entropy[layer - 1].mean()))
                yield Metric(table="attention", layer=layer, metric="distance_ratio", n=n, unit="ratio",
                             value=float(heads.mean()) / self.uniform_distance)


@torch.inference_mode()
def head_statistics(model: Any, tokenizer: Any, sentences: Sequence[Sequence[str]], *, max_tokens: int = 4096,
                    device: str = "cpu", progress: ProgressBar = no_progress) -> HeadStatistics:
    """How far the heads of every layer look, and how evenly.

    The model must have been loaded with attn_implementation="eager": the fused kernels give no attention back.
    """
    model = model.to(device).eval()
    total: torch.Tensor | None = None
    uniform = off_by = 0.0
    for batch in progress(padded_batches(tokenizer, sentences, "first", max_tokens)):
        inputs = {k: v.to(device) for k, v in batch.inputs.items()}
        lengths = inputs["attention_mask"].sum(dim=1)
        attentions = model(**inputs, output_attentions=True).attentions
        found = torch.stack([torch.stack([measure(a.double(), lengths).sum(dim=0) for a in attentions])
                             for measure in (attended_distance, attention_entropy)])
        total = found if total is None else total + found
        uniform += float((lengths - 1 / lengths).sum() / 3)
        is_piece = inputs["attention_mask"].bool()[:, None, :]
        for a in attentions:
            off_by = max(off_by, float(((a.sum(dim=-1) - 1).abs() * is_piece).max()))
    if total is None:
        raise StageError("there is no sentence to measure attention on; raise attention.max_length")
    distance, entropy = total.cpu() / len(sentences)
    return HeadStatistics(distance, entropy, uniform / len(sentences), off_by)


@torch.inference_mode()
def attention_maps(model: Any, tokenizer: Any, words: Sequence[str], device: str = "cpu") -> np.ndarray:
    """(layers, L, L) attention from word to word, the mean over heads; what goes to <s> and </s> is missing in rows.

    The first piece of a word looks; all pieces of a word are looked at.  The model must be loaded with attention
    "eager": fused kernels give no attention back.
    """
    encoded = tokenizer([list(words)], is_split_into_words=True, return_tensors="pt")
    word_of = encoded.word_ids(0)
    attentions = model.to(device).eval()(**encoded.to(device), output_attentions=True).attentions
    heads = torch.stack([a[0].double().mean(0) for a in attentions]).cpu().numpy()  # (layers, pieces, pieces)
    first = [word_of.index(w) for w in range(len(words))]
    belongs = np.array([[float(of == w) for w in range(len(words))] for of in word_of])
    return heads[:, first] @ belongs
