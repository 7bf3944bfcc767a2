"""What a model says at masked words: its mean loss, and its whole distribution for comparison with the optimum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import distributed

from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.data import TrainingCorpus
from pcfg_artifact.mlm.exact_comparison import MaskedSentence
from pcfg_artifact.mlm.forward import MaskedLoss, masked_logits, to_device
from pcfg_artifact.mlm.model import LanguageModel, MaskedLM
from pcfg_artifact.mlm.packing import Batch, cut_by_tokens, pack
from pcfg_artifact.mlm.training import HALF, Rank


@torch.no_grad()
def mean_loss(model: LanguageModel, batches: Iterable[Batch], rank: Rank = Rank(),  # noqa: B008
              loss_of: Callable[[Any], torch.nn.Module] = MaskedLoss) -> float:
    """Nats per prediction over the batches of all processes; each process passes its own."""
    model.eval()
    loss, device = loss_of(model), torch.device(rank.device)
    total = torch.zeros(2, dtype=torch.float64, device=device)
    with torch.autocast(device.type, HALF.get(rank.precision), enabled=rank.precision in HALF):
        for batch in batches:
            total[0] += loss(*to_device(batch, device))
            total[1] += len(batch.targets)
    if rank.world_size > 1:
        distributed.all_reduce(total)
    return float(total[0] / total[1])


def count_tokens(corpus: TrainingCorpus, steps: int, sample: int) -> tuple[float, float]:
    """Mean number of tokens in a global batch, without and with padding, from the first `sample` steps."""
    shares = [corpus.step(step) for step in range(min(steps, sample))]
    return (float(np.mean([sum(b.n_tokens for b in share.batches) for share in shares])),
            float(np.mean([sum(b.input_ids.size for b in share.batches) for share in shares])))


@torch.no_grad()
def predictions(model: MaskedLM, sentences: Sequence[MaskedSentence],
                batch_tokens: int) -> Iterator[tuple[int, np.ndarray]]:
    """Pairs (s, log probability (masked, n_words) of every word at the masked positions of sentences[s]), by length.

    The softmax is over all tokens: what a model gives to special tokens is lost to it.
    """
    model.eval()
    device = next(model.parameters()).device
    lengths = np.array([len(s.words) for s in sentences])
    by_length = np.argsort(-lengths, kind="stable")
    for rows, sizes in cut_by_tokens(by_length, lengths[by_length] + 2, batch_tokens):
        inputs, where, _ = to_device(as_batch([sentences[s] for s in rows], sizes), device)
        scores = masked_logits(model, inputs, where).double().log_softmax(-1)
        ends = np.cumsum([len(sentences[s].positions) for s in rows])
        yield from zip(rows.tolist(), np.split(scores[:, tokens.FIRST_WORD:].cpu().numpy(), ends[:-1]), strict=True)


def as_batch(sentences: Sequence[MaskedSentence], sizes: list[int]) -> Batch:
    """One row per sentence, longest first, in rectangles of `sizes` rows."""
    row = np.repeat(np.arange(len(sentences)), [len(s.words) + 1 for s in sentences])
    column = np.concatenate([np.arange(1, len(s.words) + 2) for s in sentences])
    ids = np.concatenate([np.append(tokens.of_words(s.seen), tokens.END) for s in sentences])
    truth = np.concatenate([np.append(tokens.of_words(s.words), tokens.END) for s in sentences])
    is_masked = np.concatenate([np.isin(np.arange(len(s.words) + 1), s.positions) for s in sentences])
    return pack(row, column, ids, is_masked, truth, sizes)
