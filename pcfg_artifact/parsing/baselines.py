"""Trees that know nothing but the length of the sentence: spans (i, j) of a binary tree, parents first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Span = tuple[int, int]


def right_branching(length: int) -> list[Span]:
    return _tree(length, lambda i, j: i + 1)


def left_branching(length: int) -> list[Span]:
    return _tree(length, lambda i, j: j - 1)


def balanced(length: int) -> list[Span]:
    """Every span is halved; of an odd number of words the left half has one more."""
    return _tree(length, lambda i, j: (i + j + 1) // 2)


def random_branching(length: int, rng: np.random.Generator) -> list[Span]:
    """Every span is split at a random fencepost."""
    return _tree(length, lambda i, j: int(rng.integers(i + 1, j)))


# Every trivial parser by name, in the order of tables; those that draw nothing ignore the generator.
BASELINES: dict[str, Callable[[int, np.random.Generator], list[Span]]] = {
    "right": lambda length, rng: right_branching(length), "left": lambda length, rng: left_branching(length),
    "balanced": lambda length, rng: balanced(length), "random": random_branching}


def _tree(length: int, split: Callable[[int, int], int]) -> list[Span]:
    spans: list[Span] = []
    todo = [(0, length)] if length else []
    while todo:
        i, j = todo.pop()
        spans.append((i, j))
        if j - i > 1:
            k = split(i, j)
            todo += [(k, j), (i, k)]
    return spans
