"""The training loop: one page from batch to weights, the same for one CPU process and for many GPUs.

The loss of a step is the sum over all predictions of the global batch divided by their number, over processes and
micro-batches.  What is predicted, and from what, is the objective's (objectives.py): the corpus and the loss that it
gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from pcfg_artifact.errors import StageError
from pcfg_artifact.mlm.data import Step, TrainingCorpus
from pcfg_artifact.mlm.forward import MaskedLoss, to_device
from pcfg_artifact.mlm.model import LanguageModel
from pcfg_artifact.mlm.optimisers import optimisers_of, put_back, state_names_of, state_of
from pcfg_artifact.system.random_streams import derive_seed

READ_EVERY = 50  # steps between looks at the loss: each look makes the CPU wait for the GPU
KEPT_RANGE = 500  # the last step over the first that is kept
HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Recipe:
    """How weights are updated; training stops at `steps`, the schedule goes on to reach zero at `schedule_steps`."""

    steps: int
    schedule_steps: int
    warmup_steps: int
    learning_rate: float
    weight_decay: float
    clip: float | None  # of the gradient's length; None: not clipped
    optimiser: str = "adamw"  # or "muon" (optimisers.py)
    hold_steps: int = 0  # at the peak, after warming up
    decay_all: bool = False  # biases and layer norms decay too
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-6

    def rate(self, step: int) -> float:
        """Learning rate of the update number `step`, from 0: linear up to the peak, held, linear down to zero."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        falls = self.warmup_steps + self.hold_steps
        return self.learning_rate * min(1.0, (self.schedule_steps - step) / (self.schedule_steps - falls))


@dataclass(frozen=True)
class Rank:
    """Where a process runs: its rank, how many there are, its device, and the precision of its arithmetic."""

    index: int = 0
    world_size: int = 1
    device: str = "cpu"
    precision: str = "float32"  # float32, bfloat16, float16; float64 for comparisons


@dataclass
class TrainingState:
    """Everything that training is after `step` updates: a checkpoint is exactly this."""

    step: int
    losses: list[float]  # nats per prediction, one per step
    validation: list[tuple[int, float]]  # (updates done, nats per prediction)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)  # weights and the optimisers' state, by name
    loss_scale: dict[str, float] = field(default_factory=dict)  # float16 only


class StepReport(NamedTuple):
    """What is said of a step whose loss was read."""

    step: int
    loss: float
    rate: float
    gradient_norm: float | None  # before it is clipped
    loss_scale: float | None  # float16 only


class Stopped(Exception):
    """Training was asked to stop, and saved what it had."""


@dataclass(frozen=True)
class Callbacks:
    """Functions that training calls: every process reports and validates, process 0 alone saves and keeps."""

    report: Callable[[StepReport], None] | None = None  # whenever losses are read
    validate: Callable[[LanguageModel], float] | None = None  # also at the end
    validate_every: int = 0
    save: Callable[[TrainingState], None] | None = None  # also at the end
    save_every: int = 0
    stop: Callable[[], bool] | None = None  # asked after every step: save and raise Stopped
    keep: Callable[[int], None] | None = None  # before the step is saved: what a run was resumed from has been kept
    keep_at: Collection[int] = ()


