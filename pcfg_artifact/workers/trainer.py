"""One process of pre-training: `python -m pcfg_artifact.workers.trainer JOB.json`, alone or under torchrun.

The job file (jobs.py) names the model, its settings and the shards.  With `--processes N` this
starts torchrun for N of itself.  A checkpoint in the job's folder is continued, a finished model is left alone.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pcfg_artifact.errors import ArtifactError, StageError
from pcfg_artifact.run.stage_folder import Folder
from pcfg_artifact.system import storage
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.workers.distributed import FINISHED, TORCHRUN, torchrun_options

if TYPE_CHECKING:
    from pcfg_artifact.mlm.data import TrainingCorpus
    from pcfg_artifact.mlm.training import Rank
    from pcfg_artifact.workers.jobs import TrainingJob

PR_SET_PDEATHSIG = 1
CARD = "README.md"  # in a model's folder, when the stage knows how good the model is
STEP, FACTS = "step.txt", "facts.json"  # beside the checkpoints: how far, how fast
PATIENCE = 90.0  # seconds that another machine's checkpoint may take to be seen here


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("--processes", type=int, help="on this machine; if not given, as the job says")
    parser.add_argument("--number", type=int, default=0, help="of the model in its run, from 0")
    parser.add_argument("--follows", action="store_true", help="join a run that another machine leads")
    parser.add_argument("--parent", type=int, help="end when this process is gone")
    parser.add_argument("--in-group", action="store_true", help="started by torchrun, which says which of how many")
    args = parser.parse_args(arguments)
    end_with_parent(args.parent)
    several_machines = os.environ.get(TORCHRUN, "").split()
    try:
        n_processes = 1 if args.in_group else args.processes or processes_of_job(args.job)
        if not args.in_group and (n_processes > 1 or several_machines):
            options = torchrun_options(several_machines, args.job.parent.name, args.number, args.follows)
            from torch.distributed.run import main as torchrun  # here, because it takes seconds

            torchrun([*options, f"--nproc-per-node={n_processes}", "-m", __spec__.name, str(args.job), "--in-group"])
        else:
            run_job(args.job, args.in_group)
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


def run_job(path: Path, in_group: bool = False) -> None:
    """Train the job's model to its end, evaluate it, and write its folder."""
    import torch  # here, so that a process that only starts torchrun does not wait for it

    from pcfg_artifact.workers import checkpoints
    from pcfg_artifact.workers.jobs import TrainingJob

    job = TrainingJob.read(path)
    rank = enter_group(job.device, job.config.precision, in_group)
    task = agree(job, path.parent, rank)
    job = task.job
    if task.is_finished:
        leave_group(rank)
        return
    try:
        network, result, facts = train_model(job, path.parent, rank, task.step)
    except torch.OutOfMemoryError as error:
        raise StageError(f"{job.model}: out of memory on {rank.device} with micro-batches of "
                         f"{job.config.batch_tokens} tokens; lower pretrain.batch_tokens and run the same command "
                         f"again") from error
    if rank.index == 0:
        storage.write_json(path.parent / FACTS, facts)
        publish(network, job, path.parent, job.final, result)
        checkpoints.remove_all(path.parent)
    leave_group(rank)


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


