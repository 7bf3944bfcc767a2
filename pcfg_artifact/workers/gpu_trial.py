"""Two minutes on the GPUs before hours on them: `doctor --gpu`, and the first thing that the profile paper does.

`python -m pcfg_artifact.workers.gpu_trial SPEC.json` is one process of it, alone or under torchrun as in training.
Every process trains two steps of every model of the profile on its share of a full batch; then they add a buffer over
all GPUs, fit one probe of each kind, read hidden states, and compare one batch of Inside-Outside with the CPU's.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import distributed

from pcfg_artifact.errors import ArtifactError, StageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.estimate import TrainingCost
from pcfg_artifact.mlm.objectives import config_of, objective_of
from pcfg_artifact.mlm.training import Callbacks, Rank, Recipe, StepReport, train
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.probing.probes import build_probes
from pcfg_artifact.probing.representations import extract
from pcfg_artifact.run.sections import Profile, as_json
from pcfg_artifact.run.training_plan import estimates, target
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import Hardware, read_hardware
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.workers.distributed import torchrun_options
from pcfg_artifact.workers.launch import run_workers
from pcfg_artifact.workers.trainer import end_with_parent, enter_group, leave_group

TRIAL = "the trial of the GPUs"
MARK = "trial: "  # begins the lines of the log that are shown
SECONDS = 600.0  # for all; then something hangs
STEPS = 2  # the first makes everything ready, the second is timed
N_STATES, N_LABELS = 20_000, 25  # of a probe's fit
BUFFER = 25_000_000  # numbers that are added over all processes: 100 MB
AGREE = 1e-9  # of log probabilities on the GPU and on the CPU, relative


def run_trial(profile: Profile, say: Callable[[str], None]) -> None:
    """Start as many processes as training would, and show their lines; a StageError says what failed."""
    n_processes = target(profile, read_hardware(Path("."))).n_processes
    deadline, shown = time.monotonic() + SECONDS, 0
    with tempfile.TemporaryDirectory() as folder:
        spec, log = Path(folder) / "profile.json", Path(folder) / "log"
        storage.write_json(spec, TypeAdapter(Profile).dump_python(profile, mode="json"))

        def look() -> None:
            nonlocal shown
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith(MARK)]
            for line in lines[shown:]:
                say(line.removeprefix(MARK))
            shown = len(lines)
            if time.monotonic() >= deadline:
                raise StageError(f"the trial of the GPUs was not over after {SECONDS:.0f} s: one of them, or NCCL "
                                 f"between them, hangs; NCCL_DEBUG=INFO in the environment says where, "
                                 f"NCCL_P2P_DISABLE=1 may help")

        command = ("-m", "pcfg_artifact.workers.gpu_trial", str(spec), f"--processes={n_processes}",
                   f"--parent={os.getpid()}")
        try:
            run_workers({TRIAL: command}, {TRIAL: log}, 1, look)
        finally:
            look()  # what it found before it failed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--parent", type=int)
    parser.add_argument("--in-group", action="store_true")
    args = parser.parse_args(arguments)
    end_with_parent(args.parent)
    if args.processes > 1 and not args.in_group:
        from torch.distributed.run import main as torchrun

        torchrun([*torchrun_options([], "trial"), f"--nproc-per-node={args.processes}", "-m", __spec__.name,
                  str(args.spec), "--in-group"])
        return 0
    try:
        profile = TypeAdapter(Profile).validate_python(storage.read_json(args.spec))
        rank = enter_group("cuda", profile.pretrain.precision, args.in_group)
        for line in trial(profile, rank, read_hardware(Path("."))):
            if rank.index == 0:
                print(MARK + line, flush=True)
        leave_group(rank)
    except ArtifactError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def trial(profile: Profile, rank: Rank, hardware: Hardware) -> Iterator[str]:
    """A line for everything that was tried, measured beside planned; what fails is a StageError that names it."""
    aim = target(profile, hardware)
    name = torch.cuda.get_device_name(rank.device)
    yield f"{rank.world_size} process(es), {name}, {rank.precision}; planned for {aim}"
    for model, planned, batch_tokens, _ in estimates(profile, aim):
        with named(model, rank):
            yield one_training_step(model, profile, rank, planned, batch_tokens)
    if rank.world_size > 1:
        with named("a sum over all GPUs", rank):
            yield one_sum(rank)
    for probe, fitted in build_probes(profile.probe.probes, as_json(profile.probe)).items():
        with named(f"a fit of the probe {probe}", rank):
            yield one_fit(probe, fitted, profile, rank)
    with named("hidden states", rank):
        yield one_extraction(profile, rank)
    with named("Inside-Outside", rank):
        yield one_chart(rank)


@contextmanager
def named(what: str, rank: Rank) -> Iterator[None]:
    """Inside, what fails says what was tried, by which process, on which machine and GPU."""
    where = f"{what}: process {rank.index} of {rank.world_size} on {os.uname().nodename} ({rank.device})"
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise StageError(f"{where} ran out of memory; set pretrain.batch_tokens=auto or lower it, or end what else "
                         f"uses the GPU (nvidia-smi)") from error
    except RuntimeError as error:
        raise StageError(f"{where} failed: {str(error).strip()[:500]}") from error


def clock(device: str) -> float:
    torch.cuda.synchronize(device)
    return time.monotonic()


def one_training_step(model: str, profile: Profile, rank: Rank, planned: TrainingCost, batch_tokens: int) -> str:
    """Two steps of the real loop on random sentences, in blocks as long as the profile's."""
    cfg, about = profile.pretrain, profile.cost["training"]
    rng = np.random.default_rng(0)
    words = rng.integers(0, about["words"], (STEPS * cfg.batch_size, (cfg.packing or about["mean_length"] + 2) - 2))
    sentences = Ragged.from_rows(list(words), np.uint16)
    objective = objective_of(model)
    corpus = objective.corpus(sentences, masking=Masking(cfg.mask_rate, cfg.corruption, cfg.mask_any_token), seed=0,
                              batch_size=cfg.batch_size, batch_tokens=batch_tokens, n_words=about["words"],
                              max_length=cfg.max_length, packing=cfg.packing)
    recipe = Recipe(steps=STEPS, schedule_steps=STEPS + 1, warmup_steps=1, learning_rate=1e-6, weight_decay=0.0,
                    clip=cfg.clip, optimiser=cfg.optimiser)
    times: list[float] = []

    def note(report: StepReport) -> None:
        times.append(clock(rank.device))

    torch.cuda.reset_peak_memory_stats(rank.device)
    train(objective.build(config_of(model, cfg, about["words"]), 0), corpus, recipe, seed=0, loss_of=objective.loss,
          rank=rank, callbacks=Callbacks(report=note, save_every=1))
    megabytes = torch.cuda.max_memory_allocated(rank.device) / 1e6
    torch.cuda.empty_cache()
    return (f"{model:<10} {times[-1] - times[-2]:.3f} s a step (planned {planned.seconds:.3f}), {megabytes:,.0f} MB of "
            f"tensors (planned {planned.megabytes:,.0f} with CUDA's own)")


