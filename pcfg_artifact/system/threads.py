"""A map over threads that keeps the order and a bound on what waits to be read."""

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
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > n_ahead * n_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # the reader may have stopped half-way
            pool.shutdown(wait=True, cancel_futures=True)
