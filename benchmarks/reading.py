"""Sentences per second of reading a corpus in random order: memory-mapped arrays, as training does, against Arrow.

The same sentences, from files, padded to the same arrays, in global batches of a random permutation.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parsing import alternately
from pcfg_artifact.run.stage_folder import Folder, Ragged, StageDir
from pcfg_artifact.system.random_streams import stream

# Lengths like those of sentences drawn from a grammar of real text (a mean of 25.7 and a long tail).
N_SENTENCES, N_WORDS, LONGEST, BATCH, STEPS, ROUNDS = 200_000, 8_344, 510, 256, 40, 3
Read = Callable[[np.ndarray], np.ndarray]


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every method in turn; the best round counts, in processor seconds, which other work changes little."""
    sentences = synthetic_sentences()
    with tempfile.TemporaryDirectory() as folder:
        readers = {"memory-mapped arrays": from_arrays(sentences, Path(folder)),
                   **from_arrow(sentences, Path(folder) / "arrow")}
        order = stream(0, "bench reading order").permutation(sentences.n_rows)[:STEPS * BATCH].reshape(STEPS, BATCH)
        for read in readers.values():
            if not np.array_equal(read(order[0]), padded_rows(sentences, order[0])):
                raise AssertionError("the methods do not give the same sentences")
        seconds = alternately([partial(read_all, read, order) for read in readers.values()], ROUNDS, time.process_time)
    speed = dict(zip(readers, (order.size / seconds).tolist(), strict=True))
    return [{"reading in random order": name, "sentences/s": value, "slower by": speed["memory-mapped arrays"] / value}
            for name, value in speed.items()]


def read_all(read: Read, order: np.ndarray) -> None:
    for chosen in order:
        read(chosen)


def synthetic_sentences() -> Ragged:
    rng = stream(0, "bench reading")
    lengths = np.clip(rng.lognormal(np.log(19.5), 0.75, N_SENTENCES).astype(int), 2, LONGEST)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Ragged(rng.integers(0, N_WORDS, offsets[-1], dtype=np.uint16), offsets)


def padded_rows(sentences: Ragged, chosen: np.ndarray) -> np.ndarray:
    """(rows, longest) word ids, 0 where a sentence has ended: sentence by sentence."""
    rows = [sentences.row(s) for s in chosen]
    out = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for line, row in zip(out, rows, strict=True):
        line[:len(row)] = row
    return out


def padded(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The same at once, from flat values: how mlm/data.py reads."""
    position = np.arange(lengths.max())
    is_word = position < lengths[:, None]
    return np.where(is_word, values[np.where(is_word, starts[:, None] + position, starts[:, None])].astype(np.int64), 0)


def from_arrays(sentences: Ragged, folder: Path) -> Read:
    StageDir(folder).write_ragged("tokens", sentences)
    stored = Folder(folder).ragged("tokens", memory_map=True)

    def read(chosen: np.ndarray) -> np.ndarray:
        starts = stored.offsets[chosen]
        return padded(stored.values, starts, stored.offsets[chosen + 1] - starts)
    return read


def from_arrow(sentences: Ragged, folder: Path) -> dict[str, Read]:
    """Rows of a saved dataset as Python lists, as NumPy arrays, and as the table's own buffers: the least it can do."""
    import datasets  # here, because it takes a second that other benchmarks need not pay
    import pyarrow

    datasets.disable_progress_bars()
    rows = pyarrow.ListArray.from_arrays(sentences.offsets.astype(np.int32), sentences.values)
    datasets.Dataset(pyarrow.table({"token_ids": rows})).save_to_disk(str(folder))
    stored = datasets.load_from_disk(str(folder))

    def from_rows(dataset: datasets.Dataset) -> Read:
        def read(chosen: np.ndarray) -> np.ndarray:
            found = dataset[chosen.tolist()]["token_ids"]
            out = np.zeros((len(found), max(map(len, found))), np.int64)
            for line, row in zip(out, found, strict=True):
                line[:len(row)] = row
            return out
        return read

    def from_buffers(chosen: np.ndarray) -> np.ndarray:
        column = table[chosen.tolist()]["token_ids"].combine_chunks()
        offsets = column.offsets.to_numpy()
        return padded(column.values.to_numpy(), offsets[:-1].astype(np.int64), np.diff(offsets))

    table = stored.with_format("arrow")
    return {"datasets, lists": from_rows(stored), "datasets, numpy": from_rows(stored.with_format("numpy")),
            "datasets, arrow": from_buffers}
