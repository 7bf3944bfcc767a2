"""Rows of different lengths as one flat array: rectangles of similar rows, laid end to end.

Everything but attention works on single tokens and sees all of them at once, however short a rectangle is; attention
works on one rectangle at a time.  So there are few and large operations, and little padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcfg_artifact.mlm import tokenizer as tokens

LEAST_FILLED = 0.85  # the shortest row of a rectangle, as a share of its longest
SMALLEST = 1 / 16  # of a micro-batch: a rectangle of fewer tokens goes on although its rows differ


@dataclass(frozen=True)
class Batch:
    """One micro-batch: the rows of all rectangles end to end, each padded to the width of its rectangle."""

    input_ids: np.ndarray  # (tokens,) int64, padding included
    position_ids: np.ndarray  # (tokens,) int64 as RoBERTa counts them: from PAD + 1, and PAD for padding
    shapes: tuple[tuple[int, int], ...]  # (rows, width) of each rectangle
    is_token: tuple[np.ndarray | None, ...]  # (rows, width) bool of each rectangle; None without padding
    where: np.ndarray  # (predicted,) int64 into input_ids: where each prediction is read off
    targets: np.ndarray  # (predicted,) int64 token ids
    n_tokens: int  # without padding, with <s> and </s>


def pack(row: np.ndarray, column: np.ndarray, ids: np.ndarray, is_predicted: np.ndarray, truth: np.ndarray,
         sizes: list[int], ahead: int = 0) -> Batch:
    """A micro-batch from its tokens in order of rows, <s> left out, longest row first.

    row, column, ids, is_predicted, truth: (n,) each; column 0 of every row is <s>.  sizes: rows of each rectangle.
    ahead: how many tokens before its own place a prediction is made, at most 1.
    """
    widths = np.bincount(row) + 1
    first = np.cumsum([0, *sizes[:-1]])
    shapes = tuple((size, int(widths[at])) for at, size in zip(first, sizes, strict=True))
    begins = np.cumsum([0, *(np.repeat([width for _, width in shapes], sizes))])
    place = begins[row] + column
    input_ids, position_ids = (np.full(begins[-1], tokens.PAD, np.int64) for _ in range(2))
    input_ids[begins[:-1]], position_ids[begins[:-1]] = tokens.BEGIN, tokens.PAD + 1
    input_ids[place], position_ids[place] = ids, tokens.PAD + 1 + column
    of_rectangle = (widths[at:at + size] for at, size in zip(first, sizes, strict=True))
    is_token = tuple(None if found.min() == found[0] else np.arange(found[0]) < found[:, None]
                     for found in of_rectangle)
    return Batch(input_ids, position_ids, shapes, is_token, place[is_predicted] - ahead, truth[is_predicted],
                 int(widths.sum()))


def cut_by_tokens(rows: np.ndarray, widths: np.ndarray, batch_tokens: int) -> list[tuple[np.ndarray, list[int]]]:
    """Rows, longest first, cut into micro-batches of at most `batch_tokens` padded tokens (always at least one row).

    Each comes with the number of rows of each of its rectangles.
    """
    batches: list[tuple[np.ndarray, list[int]]] = []
    start, filled = 0, 0
    sizes: list[int] = []
    for size in rectangles(widths, batch_tokens):
        at = start + sum(sizes)
        padded = size * int(widths[at])
        if sizes and filled + padded > batch_tokens:
            batches.append((rows[start:at], sizes))
            start, filled, sizes = at, 0, []
        sizes, filled = [*sizes, size], filled + padded
    return [*batches, (rows[start:], sizes)] if sizes else batches


def rectangles(widths: np.ndarray, batch_tokens: int) -> list[int]:
    """How many rows, longest first, make each rectangle: it ends before a row that would be mostly padding."""
    sizes, start = [], 0
    while start < len(widths):
        longest = int(widths[start])
        full = start + max(1, batch_tokens // longest)
        large_enough = start + max(1, int(SMALLEST * batch_tokens) // longest)
        alike = start + int(np.searchsorted(-widths[start:], -LEAST_FILLED * longest, side="right"))
        end = min(full, max(large_enough, alike), len(widths))
        sizes.append(end - start)
        start = end
    return sizes