def train(model: LanguageModel, corpus: TrainingCorpus, recipe: Recipe, *, seed: int,
          loss_of: Callable[[Any], torch.nn.Module] = MaskedLoss, rank: Rank = Rank(),  # noqa: B008
          start: TrainingState | None = None, callbacks: Callbacks = Callbacks()) -> TrainingState:  # noqa: B008
    """Train `model` in place and return its curve; from `start`, it ends with the numbers of an unbroken run."""
    if rank.world_size > corpus.batch_size:  # one without a row would never join the others to sum gradients
        raise StageError(f"{rank.world_size} processes share batches of {corpus.batch_size} rows, expected at most "
                         f"one process a row; lower pretrain.processes or machine.n_gpus, or raise pretrain.batch_size")
    device = torch.device(rank.device)
    torch.nn.Module.to(model, device)
    optimisers = optimisers_of(model, recipe.optimiser, recipe.learning_rate, recipe.weight_decay, recipe.betas,
                               recipe.epsilon, recipe.decay_all)
    scaler = torch.amp.GradScaler(device.type, enabled=rank.precision == "float16")
    progress = TrainingState(0, [], [])
    if start is not None:
        progress = TrainingState(start.step, list(start.losses), list(start.validation))
        restore(model, optimisers, scaler, start)
    module: Any = loss_of(model)
    if rank.world_size > 1:
        module = DistributedDataParallel(module, gradient_as_bucket_view=True, broadcast_buffers=False)
    autocast = torch.autocast(device.type, HALF[rank.precision]) if rank.precision in HALF else nullcontext()

    # Not torch.manual_seed: without a GPU it keeps a record of every call for the day when CUDA starts.
    generator = torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index or 0]
    parameters = list(model.parameters())
    unread: list[torch.Tensor] = []
    model.train()
    for step, share in prefetched(corpus, progress.step, recipe.steps, rank):
        validates, saves, reads = (
            (step + 1) % every == 0 or step + 1 == recipe.steps
            for every in (callbacks.validate_every or math.inf, callbacks.save_every or math.inf, READ_EVERY))
        # Dropout's random numbers depend on (seed, step, rank) alone, so a resumed run draws the same ones.
        generator.manual_seed(derive_seed(seed, "dropout", step, rank.index) % 2**63)
        total = add_gradients(module, share, scaler, autocast, rank)
        norm = update(optimisers, scaler, recipe, recipe.rate(step), parameters, validates or saves or reads)

        progress.step = step + 1
        unread.append(total)
        stops = callbacks.stop is not None and callbacks.stop()
        if validates or saves or reads or stops:
            losses, gradient_norm = read_losses(unread, norm, recipe)
            progress.losses += losses
            if callbacks.report:
                callbacks.report(StepReport(progress.step, losses[-1], recipe.rate(step), gradient_norm,
                                            scaler.get_scale() if scaler.is_enabled() else None))
        if validates and callbacks.validate:
            progress.validation.append((progress.step, callbacks.validate(model)))
            model.train()
        if progress.step in callbacks.keep_at and callbacks.keep and rank.index == 0:
            callbacks.keep(progress.step)
        if (saves or stops) and callbacks.save and rank.index == 0:
            callbacks.save(capture(model, optimisers, scaler, progress))
        if stops:
            raise Stopped(f"training stopped after step {progress.step} of {recipe.steps}")
    return progress


def add_gradients(module: Any, share: Step, scaler: torch.amp.GradScaler, autocast: AbstractContextManager[Any],
                  rank: Rank) -> torch.Tensor:
    """Add the gradient of a process's share to its parameters, summed over processes; the loss of the global batch."""
    device = torch.device(rank.device)
    scale: float | torch.Tensor = 1.0 / max(share.n_predicted, 1)
    if rank.world_size > 1:  # nobody but its process has made a share; a sum that stays on the device is no wait
        n_predicted = torch.full((), share.n_predicted, dtype=torch.float64, device=device)
        distributed.all_reduce(n_predicted)
        scale = n_predicted.clamp(min=1).reciprocal()
    total = torch.zeros((), dtype=torch.float64, device=device)
    for k, batch in enumerate(share.batches):
        is_last = k == len(share.batches) - 1
        with nullcontext() if is_last or rank.world_size == 1 else module.no_sync():
            with autocast:
                loss = module(*to_device(batch, device)) * scale
            total += loss.detach()
            scaler.scale(loss * rank.world_size).backward()  # DDP averages over processes; we want the sum
    if rank.world_size > 1:
        distributed.all_reduce(total)
    return total


