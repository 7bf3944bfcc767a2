"""Training one model from its job to its folder: what a process does once it knows its rank."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from transformers.utils import logging

from pcfg_artifact.errors import StageError
from pcfg_artifact.mlm import evaluation, tokenizer, training
from pcfg_artifact.mlm.data import TrainingCorpus
from pcfg_artifact.mlm.estimate import PROCESS_MEGABYTES, Batching, batch_tokens_that_fit, step_operations
from pcfg_artifact.mlm.objectives import config_of, objective_of
from pcfg_artifact.mlm.training import Rank, TrainingState
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.run.stage_folder import Folder
from pcfg_artifact.system import storage
from pcfg_artifact.system.gpus import gpu_of
from pcfg_artifact.system.machine import free_gpu_memory
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.workers import checkpoints
from pcfg_artifact.workers.distributed import FINISHED
from pcfg_artifact.workers.jobs import TrainingJob, hashes
from pcfg_artifact.workers.training_log import ProgressLog, board_of

USABLE = 0.95  # of the memory that a GPU has left


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