def one_sum(rank: Rank) -> str:
    buffer = torch.full((BUFFER,), 1.0, device=rank.device)
    distributed.all_reduce(buffer)
    before = clock(rank.device)
    distributed.all_reduce(buffer)
    seconds = clock(rank.device) - before
    if (found := float(buffer[-1])) != rank.world_size**2:
        raise StageError(f"the GPUs add wrongly: {rank.world_size} processes sum to {found:g}, expected "
                         f"{rank.world_size**2}; set NCCL_P2P_DISABLE=1, and report the machine to who runs it")
    return f"100 MB summed over {rank.world_size} GPUs in {1000 * seconds:.0f} ms"


def one_fit(name: str, probe: Any, profile: Profile, rank: Rank) -> str:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N_STATES, 2 * profile.pretrain.width)).astype(np.float32)
    labels = rng.integers(0, N_LABELS, N_STATES)
    before = clock(rank.device)
    seeds = range(profile.probe.n_seeds if probe.has_seeds else 1)
    device = rank.device if probe.uses_gpu else "cpu"
    predicted = probe.fit(x, labels, tuple(seeds), device=device, overwrite_x=True).predict(x[:10])
    if not np.isfinite(np.asarray(predicted, float)).all():
        raise StageError(f"a fit of the probe {name} on {device} predicts what is no number")
    return f"a fit of the probe {name} on {N_STATES:,} states: {clock(rank.device) - before:.1f} s"


def one_extraction(profile: Profile, rank: Rank) -> str:
    cfg = profile.pretrain
    model, n_words = cfg.models[0], 1000
    network: Any = objective_of(model).build(config_of(model, cfg, n_words), 0)
    words = [f"w{k}" for k in range(n_words)]
    sentences = [words[k:k + 25] for k in range(0, 900, 3)]
    before = clock(rank.device)
    layers = extract(network.base_model, tokens.build_tokenizer(words, cfg.max_length), sentences,
                     lambda _, shape: np.empty(shape, np.float32), max_tokens=profile.probe.batch_tokens,
                     device=rank.device)
    if not all(np.isfinite(layer).all() for layer in layers):
        raise StageError(f"hidden states of {model} on {rank.device} are no numbers")
    return f"hidden states of {len(sentences)} sentences: {clock(rank.device) - before:.1f} s"


def one_chart(rank: Rank) -> str:
    grammar = PCFG.from_rules(
        root={"S": 1.0}, binary=[("S", "NP", "VP", 0.7), ("S", "S", "NP", 0.3), ("NP", "NP", "NP", 0.2),
                                 ("NP", "D", "N", 0.8), ("VP", "V", "NP", 0.6), ("VP", "V", "VP", 0.4)],
        lexical=[("D", "the", 1.0), ("N", "cat", 0.5), ("N", "dog", 0.5), ("V", "saw", 0.6), ("V", "met", 0.4)])
    sentences = [["the", "cat", *["saw"] * k, "the", "dog"] for k in range(1, 10)]
    before = clock(rank.device)
    found = [chart.log_prob for chart in inside_outside(grammar, sentences, backend="gpu", device=rank.device)]
    seconds = clock(rank.device) - before
    expected = [chart.log_prob for chart in inside_outside(grammar, sentences, backend="cpu")]
    if not np.allclose(found, expected, rtol=AGREE):
        raise StageError(f"Inside-Outside on {rank.device} differs from the CPU: {found[0]}, expected {expected[0]}")
    return f"Inside-Outside of {len(sentences)} sentences: {seconds:.1f} s, as on the CPU"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
