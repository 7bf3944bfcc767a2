"""Many small jobs in worker processes, one thread each; they end when their parent does."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.system.machine import Machine, has_torch
from pcfg_artifact.system.threads import in_order
from pcfg_artifact.workers.distributed import connect

LONGEST_FOLDER = 75  # of a socket's path, at most 107 bytes, of which multiprocessing names the last 32
PROCESSES_PER_GPU = 2  # at the paper's sizes the inputs of a fit take up to 2.3 GB
AHEAD = 4  # jobs a worker that wait for it, so that making the next ones keeps nobody idle
_context: Any = None  # what all jobs of this worker share; sent once, not with every job


# ---- GPUs -----------------------------------------------------------------------------------------------------------


def n_processes(machine: Machine, most: int) -> int:
    """How many processes of a pool may use this machine, `most` at most.

    A GPU that serves one process only gets one, and the first of these GPUs stays with the process that asks, which
    reads hidden states there: with a single one it does the jobs too.
    """
    if machine.device != "cuda":
        return most
    return min(most, n_gpus(machine) - 1 if machine.is_exclusive else PROCESSES_PER_GPU * n_gpus(machine))


def n_gpus(machine: Machine) -> int:
    import torch  # here, because it takes seconds, and `marginals` needs none of it

    return machine.n_gpus or torch.cuda.device_count()


def device_of(machine: Machine) -> str:
    """The device of this process: the workers of a pool are counted, and go round the GPUs.

    A worker of a cluster has the GPU that whoever started it lets it see first.
    """
    if machine.device != "cuda":
        return machine.device
    if machine.executor is not None or multiprocessing.parent_process() is None:
        return "cuda:0"
    index = int(multiprocessing.current_process().name.rpartition("-")[2])
    return f"cuda:{1 + index % (n_gpus(machine) - 1) if machine.is_exclusive else index % n_gpus(machine)}"


# ---- jobs -----------------------------------------------------------------------------------------------------------


def run_jobs(function: Callable[[Any, Any], Any], jobs: Iterable[Any], context: Any, n_workers: int,
             executor: str | None = None) -> Iterator[Any]:
    """function(context, job) for every job; results come as they are ready.

    Jobs are taken as workers need them, a few ahead, so that what makes them may do work of its own.
    n_workers: processes; 0: this one.
    executor: the address of a cluster (distributed.py) whose workers do the jobs; None: n_workers processes here.
    """
    if executor is None:
        yield from _run_here(function, iter(jobs), context, n_workers) if n_workers else (
            function(context, job) for job in jobs)
        return
    with connect(executor) as cluster:
        shared = cluster.share(context)
        yield from _submit_and_wait(lambda job: cluster.executor.submit(_call_there, function, shared, job), iter(jobs),
                                    AHEAD * cluster.n_workers)


def run_ordered(function: Callable[[Any, Any], Any], jobs: Sequence[Any], context: Any, executor: str) -> Iterator[Any]:
    """function(context, job) for every job by the workers of a cluster; results come in the order of the jobs."""
    with connect(executor) as cluster:
        shared = cluster.share(context)
        yield from in_order(lambda job: cluster.executor.submit(_call_there, function, shared, job), jobs,
                            AHEAD * cluster.n_workers)


def _run_here(function: Callable[[Any, Any], Any], jobs: Iterator[Any], context: Any, n_workers: int) -> Iterator[Any]:
    """Workers come from a fork server, a process without threads of its own: forking one that has used BLAS or CUDA is
    not safe.
    """
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([function.__module__])  # imported once, not by every worker
    others = set(multiprocessing.active_children())
    try:
        pool = ProcessPoolExecutor(n_workers, processes, _begin, (context,))
    except OSError as error:
        raise _cannot_start(error) from error
    try:
        yield from _submit_and_wait(lambda job: pool.submit(_call, function, job), jobs, AHEAD * n_workers)
    except BrokenProcessPool as error:
        raise StageError("a worker process died, most likely for want of memory; what is finished is kept: run the "
                         "same command again with --set machine.n_workers=1") from error
    except BaseException:  # an error of a job, or Ctrl-C: nobody waits for the others, and their files are whole
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submit_and_wait(submit: Callable[[Any], Future[Any]], jobs: Iterator[Any], n_ahead: int) -> Iterator[Any]:
    waiting: set[Future[Any]] = set()
    while True:
        for job in itertools.islice(jobs, n_ahead - len(waiting)):
            try:
                waiting.add(submit(job))
            except OSError as error:
                raise _cannot_start(error) from error
        if not waiting:
            return
        finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in finished:
            yield future.result()


def _cannot_start(error: OSError) -> UsageError:
    return UsageError(f"worker processes cannot be started: {error.strerror or error}; they need a few kB in "
                      f"/dev/shm, which must be writable (docker run --shm-size 64m), and a socket in "
                      f"{tempfile.gettempdir()}, whose path may have {LONGEST_FOLDER} characters: set TMPDIR to a "
                      f"short one that can be written, such as /tmp")


def _begin(context: Any) -> None:
    global _context
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    _take_one_thread()
    _context = context


def _end_with_parent() -> None:
    """The sentinel is a pipe that the stage's process holds open: it is ready when that process is gone, however."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _call(function: Callable[[Any, Any], Any], job: Any) -> Any:
    return function(_context, job)


def _call_there(function: Callable[[Any, Any], Any], context: Any, job: Any) -> Any:
    """In a worker of a cluster, which begins as whoever started it wished."""
    _take_one_thread()
    return function(context, job)


def _take_one_thread() -> None:
    import threadpoolctl

    if has_torch():
        import torch

        torch.set_num_threads(1)
    threadpoolctl.threadpool_limits(1)
