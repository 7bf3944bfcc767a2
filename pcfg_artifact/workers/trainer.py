"""One process of pre-training: `python -m pcfg_artifact.workers.trainer JOB.json`, alone or under torchrun.

The job file (jobs.py) names the model, its settings and the shards.  With `--processes N` this starts torchrun for N of
itself.  A checkpoint in the job's folder is continued, and a finished model is left alone.  SIGTERM and SIGUSR1 end it
after the step, with a checkpoint.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pcfg_artifact.errors import ArtifactError, StageError
from pcfg_artifact.system import storage
from pcfg_artifact.workers.distributed import FINISHED, TORCHRUN, torchrun_options
from pcfg_artifact.workers.launch import STOPPING

if TYPE_CHECKING:
    from pcfg_artifact.mlm.training import Rank
    from pcfg_artifact.workers.jobs import TrainingJob

PR_SET_PDEATHSIG = 1
FACTS = "facts.json"  # beside the checkpoints: how fast
LAST_SECONDS = 30.0  # that a process which is asked to stop stays for the sake of the others


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("--processes", type=int, help="on this machine; if not given, as the job says")
    parser.add_argument("--number", type=int, default=0, help="of the model in its run, from 0")
    parser.add_argument("--restarts", type=int, default=0, help="how often torchrun starts failed processes again")
    parser.add_argument("--follows", action="store_true", help="join a run that another machine leads")
    parser.add_argument("--parent", type=int, help="end when this process is gone")
    parser.add_argument("--in-group", action="store_true", help="started by torchrun, which says which of how many")
    args = parser.parse_args(arguments)
    end_with_parent(args.parent)
    several_machines = os.environ.get(TORCHRUN, "").split()
    try:
        n_processes = 1 if args.in_group else args.processes or processes_of_job(args.job)
        if not args.in_group and (n_processes > 1 or several_machines or args.restarts):
            options = torchrun_options(several_machines, args.job.parent.name, args.number, args.follows)
            options = [f"--max-restarts={args.restarts}", *options]  # those of the environment come later, and win
            from torch.distributed.run import main as torchrun  # here, because it takes seconds

            torchrun([*options, f"--nproc-per-node={n_processes}", "-m", __spec__.name, str(args.job), "--in-group"])
        else:
            return run_job(args.job, args.in_group)
    except ArtifactError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def processes_of_job(path: Path) -> int:
    from pcfg_artifact.workers.jobs import TrainingJob, processes_of

    job = TrainingJob.read(path)
    return processes_of(job.config, job.device)


def end_with_parent(parent: int | None) -> None:
    """Ask the kernel (Linux) to end this process when its parent dies, however it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        sys.exit("the process that started this one is gone")


class StopRequest:
    """Whether SIGTERM or SIGUSR1 has asked this process to stop; `number` is the signal."""

    def __init__(self) -> None:
        self.number = 0
        for number in STOPPING:
            signal.signal(number, self.note)

    def note(self, number: int, frame: object) -> None:
        if not self.number:
            self.number = number
            # Processes but 0 go on with the others until process 0 has its checkpoint; then nobody answers them.
            leave = threading.Timer(LAST_SECONDS, os._exit, (128 + number,))
            leave.daemon = True
            leave.start()


def run_job(path: Path, in_group: bool = False) -> int:
    """Train the job's model to its end, evaluate it, and write its folder; the exit code."""
    request = StopRequest()
    import torch  # here, so that a process that only starts torchrun does not wait for it

    from pcfg_artifact.mlm.training import Stopped
    from pcfg_artifact.workers import checkpoints
    from pcfg_artifact.workers.jobs import TrainingJob
    from pcfg_artifact.workers.model_training import publish, train_model

    job = TrainingJob.read(path)
    rank = enter_group(job.device, job.config.precision, in_group)
    where = f"{job.model}: process {rank.index} of {rank.world_size} on {os.uname().nodename} ({rank.device})"
    try:
        task = agree(job, path.parent, rank)
        job = task.job
        if task.is_finished:
            leave_group(rank)
            return 0
        stop: Callable[[], bool] | None = (lambda: bool(request.number)) if rank.index == 0 else None
        network, result, facts = train_model(job, path.parent, rank, task.step, stop)
        if rank.index == 0:
            storage.write_json(path.parent / FACTS, facts)
            publish(network, job, path.parent, job.final, result)
            checkpoints.remove_all(path.parent)
        leave_group(rank)
    except Stopped as stopped:
        print(f"{job.model}: {stopped}; the same command continues there", flush=True)
        os._exit(128 + request.number)  # the others wait in a sum that will not come: nobody waits for them
    except torch.OutOfMemoryError as error:
        raise StageError(f"{where}: out of memory with micro-batches of {job.config.batch_tokens} tokens; lower "
                         f"pretrain.batch_tokens or set it to auto, and run the same command again") from error
    except RuntimeError as error:
        if rank.world_size == 1:
            raise
        if request.number:  # process 0 has left with its checkpoint
            return 128 + request.number
        raise StageError(f"{where} lost the others or failed ({type(error).__name__}: "
                         f"{str(error).strip().splitlines()[0]:.300}); where another process says more, that is the "
                         f"cause; what is finished is kept: run the same command again") from error
    return 0


def enter_group(device: str, precision: str, in_group: bool) -> Rank:
    """The rank that torchrun gives this process, or the only one; one thread and one GPU each."""
    import torch
    from torch import distributed

    from pcfg_artifact.mlm.training import Rank, precision_of

    index, world_size = (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])) if in_group else (0, 1)
    torch.set_num_threads(1)
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK'] if in_group else 0}"
        torch.cuda.set_device(device)  # before anything is asked of a GPU
    precision = precision_of(precision, device)
    if world_size > 1:
        # NCCL that knows its GPU connects at once, and not at the first gradient; gloo has none.
        distributed.init_process_group("gloo" if device == "cpu" else "nccl",
                                       device_id=None if device == "cpu" else torch.device(device))
    return Rank(index, world_size, device, precision)


def leave_group(rank: Rank) -> None:
    from torch import distributed

    if rank.world_size > 1:
        distributed.barrier()
        distributed.destroy_process_group()


class SharedTask(NamedTuple):
    """What all processes of a model do: the job, whether it is done already, and the checkpoint that it begins with."""

    job: TrainingJob
    is_finished: bool
    step: int | None


def agree(job: TrainingJob, folder: Path, rank: Rank) -> SharedTask:
    """The task as process 0 sees it: on a shared file system another machine may see the files of a minute ago."""
    import torch
    from torch import distributed

    from pcfg_artifact.workers import checkpoints

    tasks: list[SharedTask | None] = [None]
    if rank.index == 0:
        tasks = [SharedTask(job, (job.final / FINISHED).is_file(), checkpoints.latest_step(folder))]
    if rank.world_size > 1:
        distributed.broadcast_object_list(tasks, src=0, device=torch.device(rank.device))
    assert tasks[0] is not None
    return tasks[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
