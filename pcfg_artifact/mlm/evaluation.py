"""What a model says at masked words: its mean loss, and its whole distribution for comparison with the optimum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import distributed
from transformers import RobertaForMaskedLM

from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.data import Batch, MaskedCorpus, assemble, cut_by_tokens
from pcfg_artifact.mlm.model import MaskedLoss, masked_logits
from pcfg_artifact.mlm.optimum import MaskedSentence
from pcfg_artifact.mlm.training import HALF, Place, to_device


@torch.no_grad()
def mean_loss(model: RobertaForMaskedLM, batches: Iterable[Batch], place: Place = Place()) -> float:  # noqa: B008
    """Nats per masked word over the batches of all processes; each process passes its own."""
    model.eval()
    loss, device = MaskedLoss(model), torch.device(place.device)
    total = torch.zeros(2, dtype=torch.float64, device=device)
    with torch.autocast(device.type, HALF.get(place.precision), enabled=place.precision in HALF):
        for batch in batches:
            total[0] += loss(*to_device(batch, device))
            total[1] += len(batch.targets)
    if place.world_size > 1:
        distributed.all_reduce(total)
    return float(total[0] / total[1])


def count_tokens(corpus: MaskedCorpus, steps: int, sample: int) -> tuple[float, float]:
    """Mean number of tokens in a global batch, without and with padding, from the first `sample` steps."""
    shares = [corpus.step(step) for step in range(min(steps, sample))]
    return (float(np.mean([sum(b.n_tokens for b in share.batches) for share in shares])),
            float(np.mean([sum(b.input_ids.size for b in share.batches) for share in shares])))


@torch.no_grad()
def predictions(model: RobertaForMaskedLM, sentences: Sequence[MaskedSentence],
                batch_tokens: int) -> Iterator[tuple[int, np.ndarray]]:
    """Pairs (s, log probability (masked, n_words) of every word at the masked positions of sentences[s]), by length.

    The softmax is over all tokens: what a model gives to special tokens is lost to it.
    """
    model.eval()
    device = next(model.parameters()).device
    lengths = np.array([len(s.words) for s in sentences])
    by_length = np.argsort(-lengths, kind="stable")
    for rows in cut_by_tokens(by_length, lengths[by_length] + 2, batch_tokens):
        words, seen = (np.zeros((len(rows), lengths[rows[0]]), np.int64) for _ in range(2))
        is_masked = np.zeros(words.shape, bool)
        for k, s in enumerate(rows):
            words[k, :lengths[s]], seen[k, :lengths[s]] = sentences[s].words, sentences[s].seen
            is_masked[k, sentences[s].positions] = True
        input_ids, attention_mask, where, _ = to_device(assemble(words, seen, is_masked, lengths[rows]), device)
        scores = masked_logits(model, input_ids, attention_mask, where).double().log_softmax(-1)
        ends = np.cumsum([len(sentences[s].positions) for s in rows])
        yield from zip(rows.tolist(), np.split(scores[:, tokens.FIRST_WORD:].cpu().numpy(), ends[:-1]), strict=True)