def train_model(job: TrainingJob, folder: Path, rank: Rank, first_step: int | None
                ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """(network, result, facts) after the last step; checkpoints and the step reached are kept in `folder`.

    first_step: of the checkpoint to continue from; None: from the beginning.
    """
    from pcfg_artifact.mlm import evaluation, training
    from pcfg_artifact.mlm.objectives import objective_of
    from pcfg_artifact.parsing.masks import Masking
    from pcfg_artifact.workers import checkpoints

    cfg, objective = job.config, objective_of(job.model)
    pretraining, validation = read_shard(job.pretraining), read_shard(job.validation)

    corpus, held_out = (objective.corpus(
        shard, masking=Masking(cfg.mask_rate, cfg.corruption), seed=cfg.seed, batch_size=cfg.batch_size,
        batch_tokens=cfg.batch_tokens, n_words=len(job.words), max_length=cfg.max_length, packing=cfg.packing)
        for shard in (pretraining, validation))
    network = first_network(job, pretraining)
    if rank.index == 0:  # again where one is there: nobody has vouched for it yet
        publish(network, job, folder, job.untrained)
    if rank.precision == "float64":
        network.double()
    recipe = training.Recipe(steps=cfg.steps, schedule_steps=cfg.schedule_steps, warmup_steps=cfg.warmup_steps,
                             learning_rate=cfg.learning_rate, weight_decay=cfg.weight_decay, clip=cfg.clip,
                             optimiser=cfg.optimiser, hold_steps=cfg.hold_steps)
    start = None if first_step is None else checkpoints.read(folder, first_step, patience=PATIENCE if rank.index else 0)
    first, began = start.step if start else 0, time.monotonic()

    def report(step: int, loss: float) -> None:
        if rank.index == 0:
            (folder / STEP).write_text(str(step))
            print(f"{job.model} step {step} of {recipe.steps}, loss {loss:.4f}, "
                  f"{(step - first) / (time.monotonic() - began):.2f} steps/s", flush=True)

    def loss_on(corpus: TrainingCorpus, limit: int | None) -> float:
        batches = corpus.in_order("validation", rank.index, rank.world_size, limit)
        return evaluation.mean_loss(network, batches, rank, objective.loss)

    callbacks = training.Callbacks(
        report=report, save=lambda state: checkpoints.write(folder, state), save_every=cfg.save_every,
        validate=lambda _: loss_on(held_out, cfg.n_curve), validate_every=cfg.validate_every,
        keep=lambda step: publish(network, job, folder, checkpoints.path_of(job.kept, step)),
        keep_at=training.kept_steps(cfg.steps, cfg.n_kept))
    reached = training.train(network, corpus, recipe, seed=cfg.seed, loss_of=objective.loss, rank=rank, start=start,
                             callbacks=callbacks)
    seconds = time.monotonic() - began
    result = {"model": job.model, "losses": reached.losses, "validation": reached.validation,
              "training_loss": loss_on(corpus, held_out.n_rows), "validation_loss": loss_on(held_out, None),
              "n_validation": held_out.n_rows, "n_left_out": corpus.n_left_out + held_out.n_left_out}
    n_tokens, n_padded = evaluation.count_tokens(corpus, recipe.steps, sample=50)
    facts = {"tokens_per_second": round((recipe.steps - first) * n_tokens / seconds, 1), "seconds": round(seconds, 1),
             "padding_share": round(1 - n_tokens / n_padded, 4), "world_size": rank.world_size,
             "precision": rank.precision, "resumed_from_step": first, **peak_memory(rank.device)}
    return network, result, facts


def first_network(job: TrainingJob, pretraining: Ragged) -> Any:
    """The model before training, the same in every process."""
    from pcfg_artifact.mlm.objectives import config_of, objective_of

    objective = objective_of(job.model)
    network = objective.build(config_of(job.model, job.config, len(job.words)), job.config.seed)
    if job.config.initialisation == "structured":
        objective.start_structured(network, pretraining, job.config.seed)
    return network


def peak_memory(device: str) -> dict[str, float]:
    import torch

    facts = {"peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)}
    if device != "cpu":
        facts["peak_gpu_memory_mb"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return facts


def read_shard(path: Path) -> Ragged:
    """A memory-mapped shard, named by its folder and stem as the sample stage writes it."""
    return Folder(path.parent).ragged(path.name, memory_map=True)


def publish(network: Any, job: TrainingJob, folder: Path, final: Path, result: dict[str, Any] | None = None) -> None:
    """Write a model's folder with its tokenizer beside the checkpoints, and give it its final name in one step."""
    from transformers.utils import logging

    from pcfg_artifact.mlm import tokenizer

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


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a model's folder that save_pretrained wrote; its card is written later."""
    return {path.name: storage.sha256(path) for path in sorted(folder.iterdir())
            if path.is_file() and path.name not in (FINISHED, CARD) and not path.name.startswith(storage.TEMPORARY)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
