"""Words per second of pre-training: our loop against transformers' Trainer, the same model on the same sentences.

Trainer runs as it comes: default collator, random order, padding to the longest, full vocabulary projection.  Then the
milliseconds of one step by part, with the model's own forward pass over padded rows beside ours.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import DataCollatorForLanguageModeling, PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

from pcfg_artifact.mlm import forward
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.data import MaskedCorpus
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.mlm.packing import Batch
from pcfg_artifact.mlm.training import Recipe, train
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.random_streams import stream

# CRAFT's vocabulary and lengths (a mean of 25.7 and a long tail), and a model that a CPU trains in minutes.
N_WORDS, WIDTH, BATCH, BATCH_TOKENS, MAX_LENGTH = 8_344, 128, 64, 2_048, 510
MODEL = "A4L3"
STEPS, ROUNDS = 10, 2
RECIPE = Recipe(STEPS, STEPS, 1, 1e-3, 0.01, 1.0)


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    return [loops(), *parts()]


def loops() -> dict[str, Any]:
    """Both in turns, one thread, the best of each counts; in processor seconds, so other work hurts neither."""
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    sentences = synthetic_sentences(STEPS * BATCH)
    n_tokens = len(sentences.values) + 2 * sentences.n_rows
    seconds: dict[str, list[float]] = {"ours": [], "trainer": []}
    for _ in range(ROUNDS):
        seconds["ours"].append(timed(our_loop(sentences)))
        seconds["trainer"].append(timed(trainer_loop(sentences)))
    speed = {name: n_tokens / min(values) for name, values in seconds.items()}
    return {"ours_tokens_per_second": speed["ours"], "trainer_tokens_per_second": speed["trainer"],
            "ratio": speed["ours"] / speed["trainer"], "n_tokens": n_tokens, "model": MODEL, "width": WIDTH,
            "n_words": N_WORDS, "batch_size": BATCH}


def parts() -> list[dict[str, Any]]:
    """Processor milliseconds of a step by part; beside them, the model's own passes over the same rows, padded."""
    torch.set_num_threads(1)
    corpus, model = new_corpus(synthetic_sentences(STEPS * BATCH)), new_model()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    seconds: defaultdict[str, float] = defaultdict(float)
    for step in range(-1, STEPS):  # the first, which warms up, is not counted
        clock = Clock()
        share = corpus.step(max(step, 0))
        clock.lap("data")
        for batch in share.batches:
            inputs, where, targets = forward.to_device(batch, torch.device("cpu"))
            hidden = forward.encode(model, inputs)
            clock.lap("layers")
            logits = model.lm_head(hidden.index_select(0, where))
            loss = functional.cross_entropy(logits, targets, reduction="sum")
            clock.lap("vocabulary")
            loss.backward()
            clock.lap("backward")
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        clock.lap("update")
        rows, is_token, labels = padded(share.batches)
        clock.lap("padding")
        loss = model(rows, attention_mask=is_token, labels=labels).loss
        clock.lap("own forward")
        loss.backward()
        clock.lap("own backward")
        optimizer.zero_grad(set_to_none=True)
        if step >= 0:
            for name, value in clock.seconds.items():
                seconds[name] += value
    return [{"part": name, "ms_per_step": 1000 * value / STEPS} for name, value in seconds.items()]


class Clock:
    """Processor seconds by name, each from the lap before."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._last = time.process_time()

    def lap(self, name: str) -> None:
        now = time.process_time()
        self.seconds[name] += now - self._last
        self._last = now


def padded(batches: list[Batch]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The rows of a step as transformers wants them: (rows, longest) token ids, which are tokens, and labels."""
    ids, labels = [], []
    for batch in batches:
        targets = np.full(len(batch.input_ids), -100)
        targets[batch.where] = batch.targets
        ends = np.cumsum([width for rows, width in batch.shapes for _ in range(rows)])[:-1]
        ids += [torch.from_numpy(row) for row in np.split(batch.input_ids, ends)]
        labels += [torch.from_numpy(row) for row in np.split(targets, ends)]
    rows = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=tokens.PAD)
    return rows, rows != tokens.PAD, torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)


def timed(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def synthetic_sentences(n: int) -> Ragged:
    """Lengths like those of sampled sentences, words by Zipf's law; speed does not depend on what they say."""
    rng = stream(0, "bench pretrain")
    lengths = np.clip(rng.lognormal(np.log(19.5), 0.75, n).astype(int), 2, MAX_LENGTH)
    share = 1 / np.arange(1, N_WORDS + 1)
    words = rng.choice(N_WORDS, lengths.sum(), p=share / share.sum())
    return Ragged(words.astype(np.uint16), np.concatenate([[0], np.cumsum(lengths)]))


def new_model() -> Any:
    config = build_config(parse_shape(MODEL), n_words=N_WORDS, width=WIDTH, max_length=MAX_LENGTH, dropout=0.0)
    return build_model(config, 0)


def new_corpus(sentences: Ragged) -> MaskedCorpus:
    return MaskedCorpus(sentences, n_words=N_WORDS, masking=Masking(0.15), seed=0, batch_size=BATCH,
                        batch_tokens=BATCH_TOKENS, max_length=MAX_LENGTH)


def our_loop(sentences: Ragged) -> Callable[[], None]:
    corpus, model = new_corpus(sentences), new_model()

    def work() -> None:
        train(model, corpus, RECIPE, seed=0)
    return work


def trainer_loop(sentences: Ragged) -> Callable[[], None]:
    folder = tempfile.TemporaryDirectory()
    rows = [{"input_ids": [tokens.BEGIN, *(row + tokens.FIRST_WORD).tolist(), tokens.END]} for row in sentences.rows()]
    tokenizer = tokens.build_tokenizer([f"word{w}" for w in range(N_WORDS)], MAX_LENGTH)
    arguments = TrainingArguments(
        output_dir=folder.name, max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=RECIPE.learning_rate,
        weight_decay=RECIPE.weight_decay, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
        logging_strategy="no", dataloader_pin_memory=False)
    trainer = Trainer(model=new_model(), args=arguments, train_dataset=rows,
                      data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15))
    trainer.remove_callback(PrinterCallback)

    def work() -> None:
        with folder:
            trainer.train()
    return work
