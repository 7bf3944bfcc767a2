"""The other machines of a run that trains over several: each joins the run's models one after another, to the last."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.workers.jobs import TrainingJob, processes_of
from pcfg_artifact.workers.launch import end, failure, start
from pcfg_artifact.workers.rendezvous import TORCHRUN, Meeting
from pcfg_artifact.workers.trainer import FINISHED

POLL_SECONDS = 1.0


def follow(run: Path, say: Callable[[str], None]) -> None:
    """Take part in the training of every model of `run` that is not finished; `run` is shared with its first machine.

    Which models there are, and in which order, is in the job files that the first machine writes.
    """
    meeting = Meeting.parse(os.environ.get(TORCHRUN, "").split())
    if meeting is None:
        raise UsageError(f"--follow joins a run on several machines, and {TORCHRUN} is "
                         f"{os.environ.get(TORCHRUN, '')!r}; expected torchrun's options for them, --rdzv-endpoint "
                         f"among them, the same as on the first (docs/CLUSTER.md)")
    scratch = run / "pretrain" / "scratch"
    say(f"waiting for the jobs of {scratch}")
    for number, name in enumerate(wait_for_jobs(scratch)):
        mark = run / "pretrain" / "models" / name / FINISHED
        # The first machine opens the meeting of a model when its turn comes: nobody waits inside torchrun before.
        while not (is_open := answers(meeting.host, meeting.port + number)) and not mark.is_file():
            time.sleep(POLL_SECONDS)
        if is_open:
            say(f"joining {name}")
            join(scratch / name, number)
        say(f"{name} is finished")


def wait_for_jobs(scratch: Path) -> tuple[str, ...]:
    """The models of the run in their order, once every one of them has a job."""
    while True:
        for path in sorted(scratch.glob("*/job.json")):
            models = TrainingJob.read(path).config.all_models
            if all((scratch / name / "job.json").is_file() for name in models):
                return tuple(models)
        time.sleep(POLL_SECONDS)


def answers(host: str, port: int) -> bool:
    """Whether anybody listens there."""
    try:
        with socket.create_connection((host, port), timeout=POLL_SECONDS):
            return True
    except OSError:
        return False


def join(folder: Path, number: int) -> None:
    """Train one model together with the others, until it is finished."""
    job = TrainingJob.read(folder / "job.json")
    log = folder / f"worker-{os.uname().nodename}-{os.getpid()}.log"
    process = start(("-m", "pcfg_artifact.workers.trainer", str(folder / "job.json"), f"--number={number}",
                     "--follows", f"--processes={processes_of(job.config, job.device)}", f"--parent={os.getpid()}"),
                    log)
    try:
        process.wait()
    finally:
        end(process)
    if process.returncode:
        raise StageError(failure(job.model, process.returncode, log))
