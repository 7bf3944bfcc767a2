"""The other machines of a run that trains over several: each joins the run's models one after another, to the last."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.workers.jobs import TrainingJob, processes_of
from pcfg_artifact.workers.launch import end, failure, start
from pcfg_artifact.workers.trainer import FINISHED, TORCHRUN

POLL_SECONDS = 1.0
GRACE_SECONDS = 300.0  # for a process to end by itself once its model is finished
# A machine may be here long before the first one begins to train.
LONG_WAIT = f"--rdzv-conf=join_timeout={7 * 24 * 3600}"


def follow(run: Path, say: Callable[[str], None]) -> None:
    """Take part in the training of every model of `run` that is not finished; `run` is shared with its first machine.

    Which models there are, and in which order, is in the job files that the first machine writes.
    """
    options = os.environ.get(TORCHRUN, "")
    if "--nnodes" not in options:
        raise UsageError(f"--follow joins a run on several machines, and {TORCHRUN} is {options!r}; expected "
                         f"torchrun's options for them, the same as on the first (docs/CLUSTER.md)")
    if "--rdzv-conf" not in options and "--rdzv_conf" not in options:
        os.environ[TORCHRUN] = f"{options} {LONG_WAIT}"
    scratch = run / "pretrain" / "scratch"
    say(f"waiting for the job files of {scratch}")
    job = wait_for_job(scratch)
    for name in job.config.models:
        mark = run / "pretrain" / "models" / name / FINISHED
        while not mark.is_file():
            say(f"joining {name}")
            join(TrainingJob.read(scratch / name / "job.json"), scratch / name, mark)
            say(f"{name} is finished")


def wait_for_job(scratch: Path) -> TrainingJob:
    """Any job of the run, once every model of it has one."""
    while True:
        for path in sorted(scratch.glob("*/job.json")):
            job = TrainingJob.read(path)
            if all((scratch / name / "job.json").is_file() for name in job.config.models):
                return job
        time.sleep(POLL_SECONDS)


def join(job: TrainingJob, folder: Path, mark: Path) -> None:
    """Train one model together with the others, until it is finished."""
    log = folder / f"worker-{os.uname().nodename}-{os.getpid()}.log"
    begin = log.stat().st_size if log.is_file() else 0
    process = start(("-m", "pcfg_artifact.workers.trainer", str(folder / "job.json"),
                     f"--processes={processes_of(job.config, job.device)}", f"--parent={os.getpid()}"), log)
    try:
        while process.poll() is None and not mark.is_file():
            time.sleep(POLL_SECONDS)
        if process.returncode is None:  # finished; one that came too late for it waits for nobody
            process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return
    finally:
        end(process)
    if process.returncode and not mark.is_file():
        raise StageError(failure(job.model, process.returncode, log, begin))
