"""What a person sees while work is done: the one progress bar (on a terminal it is drawn, elsewhere nothing is), and
lines beside the results."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")


class ProgressBar(Protocol):
    """What a library calls to show how far it is: it passes the items on, one by one."""

    def __call__(self, items: Iterable[Item], *, total: int | None = None, desc: str = "") -> Iterable[Item]: ...


def progress(items: Iterable[Item], *, total: int | None = None, desc: str = "") -> Iterable[Item]:
    """The items, with a bar on standard error where that is a terminal."""
    return tqdm(items, total=total, desc=desc, disable=not sys.stderr.isatty(), leave=False)


def progress_bar(total: int, desc: str) -> tqdm[Any]:
    """The same bar for work that passes no items on: it is told how far it is."""
    return tqdm(total=total, desc=desc, disable=not sys.stderr.isatty(), leave=False)


def no_progress(items: Iterable[Item], *, total: int | None = None, desc: str = "") -> Iterator[Item]:
    """The items and nothing else: the default of libraries."""
    return iter(items)


def duration(seconds: float) -> str:
    """In words, to two digits or three."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def say(line: str) -> None:
    """A line on standard error, where results are not."""
    print(line, file=sys.stderr, flush=True)
