"""Many small jobs in worker processes, one thread each; they end when their parent does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any

from pcfg_artifact.errors import StageError, UsageError

LONGEST_FOLDER = 75  # of a socket's path, at most 107 bytes, of which multiprocessing names the last 32
_context: Any = None  # what all jobs of this worker share; sent once, not with every job


def run_jobs(function: Callable[[Any, Any], Any], jobs: Sequence[Any], context: Any, n_workers: int) -> Iterator[Any]:
    """function(context, job) for every job; results come as they are ready.

    Workers come from a fork server, a process without threads of its own: forking a process that has used BLAS or CUDA
    is not safe.
    """
    if not jobs:
        return
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([function.__module__])  # imported once, not by every worker
    others = set(multiprocessing.active_children())
    try:
        pool = ProcessPoolExecutor(min(n_workers, len(jobs)), processes, _begin, (context,))
        waiting = [pool.submit(_call, function, job) for job in jobs]
    except OSError as error:
        raise UsageError(f"worker processes cannot be started: {error.strerror or error}; they need a few kB in "
                         f"/dev/shm, which must be writable (docker run --shm-size 64m), and a socket in "
                         f"{tempfile.gettempdir()}, whose path may have {LONGEST_FOLDER} characters: set TMPDIR to a "
                         f"short one that can be written, such as /tmp") from error
    try:
        for future in as_completed(waiting):
            yield future.result()
    except BrokenProcessPool as error:
        raise StageError("a worker process died, most likely for want of memory; what is finished is kept: run the "
                         "same command again with --set machine.n_workers=1") from error
    except BaseException:  # an error of a job, or Ctrl-C: nobody waits for the others, and their files are whole
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(context: Any) -> None:
    global _context
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    import threadpoolctl
    import torch

    torch.set_num_threads(1)
    threadpoolctl.threadpool_limits(1)
    _context = context


def _end_with_parent() -> None:
    """The sentinel is a pipe that the stage's process holds open: it is ready when that process is gone, however."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _call(function: Callable[[Any, Any], Any], job: Any) -> Any:
    return function(_context, job)
