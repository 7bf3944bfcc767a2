"""What training the models of a profile would take, on the GPUs that are here or on those that the profile assumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pcfg_artifact.run.sections import Profile
from pcfg_artifact.system import gpus, machine
from pcfg_artifact.system.machine import Hardware, Need, training_processes
from pcfg_artifact.system.progress import duration

USABLE = 0.95  # of a GPU's memory: the rest is lost between the pieces
MB_IN_GB = machine.GB / 1e6


@dataclass(frozen=True)
class Target:
    """What is planned for: n processes of one model, each with a GPU, or with a core where gpu is None."""

    gpu: gpus.Gpu | None
    memory_gb: float
    n_processes: int
    is_here: bool

    def __str__(self) -> str:
        if self.gpu is None:
            return f"{self.n_processes} CPU process(es) a model"
        where = "" if self.is_here else ", assumed: there is no GPU here"
        return f"{self.n_processes} x {self.gpu.name} ({self.memory_gb:.0f} GB{where})"


def target(profile: Profile, hardware: Hardware) -> Target:
    """The smallest of the GPUs that are here; where there is none, the one that the profile assumes."""
    about = profile.cost["training"]
    need = Need(profile.machine.device, profile.machine.n_gpus, profile.pretrain.processes, 0.0)
    if profile.machine.device != "cpu" and hardware.gpus:
        known = [gpus.gpu_of(name) for name in hardware.gpus]
        sizes = hardware.gpu_memory_gb or tuple(gpu.memory_gb for gpu in known)
        smallest = min(range(len(known)), key=lambda i: (sizes[i], known[i].half_tflops))
        return Target(known[smallest], sizes[smallest], training_processes(hardware, need), True)
    if profile.machine.device != "cpu" and about["device"] == "cuda":
        gpu = gpus.gpu_of(gpus.DEFAULT)
        return Target(gpu, gpu.memory_gb, profile.pretrain.processes or about["processes"], False)
    return Target(None, 0.0, profile.pretrain.processes or 1, True)


def shapes_of(profile: Profile) -> dict[str, Any]:
    """The models of the profile as transformers' configs, for as many words as its costs assume."""
    from pcfg_artifact.mlm.objectives import config_of  # here, because it brings transformers

    cfg = profile.pretrain
    return {name: config_of(name, cfg, profile.cost["training"]["words"]) for name in cfg.all_models}


def estimates(profile: Profile, aim: Target) -> Iterator[tuple[str, Any, int, int]]:
    """(model, its TrainingCost, tokens of a micro-batch, the most tokens that fit) of every model."""
    from pcfg_artifact.mlm.estimate import Batching, batch_tokens_that_fit, estimate

    cfg = profile.pretrain
    row = cfg.packing or profile.cost["training"]["mean_length"] + 2
    for name, shape in shapes_of(profile).items():
        batching = Batching(cfg.batch_size, cfg.read_tokens, row, cfg.mask_rate, aim.n_processes)
        fitting = 0
        if aim.gpu is not None:
            fitting = batch_tokens_that_fit(shape, batching, MB_IN_GB * USABLE * aim.memory_gb)
            if cfg.batch_tokens == "auto":
                batching = Batching(cfg.batch_size, fitting, row, cfg.mask_rate, aim.n_processes)
        yield name, estimate(shape, batching, aim.gpu), batching.batch_tokens, fitting


def training_lines(profile: Profile, hardware: Hardware) -> list[str]:
    """Every model of the profile, and the arithmetic of its seconds."""
    from pcfg_artifact.mlm import estimate as rates

    about, aim, steps = profile.cost["training"], target(profile, hardware), profile.pretrain.steps
    lines = [f"pre-training on {aim}, for {about['words']:,} words:"]
    total = 0.0
    for name, one, tokens, _ in estimates(profile, aim):
        total += one.seconds * steps
        lines.append(f"  {name:<10} {one.operations:.2e} operations and {one.seconds:>5.3f} s a step, "
                     f"{duration(one.seconds * steps):>7} for {steps:,}; {one.megabytes:>6,.0f} MB a process with "
                     f"micro-batches of {tokens:,} tokens")
    if aim.gpu is None:
        lines.append(f"  at {rates.CPU_OPERATIONS_PER_SECOND:.0e} operations/s a process and "
                     f"{1000 * rates.CPU_SECONDS_PER_LAYER:g} ms a layer and step (measured on narrow models)")
    else:
        lines.append(f"  all {len(profile.pretrain.all_models)}: {duration(total)}, at {rates.SHARE_OF_PEAK:.0%} of "
                     f"{aim.n_processes} x {aim.gpu.half_tflops:g} Tflop/s (the share is assumed: no GPU has run this)")
    return lines


def memory_problems(profile: Profile, hardware: Hardware) -> list[str]:
    """Models that a GPU here cannot hold, each with the micro-batch that would fit."""
    aim = target(profile, hardware)
    if aim.gpu is None or not aim.is_here:
        return []
    problems = []
    for name, one, tokens, fitting in estimates(profile, aim):
        if not fitting or one.megabytes > MB_IN_GB * USABLE * aim.memory_gb:
            advice = f"set pretrain.batch_tokens={fitting}, or auto" if fitting else "leave the model out"
            problems.append(f"{name} would take {one.megabytes / MB_IN_GB:.1f} GB with micro-batches of {tokens:,} "
                            f"tokens, and a GPU here ({aim.gpu.name}) has {aim.memory_gb:.1f} GB; {advice}")
    return problems