def update(optimisers: list[torch.optim.Optimizer], scaler: torch.amp.GradScaler, recipe: Recipe, rate: float,
           parameters: list[torch.nn.Parameter], measures: bool = False) -> torch.Tensor | None:
    """One step along the gradients, which are then forgotten; returns their length where it is known or `measures`."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = rate
        scaler.unscale_(optimiser)
    norm = None
    if recipe.clip is not None:
        norm = torch.nn.utils.clip_grad_norm_(parameters, recipe.clip)
    elif measures:
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    for optimiser in optimisers:
        scaler.step(optimiser)
        optimiser.zero_grad(set_to_none=True)
    scaler.update()
    return norm


def kept_steps(steps: int, n: int) -> list[int]:
    """At most n steps before the last, each about the same factor after the one before."""
    found = np.geomspace(max(1.0, steps / KEPT_RANGE), steps, n + 1)[:-1].round().astype(int)
    return sorted({int(step) for step in found if step < steps})


def read_losses(unread: list[torch.Tensor], norm: torch.Tensor | None, recipe: Recipe
                ) -> tuple[list[float], float | None]:
    """Empty `unread` into numbers, with a norm in the same wait; a loss that is not a number ends training before
    anything is saved."""
    losses = torch.stack([*unread, *([] if norm is None else [norm.double()])]).tolist()
    last_norm = None if norm is None else losses.pop()
    unread.clear()
    if not all(map(math.isfinite, losses)):
        raise StageError(f"the loss became {losses[-1]}; lower pretrain.learning_rate "
                         f"(now {recipe.learning_rate:g}), or set pretrain.precision=float32")
    return losses, last_norm


def prefetched(corpus: TrainingCorpus, first: int, last: int, rank: Rank) -> Iterator[tuple[int, Step]]:
    """(step, share) for the steps first .. last - 1; the next one is prepared while the device works."""
    with ThreadPoolExecutor(1) as pool:
        waiting = [pool.submit(corpus.step, step, rank.index, rank.world_size)
                   for step in range(first, min(first + 2, last))]
        for step in range(first, last):
            share = waiting.pop(0).result()
            if step + 2 < last:
                waiting.append(pool.submit(corpus.step, step + 2, rank.index, rank.world_size))
            yield step, share


def capture(model: LanguageModel, optimisers: list[torch.optim.Optimizer], scaler: torch.amp.GradScaler,
            progress: TrainingState) -> TrainingState:
    """A copy on the CPU of all that `restore` needs; tied weights appear once."""
    tensors, state = {}, state_of(optimisers)
    for name, parameter in model.named_parameters():
        tensors[f"weight.{name}"] = parameter.detach().cpu().clone()
        for key, value in state[parameter].items():
            tensors[f"{key}.{name}"] = value.detach().cpu().clone()
    return TrainingState(progress.step, list(progress.losses), list(progress.validation), tensors, scaler.state_dict())


def restore(model: LanguageModel, optimisers: list[torch.optim.Optimizer], scaler: torch.amp.GradScaler,
            progress: TrainingState) -> None:
    parameters, names = dict(model.named_parameters()), state_names_of(optimisers)
    expected = {f"{kind}.{name}" for name, p in parameters.items() for kind in ("weight", *names[p])}
    wrong = sorted(expected ^ set(progress.tensors))
    wrong += [name for name, p in parameters.items() if f"weight.{name}" in progress.tensors
              and progress.tensors[f"weight.{name}"].shape != p.shape]
    if wrong:
        raise StageError(f"the checkpoint of step {progress.step} is of another model ({len(wrong)} tensors differ, "
                         f"first {wrong[0]}); delete it, or train with the settings it was made with")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(progress.tensors[f"weight.{name}"])
    put_back(optimisers, {p: {key: progress.tensors[f"{key}.{name}"].to(p.device, copy=True) for key in names[p]}
                          for name, p in parameters.items()})
    if progress.loss_scale:
        scaler.load_state_dict(progress.loss_scale)


def precision_of(setting: str, device: str) -> str:
    """`auto`: float32 on CPU, bfloat16 where the GPU has it, else float16."""
    if setting != "auto":
        return setting
    if device == "cpu":
        return "float32"
    return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
