"""Fits of probes in worker processes: what all of them share, their results on disk, and how many run at once."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.metrics.schema import Metric, is_blank
from pcfg_artifact.mlm.encoders import load_config, load_encoder
from pcfg_artifact.probing.corpus import Corpus, Layer
from pcfg_artifact.probing.probes import Probe, build_probes
from pcfg_artifact.probing.tasks import TaskResult
from pcfg_artifact.run.sections import ProbeConfig
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import Machine, available_memory
from pcfg_artifact.system.progress import ProgressBar
from pcfg_artifact.workers.hidden_states import states_folder, store_states, stored_layer
from pcfg_artifact.workers.pool import n_processes, run_jobs

WORKER_BYTES = 1 << 29  # of a process that has done nothing yet


class Unit(NamedTuple):
    """Every task of one probe on one layer of one model."""

    model: str
    layer: int
    probe: str


class Fit(NamedTuple):
    """What is fitted, kept and resumed as one: one task of a probe on a layer of a model, learned from one corpus."""

    unit: Unit
    training: str
    task: str

    def __str__(self) -> str:
        """As in the names of files."""
        return f"L{self.unit.layer}-{self.unit.probe}-{self.training}-{self.task}".replace(" ", "-")


@dataclass(frozen=True)
class Context:
    """What every fit of a stage needs."""

    cfg: ProbeConfig
    probes: Mapping[str, Probe]
    corpora: Mapping[str, Corpus]
    base: str
    last: dict[str, int]  # model -> its last layer
    machine: Machine
    states: Path  # folder of hidden states by model
    results: Path
    control_seed: int = 0  # of the random labels, for the stage `control`

    @classmethod
    def build(cls, cfg: ProbeConfig, corpora: Mapping[str, Corpus], base: str, machine: Machine, folder: Path,
              options: Mapping[str, Any], control_seed: int = 0) -> Context:
        """options: the config as a mapping, from which each probe takes its own."""
        folder = folder.absolute()  # the workers of a cluster are elsewhere
        return cls(cfg, build_probes(cfg.probes, options), corpora, base, {}, machine, states_folder(folder, machine),
                   folder / "fits", control_seed)

    @property
    def times(self) -> Path:
        return self.results.parent / "scratch" / "times"

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.cfg.seed, self.cfg.seed + self.cfg.n_seeds))

    def units(self, model: str) -> list[Unit]:
        """Every layer and probe of a model, in the order of the tables."""
        return [Unit(model, layer, probe) for layer in range(self.last[model] + 1) for probe in self.probes]

    def path(self, fit: Fit) -> Path:
        return self.results / fit.unit.model / f"{fit}.json"

    def layers(self, unit: Unit) -> dict[str, Layer]:
        return stored_layer(self.corpora, self.states / unit.model, unit.layer)

    def has_marginals(self, unit: Unit) -> bool:
        """Whether span marginals are probed at this layer: at the first and the last, or at all."""
        return self.cfg.marginal_layers == "all" or unit.layer in (0, self.last[unit.model])


def fit_all(context: Context, folders: Mapping[str, Path], fits_of: Callable[[Context, Unit], list[Fit]],
            run_fit: Callable[[Context, Fit], Fit], n_rows: int, *, progress: ProgressBar, what: str) -> None:
    """run_fit(context, fit) for every fit of all models (name -> folder) that has no result yet, as one queue.

    The hidden states of a model are written when the queue comes to it, while the fits of the model before it run, and
    removed with its last fit.  Probes with seeds take longest and begin.
    n_rows: hidden states that the widest input of a task puts side by side.
    """
    todo = {name: [fit for unit in context.units(name) for fit in fits_of(context, unit)
                   if not context.path(fit).is_file()] for name in folders}
    n_left = {name: len(fits) for name, fits in todo.items()}

    def queue() -> Iterator[Fit]:
        for name, fits in todo.items():
            if fits:
                write_states(context, name, folders[name], progress)
                yield from sorted(fits, key=lambda fit: not context.probes[fit.unit.probe].has_seeds)

    n_inputs = n_rows * max(load_config(folder).hidden_size for folder in folders.values())
    for fit in progress(run_fits(run_fit, queue(), context, n_inputs), total=sum(n_left.values()), desc=what):
        n_left[fit.unit.model] -= 1
        if not n_left[fit.unit.model]:
            shutil.rmtree(context.states / fit.unit.model, ignore_errors=True)
    for name in folders:  # of a run before this one, which ended between two fits
        shutil.rmtree(context.states / name, ignore_errors=True)
    if context.machine.scratch is not None:
        shutil.rmtree(context.states, ignore_errors=True)


def write_states(context: Context, name: str, folder: Path, progress: ProgressBar) -> None:
    model, tokenizer = load_encoder(folder)
    cfg = context.cfg
    store_states(model, tokenizer, context.corpora, context.states / name, precision=cfg.precision,
                 max_tokens=cfg.batch_tokens, device=context.machine.device, progress=progress)


def run_fits(run_fit: Callable[[Context, Fit], Fit], fits: Iterable[Fit], context: Context,
             n_inputs: int) -> Iterator[Fit]:
    """run_fit(context, fit) for every fit, in as many processes as cores or GPUs are there for and memory holds."""
    machine = context.machine
    n_workers = n_processes(machine, workers_that_fit(machine.n_workers, context.corpora, n_inputs))
    try:
        yield from run_jobs(run_fit, fits, context, n_workers, machine.executor)
    except torch.OutOfMemoryError as error:
        raise StageError(f"a fit found no memory on its GPU ({error}); what is finished is kept: run the same command "
                         f"again with --set machine.n_workers=1") from error


def workers_that_fit(n_workers: int, corpora: Mapping[str, Corpus], n_inputs: int) -> int:
    """As many workers as memory holds: each needs its inputs once and as much again for the fit's own arrays."""
    n_rows = max(int(corpus.lengths.sum()) for corpus in corpora.values())
    return max(1, min(n_workers, available_memory() // (2 * 4 * n_rows * n_inputs + WORKER_BYTES)))


# ---- results on disk -------------------------------------------------------------------------------------------------


def read_result(context: Context, fit: Fit) -> tuple[list[Metric], dict[str, Any]]:
    """The scores of a fit, NaN where there is none, and all that was written with them."""
    path = context.path(fit)
    try:
        found = storage.read_sealed_json(path)
        scores = [Metric(**{**score, "value": float("nan") if score["value"] is None else score["value"]})
                  for score in found["scores"]]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptArtifact(f"{path} is not the result of a fit ({error!r}); delete it and run the same command "
                              f"again") from error
    return scores, found


def write_result(context: Context, fit: Fit, result: TaskResult, cpu_seconds: float, **shown: Any) -> None:
    """The result of a fit, the same bytes whenever it is made; the time goes beside it, for the manifest."""
    storage.write_json(context.times / f"{fit.unit.model}-{fit}.json", {"cpu_seconds": round(cpu_seconds, 3)})
    scores = [vars(score.at(model=fit.unit.model, layer=fit.unit.layer)) for score in result.scores]
    rows = [{**{name: value for name, value in score.items() if not is_blank(value)},
             "value": float(score["value"]) if math.isfinite(score["value"]) else None} for score in scores]
    storage.write_sealed_json(context.path(fit), {"scores": rows, "facts": result.facts, **shown})


def read_times(context: Context) -> dict[str, Any]:
    """Processor time of the fits that this run or one before it made."""
    return {path.stem: storage.read_json(path)["cpu_seconds"] for path in sorted(context.times.glob("*.json"))}
