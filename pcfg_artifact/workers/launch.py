"""Worker processes of a stage: so many at once, one thread each, none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pcfg_artifact
from pcfg_artifact.errors import StageError, Terminated

POLL_SECONDS = 0.2
STOPPING = (signal.SIGTERM, signal.SIGUSR1)  # ask workers to save what they have
GRACE_SECONDS = 8.0  # to do so: docker stop gives ten, Slurm thirty
SHOWN_LINES = 15  # of a failed worker's log
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def run_workers(commands: Mapping[str, Sequence[str]], logs: Mapping[str, Path], n_parallel: int,
                look: Callable[[], object]) -> None:
    """Run `python -m ...` commands by name, `n_parallel` at a time, and call `look` while they run and at their end.

    The first that fails ends the others, and its log's last lines are the error; so does an error of `look`.  Started
    from the main thread only: a worker asks the kernel to end it with its parent, and the kernel means the thread.
    """
    waiting = dict(commands)
    running: dict[str, subprocess.Popen] = {}
    begins: dict[str, int] = {}
    with stop_signals():
        try:
            while waiting or running:
                while waiting and len(running) < n_parallel:
                    name = next(iter(waiting))
                    begins[name] = logs[name].stat().st_size if logs[name].is_file() else 0
                    running[name] = start(waiting.pop(name), logs[name])
                time.sleep(POLL_SECONDS)
                for name, process in list(running.items()):
                    if process.poll() is None:
                        continue
                    del running[name]
                    end(process)  # torchrun's own children share its group
                    if process.returncode:
                        raise StageError(failure(name, process.returncode, logs[name], begins[name]))
                look()
        finally:
            end(*running.values())


@contextmanager
def stop_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGUSR1 raise Terminated, so that workers can be ended kindly; the first one counts."""
    def stop(number: int, frame: object) -> None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start(command: Sequence[str], log: Path) -> subprocess.Popen:
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as file:
        return subprocess.Popen([sys.executable, *command], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                env={**os.environ, **ONE_THREAD, "PYTHONPATH": search_path(), "PYTHONSAFEPATH": "1"},
                                start_new_session=True)


def search_path() -> str:
    """Workers find this package wherever they are started, installed or not."""
    here = str(Path(pcfg_artifact.__file__).resolve().parent.parent)
    return os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))


def end(*processes: subprocess.Popen) -> None:
    """End processes and their groups: all kindly first, then for certain."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_SECONDS
        for process in processes:
            with suppress(ProcessLookupError):  # nobody of the group is left
                os.killpg(process.pid, sign)
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0.0))


def failure(name: str, code: int, log: Path, begin: int = 0) -> str:
    """What to tell of a worker that failed; its own words begin at byte `begin` of the log, after earlier runs'."""
    lines = log.read_bytes()[begin:].decode(errors="replace").splitlines()
    for line in lines:
        if line.startswith("error: "):  # of several processes the first that failed says why
            return f"{name}: {line.removeprefix('error: ')}"
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return (f"the process of {name} {how}; what it finished is kept, run the same command again; "
            f"the end of {log}:\n" + "\n".join(lines[-SHOWN_LINES:]))
