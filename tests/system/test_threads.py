"""The ordered map: order, bound, and an end when the reader stops."""

import threading

import pytest

from pcfg_artifact.system.threads import ordered_map


@pytest.mark.parametrize("n_threads", [1, 3])
def test_results_come_in_the_order_of_the_items(n_threads):
    assert list(ordered_map(lambda x: x * x, range(50), n_threads)) == [x * x for x in range(50)]
    assert list(ordered_map(lambda x: x, [], n_threads)) == []


def test_no_more_than_the_bound_is_started_ahead_of_the_reader():
    started: set[int] = set()
    lock = threading.Lock()

    def work(x: int) -> int:
        with lock:
            started.add(x)
        return x

    results = ordered_map(work, range(1000), n_threads=2, n_ahead=3)
    assert next(results) == 0
    assert len(started) <= 2 * 3 + 1
    results.close()
    assert len(started) <= 2 * 3 + 1


def test_an_error_reaches_the_reader():
    with pytest.raises(ZeroDivisionError):
        list(ordered_map(lambda x: 1 // x, [1, 0, 1], 2))
