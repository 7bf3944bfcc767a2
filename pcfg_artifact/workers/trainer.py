"""One process of pre-training: `python -m pcfg_artifact.workers.trainer JOB.json`, alone or under torchrun.

The job file (jobs.py) names the model, its settings and the shards.  With `--processes N` this starts torchrun for N of
itself.  A checkpoint in the job's folder is continued, and a finished model is left alone.  SIGTERM and SIGUSR1 end it
after the step, with a checkpoint.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import distributed
from transformers.utils import logging

from pcfg_artifact.errors import ArtifactError, StageError
from pcfg_artifact.mlm import evaluation, tokenizer, training
from pcfg_artifact.mlm.data import TrainingCorpus
from pcfg_artifact.mlm.estimate import PROCESS_MEGABYTES, Batching, batch_tokens_that_fit, step_operations
from pcfg_artifact.mlm.objectives import config_of, objective_of
from pcfg_artifact.mlm.training import Rank, Stopped, TrainingState, precision_of
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.run.stage_folder import Folder
from pcfg_artifact.system import storage
from pcfg_artifact.system.gpus import gpu_of
from pcfg_artifact.system.machine import free_gpu_memory
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.workers import checkpoints
from pcfg_artifact.workers.distributed import FINISHED, TORCHRUN, torchrun_options
from pcfg_artifact.workers.jobs import TrainingJob, hashes, processes_of
from pcfg_artifact.workers.launch import STOPPING
from pcfg_artifact.workers.training_log import ProgressLog, board_of

PR_SET_PDEATHSIG = 1
FACTS = "facts.json"  # beside the checkpoints: how fast
LAST_SECONDS = 30.0  # that a process which is asked to stop stays for the sake of the others
USABLE = 0.95  # of the memory that a GPU has left


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
        if not args.in_group:
            job = TrainingJob.read(args.job)
            n_processes = args.processes or processes_of(job.config, job.device)
            if n_processes > 1 or several_machines or args.restarts:
                from torch.distributed.run import main as torchrun  # here, because it takes seconds

                # options of the environment come later, and win
                torchrun([f"--max-restarts={args.restarts}",
                          *torchrun_options(several_machines, args.job.parent.name, args.number, args.follows),
                          f"--nproc-per-node={n_processes}", "-m", __spec__.name, str(args.job), "--in-group"])
                return 0
        return run_job(args.job, args.in_group)
    except ArtifactError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code


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
    tasks: list[SharedTask | None] = [None]
    if rank.index == 0:
        tasks = [SharedTask(job, (job.final / FINISHED).is_file(), checkpoints.latest_step(folder))]
    if rank.world_size > 1:
        distributed.broadcast_object_list(tasks, src=0, device=torch.device(rank.device))
    assert tasks[0] is not None
    return tasks[0]


# ---- one model, from its job to its folder --------------------------------------------------------------------------


def train_model(job: TrainingJob, folder: Path, rank: Rank, first_step: int | None,
                stop: Callable[[], bool] | None = None) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """(network, result, facts) after the last step; checkpoints are kept in `folder`.

    first_step: of the checkpoint to continue from; None: from the beginning.  stop: asked after every step.
    """
    cfg, objective = job.config, objective_of(job.model)
    pretraining, validation = read_shard(job.pretraining), read_shard(job.validation)
    batch_tokens = micro_batch(job, rank)
    masking = Masking(cfg.mask_rate, cfg.corruption, cfg.mask_any_token)
    corpus, held_out = (objective.corpus(
        shard, masking=masking, seed=cfg.seed, batch_size=cfg.batch_size,
        batch_tokens=batch_tokens, n_words=len(job.words), max_length=cfg.max_length, packing=cfg.packing)
        for shard in (pretraining, validation))
    network = objective.build(config_of(job.model, cfg, len(job.words)), cfg.seed)  # the same in every process
    if rank.index == 0:  # again where one is there: nobody has vouched for it yet
        publish(network, job, folder, job.untrained)
    if rank.precision == "float64":
        network.double()
    recipe = training.Recipe(steps=cfg.steps, schedule_steps=cfg.schedule_steps, warmup_steps=cfg.warmup_steps,
                             learning_rate=cfg.learning_rate, weight_decay=cfg.weight_decay, clip=cfg.clip,
                             optimiser=cfg.optimiser, hold_steps=cfg.hold_steps, decay_all=cfg.decay_all)
    start = None
    if first_step is not None:
        start = shared_state(checkpoints.read(folder, first_step) if rank.index == 0 else None, rank)
    first, began = start.step if start else 0, time.monotonic()

    def loss_on(corpus: TrainingCorpus, limit: int | None) -> float:
        batches = corpus.in_order("validation", rank.index, rank.world_size, limit)
        return evaluation.mean_loss(network, batches, rank, objective.loss)

    with checkpoints.Writer(folder) as writer:
        callbacks = training.Callbacks(
            report=progress_log(job, folder, rank, corpus, network, first) if rank.index == 0 else None,
            save=writer.save, save_every=cfg.save_every, stop=stop,
            validate=lambda _: loss_on(held_out, cfg.n_curve), validate_every=cfg.validate_every,
            keep=lambda step: publish(network, job, folder, checkpoints.path_of(job.kept, step)),
            keep_at=training.kept_steps(cfg.steps, cfg.n_kept))
        reached = training.train(network, corpus, recipe, seed=cfg.seed, loss_of=objective.loss, rank=rank,
                                 start=start, callbacks=callbacks)
    seconds = time.monotonic() - began
    result = {"model": job.model, "losses": reached.losses, "validation": reached.validation,
              "training_loss": loss_on(corpus, held_out.n_rows), "validation_loss": loss_on(held_out, None),
              "n_validation": held_out.n_rows, "n_left_out": corpus.n_left_out + held_out.n_left_out}
    n_tokens, n_padded = evaluation.count_tokens(corpus, recipe.steps, sample=50)
    facts = {"tokens_per_second": round((recipe.steps - first) * n_tokens / seconds, 1), "seconds": round(seconds, 1),
             "padding_share": round(1 - n_tokens / n_padded, 4), "world_size": rank.world_size,
             "precision": rank.precision, "batch_tokens": batch_tokens, "resumed_from_step": first,
             **peak_memory(rank.device)}
    return network, result, facts


def micro_batch(job: TrainingJob, rank: Rank) -> int:
    """Tokens of a micro-batch: as set, or with `auto` as many as the GPU with the least free memory holds."""
    cfg = job.config
    if cfg.batch_tokens != "auto":
        return cfg.batch_tokens
    if rank.device == "cpu":
        return cfg.read_tokens
    shape = config_of(job.model, cfg, len(job.words))
    batching = Batching(cfg.batch_size, 0, cfg.packing or cfg.max_length + 2, cfg.mask_rate, rank.world_size)
    free = USABLE * free_gpu_memory(rank.device) / 1e6 + PROCESS_MEGABYTES["cuda"]  # the process has begun
    found = torch.tensor(batch_tokens_that_fit(shape, batching, free), device=rank.device)
    if rank.world_size > 1:
        distributed.all_reduce(found, distributed.ReduceOp.MIN)
    if not found:
        raise StageError(f"{job.model}: {free / 1e3:.1f} GB of {rank.device} do not hold one row of a batch; leave the "
                         f"model out, or use a larger GPU")
    return int(found)


def shared_state(start: TrainingState | None, rank: Rank) -> TrainingState:
    """The state that process 0 read from disk, in every process: on a shared disk the others may see older files."""
    if rank.world_size == 1:
        assert start is not None
        return start
    device = torch.device(rank.device)
    about: list[Any] = [None]
    if start is not None:
        about = [(start.step, start.losses, start.validation, start.loss_scale,
                  {name: (tensor.shape, tensor.dtype) for name, tensor in start.tensors.items()})]
    distributed.broadcast_object_list(about, src=0, device=device)
    step, losses, validation, loss_scale, shapes = about[0]
    tensors = {}
    for name, (shape, dtype) in shapes.items():
        tensor = torch.empty(shape, dtype=dtype, device=device) if start is None else start.tensors[name].to(device)
        distributed.broadcast(tensor, src=0)
        tensors[name] = tensor.cpu()
    return TrainingState(step, losses, validation, tensors, loss_scale)


def progress_log(job: TrainingJob, folder: Path, rank: Rank, corpus: TrainingCorpus, network: Any, first: int
                 ) -> ProgressLog:
    batching = Batching(corpus.batch_size, corpus.batch_tokens, corpus.tokens_of_row, job.config.mask_rate)
    peak = None
    if rank.device != "cpu" and rank.precision in training.HALF:
        peak = rank.world_size * gpu_of(torch.cuda.get_device_name(rank.device)).half_tflops * 1e12
    return ProgressLog(folder.parent.parent, job.model, job.config.steps, first,
                       corpus.batch_size * corpus.tokens_of_row, step_operations(network.config, batching), peak,
                       lambda: list(peak_memory(rank.device).values())[-1],  # the GPU's, where there is one
                       board_of(job.log, folder / "tensorboard"))


def peak_memory(device: str) -> dict[str, float]:
    facts = {"peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)}
    if device != "cpu":
        facts["peak_gpu_memory_mb"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return facts


def read_shard(path: Path) -> Ragged:
    """A memory-mapped shard, named by its folder and stem as the sample stage writes it."""
    return Folder(path.parent).ragged(path.name, memory_map=True)


def publish(network: Any, job: TrainingJob, folder: Path, final: Path, result: dict[str, Any] | None = None) -> None:
    """Write a model's folder with its tokenizer beside the checkpoints, and give it its final name in one step."""
    logging.disable_progress_bar()
    unfinished = folder / f"{storage.TEMPORARY}{final.parent.name}"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        storage.announce("write", unfinished)
        network.save_pretrained(unfinished)
        tokenizer.build_tokenizer(job.words, job.config.max_length).save_pretrained(unfinished)
        storage.sync_folder(unfinished)
        if result is not None:
            storage.write_sealed_json(unfinished / FINISHED, {
                **result, "sha256": hashes(unfinished), "untrained_sha256": hashes(job.untrained),
                "kept_sha256": {kept.name: hashes(kept) for kept in sorted(job.kept.glob("step-*"))}})
        final.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(final, ignore_errors=True)  # a folder that nobody finished, or that is made again
        storage.rename(unfinished, final)
    except OSError as error:
        raise StageError(f"cannot write {final}: {error.strerror or error}; the last checkpoint is intact: "
                         f"free space and run the same command again") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
