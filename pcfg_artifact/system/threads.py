"""Results of threads or other workers in the order of their items, with a bound on what waits to be read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(work: Callable[[Item], Result], items: Iterable[Item], n_threads: int, n_ahead: int = 4
                ) -> Iterator[Result]:
    """work(item) for each item, in order; at most n_ahead results per thread wait, so that a slow reader bounds memory.

    Items are computed one by one, so the number of threads changes nothing but time; one thread is the caller's own.
    """
    if n_threads == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            yield from in_order(lambda item: pool.submit(work, item), items, n_ahead * n_threads)
        finally:  # the reader may have stopped half-way
            pool.shutdown(wait=True, cancel_futures=True)


def in_order(submit: Callable[[Item], Future[Result]], items: Iterable[Item], n_ahead: int) -> Iterator[Result]:
    """The results of submit(item) in the order of the items, of which at most n_ahead are given away beforehand."""
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) > n_ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
