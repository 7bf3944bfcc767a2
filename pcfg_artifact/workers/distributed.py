"""More than one machine: torchrun's rendezvous for training, the machines that follow, and Dask for small jobs.

Every worker of a pool imports this file, so it imports nothing of training: a follower reads the order of the models
and starts the trainer as a program.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.run.freshness import code_hash
from pcfg_artifact.system import storage
from pcfg_artifact.system.signs_of_life import BEAT_SECONDS, Watch, beating
from pcfg_artifact.workers.launch import run_workers

TORCHRUN = "PCFG_ARTIFACT_TORCHRUN"  # names torchrun's options for several machines
ORDER = "models.json"  # in pretrain/scratch: the models of the run in the order of their training
FINISHED = "training.json"  # in a model's folder, which appears as a whole
LEADER = ".leader.json"  # in a run's folder: signs of life of its first machine
POLL_SECONDS = 1.0
DEADLINE_SECONDS = 300.0  # a shared disk may show a file minutes late


# ---- rendezvous -----------------------------------------------------------------------------------------------------


class Meeting(NamedTuple):
    """Where the machines of a run meet, and the rest of torchrun's options for it."""

    host: str
    port: int
    run: str
    settings: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def parse(cls, options: Sequence[str]) -> Meeting | None:
        """From torchrun's own options; None where they name no place."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--rdzv-id", "--rdzv_id", default="pcfg_artifact")
        parser.add_argument("--rdzv-endpoint", "--rdzv_endpoint", default="")
        parser.add_argument("--rdzv-conf", "--rdzv_conf", default="")
        given, others = parser.parse_known_args(options)
        host, _, port = given.rdzv_endpoint.rpartition(":")
        if not host or not port.isdecimal():
            return None
        return cls(host, int(port), given.rdzv_id, tuple(filter(None, given.rdzv_conf.split(","))), tuple(others))


def torchrun_options(several_machines: Sequence[str], model: str, number: int = 0, follows: bool = False) -> list[str]:
    """torchrun's options for how the processes of one model find each other.

    On one machine they meet at 127.0.0.1: a container without a network cannot resolve its own name.  Over several
    machines every model has an id and a port of its own, because a rendezvous ends with the torchrun that opened it.
    Only the first machine opens one.
    """
    if not several_machines:
        return ["--standalone", "--local-addr=127.0.0.1"]
    meeting = Meeting.parse(several_machines)
    if meeting is None:
        raise UsageError(f"{TORCHRUN} is {' '.join(several_machines)!r}, expected --rdzv-endpoint=HOST:PORT in it "
                         f"(docs/SCALE.md)")
    settings = (*meeting.settings, f"is_host={0 if follows else 1}")
    return [*meeting.others, f"--rdzv-endpoint={meeting.host}:{meeting.port + number}",
            f"--rdzv-id={meeting.run}-{model}", f"--rdzv-conf={','.join(settings)}"]


# ---- the first machine and its followers ----------------------------------------------------------------------------


@contextmanager
def leading(run: Path) -> Iterator[None]:
    """Where several machines train, a sign of life in the run's folder every few seconds, and the last one at the end:
    followers end with their leader."""
    if TORCHRUN not in os.environ:
        yield
        return

    def sign(number: int, has_failed: bool = False) -> None:
        storage.write_json(run / LEADER, {"host": os.uname().nodename, "process": os.getpid(), "beat": number,
                                          "has_failed": has_failed})

    has_failed = True
    try:
        with beating(sign, BEAT_SECONDS):
            yield
        has_failed = False
    finally:
        sign(-1, has_failed)


def check_leader(watch: Watch, deadline: float) -> None:
    """Raise where the leader has ended, or gave no sign for so many seconds."""
    silence = watch.silence()
    if watch.has_changed and '"has_failed": true' in watch.text:
        raise StageError("the first machine failed or was stopped; see what it says, and start the same commands again")
    if silence > deadline:
        raise StageError(f"the first machine gave no sign for {deadline:.0f} s in {watch.path}; start it, or wait "
                         f"longer with --deadline")


def follow(run: Path, say: Callable[[str], None], deadline: float = DEADLINE_SECONDS) -> None:
    """Take part in the training of every unfinished model of `run`, a folder shared with the first machine."""
    meeting = Meeting.parse(os.environ.get(TORCHRUN, "").split())
    if meeting is None:
        raise UsageError(f"--follow joins a run on several machines, and {TORCHRUN} is "
                         f"{os.environ.get(TORCHRUN, '')!r}; expected torchrun's options for them, --rdzv-endpoint "
                         f"among them, the same as on the first (docs/SCALE.md)")
    scratch, watch = run / "pretrain" / "scratch", Watch(run / LEADER)

    def check() -> None:
        check_leader(watch, deadline)

    def wait() -> None:
        check()
        time.sleep(POLL_SECONDS)

    say(f"waiting for the jobs of {scratch}")
    while not (scratch / ORDER).is_file():
        wait()
    for number, name in enumerate(storage.read_json(scratch / ORDER)):
        mark = run / "pretrain" / "models" / name / FINISHED
        # The first machine opens a model's port when the model's turn comes; before that torchrun would only wait.
        while not (is_open := answers(meeting.host, meeting.port + number)) and not mark.is_file():
            wait()
        if is_open:
            say(f"joining {name}")
            join(scratch / name, number, check, mark)
        say(f"{name} is finished")


def answers(host: str, port: int) -> bool:
    """Whether anybody listens there."""
    try:
        with socket.create_connection((host, port), timeout=POLL_SECONDS):
            return True
    except OSError:
        return False


def join(folder: Path, number: int, check: Callable[[], None], mark: Path) -> None:
    """Train one model together with the others, until it is finished or `check` raises."""
    command = ("-m", "pcfg_artifact.workers.trainer", str(folder / "job.json"), f"--number={number}", "--follows",
               f"--parent={os.getpid()}")
    log = folder / f"worker-{os.uname().nodename}-{os.getpid()}.log"
    try:
        run_workers({folder.name: command}, {folder.name: log}, 1, check)
    except StageError:
        if not mark.is_file():
            raise


# ---- Dask -----------------------------------------------------------------------------------------------------------

# Optional (requirements-dask.txt).  Its workers run the same code and see the output folder under the same name.
SCHEME = "dask://"
ADVICE = f"expected {SCHEME}HOST:PORT, the address of a Dask scheduler (docs/SCALE.md)"
CONNECT_SECONDS = 30
FEWEST = 16  # workers that a cluster is taken to have: one that grows with its queue needs to see a queue


class Cluster(NamedTuple):
    """An executor, how many jobs it runs at once, and `share`, which sends a value that all jobs read to each worker
    once."""

    executor: Executor
    n_workers: int
    share: Callable[[Any], Any]


def check_address(address: str) -> None:
    if not address.startswith(SCHEME) or address == SCHEME:
        raise UsageError(f"--executor is {address!r}; {ADVICE}")


@contextmanager
def connect(address: str) -> Iterator[Cluster]:
    """The cluster at an address; jobs that still wait when the block ends are cancelled."""
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
