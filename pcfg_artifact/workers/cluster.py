"""Workers of somebody else's cluster: jobs go to a Dask scheduler, whoever started it and wherever its workers are.

Dask is optional (requirements-dask.txt).  Its workers run the same code, and see the output folder under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager
from typing import Any, NamedTuple

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.run.freshness import code_hash

SCHEME = "dask://"
ADVICE = f"expected {SCHEME}HOST:PORT, the address of a Dask scheduler (docs/CLUSTER.md)"
CONNECT_SECONDS = 30
FEWEST = 16  # workers that a cluster is taken to have: one that grows with the queue needs to see a queue


class Cluster(NamedTuple):
    """An executor of concurrent.futures, how many jobs it runs at once, and what a job takes for a value that all
    jobs read: share(value) is sent to a worker once, and again to one that takes the place of another."""

    executor: Executor
    n_workers: int
    share: Callable[[Any], Any]


def check_address(address: str) -> None:
    if not address.startswith(SCHEME) or address == SCHEME:
        raise UsageError(f"--executor is {address!r}; {ADVICE}")


@contextmanager
def connect(address: str) -> Iterator[Cluster]:
    """The cluster at an address, while this lasts; what is still queued at the end is cancelled."""
    check_address(address)
    try:
        from distributed import Client, KilledWorker
    except ImportError as error:
        raise UsageError("--executor needs Dask, which is not installed here; install it with "
                         "`.venv/bin/pip install -r requirements-dask.txt`, on the workers too") from error
    try:
        client = Client(f"tcp://{address.removeprefix(SCHEME)}", timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}; {ADVICE}") from error
    try:
        with client:
            refuse_other_code(client.run(code_hash))
            n_workers = max(FEWEST, sum(client.nthreads().values()))
            yield Cluster(client.get_executor(pure=False), n_workers,
                          lambda value: client.submit(itself, value, pure=False))
    except KilledWorker as error:
        raise StageError(f"a job ended every worker of {address} that tried it, most likely for want of memory "
                         f"({error}); what is finished is kept: give workers more, and run the same command "
                         f"again") from error
    except CancelledError as error:
        raise StageError(f"the scheduler at {address} lost its jobs; what is finished is kept: run the same command "
                         f"again") from error


def refuse_other_code(found: dict[str, str]) -> None:
    """found: worker -> hash."""
    wrong = sorted(worker for worker, its_code in found.items() if its_code != code_hash())
    if wrong:
        raise UsageError(f"{len(wrong)} of {len(found)} Dask workers ({wrong[0]}, ..) run another version of this "
                         f"package; start them in this folder, or in an image of it")


def itself(value: Any) -> Any:
    """As a task: unlike data that is only sent, Dask can make its result again where a worker is lost."""
    return value
