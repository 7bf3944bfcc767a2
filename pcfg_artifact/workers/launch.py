"""Worker processes of a stage: so many at once, one thread each, none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pcfg_artifact
from pcfg_artifact.errors import StageError

POLL_SECONDS = 0.2
GRACE_SECONDS = 5.0
SHOWN_LINES = 15  # of a failed worker's log
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def run_workers(commands: Mapping[str, Sequence[str]], logs: Mapping[str, Path], n_parallel: int,
                steps_done: Callable[[], int]) -> Iterator[int]:
    """Run `python -m ...` commands by name, `n_parallel` at a time; yields once per step of their common progress.

    The first that fails ends the others, and its log's last lines are the error.  Started from the main thread only:
    a worker asks the kernel to end it with its parent, and the kernel means the thread.
    """
    waiting, yielded = dict(commands), 0
    running: dict[str, subprocess.Popen] = {}
    begins: dict[str, int] = {}
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
            for _ in range(steps_done() - yielded):
                yielded += 1
                yield yielded
    finally:
        for process in running.values():
            end(process)


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


def end(process: subprocess.Popen) -> None:
    """End a process and its group: kindly first, then for certain."""
    for sign, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, sign)
            process.wait(seconds)
        except ProcessLookupError:
            return  # nobody of the group is left
        except subprocess.TimeoutExpired:
            continue


def failure(name: str, code: int, log: Path, begin: int = 0) -> str:
    """What to tell of a worker that failed; its own words begin at byte `begin` of the log, after earlier runs'."""
    lines = log.read_bytes()[begin:].decode(errors="replace").splitlines()
    for line in reversed(lines):
        if line.startswith("error: "):  # an error of ours says all
            return f"{name}: {line.removeprefix('error: ')}"
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return (f"the process that trains {name} {how}; what it finished is kept, run the same command again; "
            f"the end of {log}:\n" + "\n".join(lines[-SHOWN_LINES:]))
