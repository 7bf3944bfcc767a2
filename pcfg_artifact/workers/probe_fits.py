"""Fits of probes in worker processes: what all of them share, their results on disk, and how many run at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pcfg_artifact import artifacts, storage
from pcfg_artifact.cells import LAYER
from pcfg_artifact.config import ProbeConfig
from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.machine import Machine, available_memory
from pcfg_artifact.probing.corpus import Corpus, Layer
from pcfg_artifact.probing.probe_rows import Unit
from pcfg_artifact.probing.probes import Probe, build_probes
from pcfg_artifact.probing.tasks import ProbeScore
from pcfg_artifact.progress import ProgressBar
from pcfg_artifact.workers.hidden_states import store_states, stored_layer
from pcfg_artifact.workers.pool import run_jobs

WORKER_BYTES = 1 << 29  # of a process that has done nothing yet
FITS_PER_GPU = 2  # processes; at the paper's sizes the inputs of a fit take up to 2.3 GB


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
        return cls(cfg, build_probes(cfg.probes, options), corpora, base, {}, machine, folder / "scratch",
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

    def path(self, unit: Unit) -> Path:
        return self.results / unit.model / f"{LAYER(unit.layer)}-{unit.probe}.json"

    def layers(self, unit: Unit) -> dict[str, Layer]:
        return stored_layer(self.corpora, self.states / unit.model, unit.layer)

    def has_marginals(self, unit: Unit) -> bool:
        """Whether span marginals are probed at this layer: at the first and the last, or at all."""
        return self.cfg.marginal_layers == "all" or unit.layer in (0, self.last[unit.model])


def fit_model(context: Context, name: str, model: Any, tokenizer: Any, fit: Callable[[Context, Unit], Unit],
              n_rows: int, *, progress: ProgressBar, what: str) -> None:
    """Run fit(context, unit) for every unit of a model that has no results yet; its hidden states are written first.

    n_rows: hidden states that the widest input of a task puts side by side.
    """
    todo = [unit for unit in context.units(name) if not context.path(unit).is_file()]
    if not todo:
        return
    cfg = context.cfg
    store_states(model, tokenizer, context.corpora, context.states / name, precision=cfg.precision,
                 max_tokens=cfg.batch_tokens, device=context.machine.device, progress=progress)
    finished = run_fits(fit, todo, context, n_rows * model.config.hidden_size)
    for _ in progress(finished, total=len(todo), desc=what):
        pass


def run_fits(fit: Callable[[Context, Unit], Unit], units: Sequence[Unit], context: Context,
             n_inputs: int) -> Iterator[Unit]:
    """fit(context, unit) for every unit, in processes that memory allows.

    Probes with seeds take longest and begin.  Those that use a GPU come first where there is one, a few processes on
    each, then the others on all cores.
    """
    probes, machine = context.probes, context.machine
    units = sorted(units, key=lambda unit: (unit.layer, not probes[unit.probe].has_seeds))
    n_workers = workers_that_fit(machine.n_workers, context.corpora, n_inputs)
    groups = [(units, n_workers)]
    if machine.device == "cuda":
        groups = [([unit for unit in units if probes[unit.probe].uses_gpu],
                   min(n_workers, FITS_PER_GPU * n_gpus(machine))),
                  ([unit for unit in units if not probes[unit.probe].uses_gpu], n_workers)]
    try:
        for group, n in groups:
            yield from run_jobs(fit, group, context, n)
    except torch.OutOfMemoryError as error:
        raise StageError(f"a fit found no memory on its GPU ({error}); what is finished is kept: run the same command "
                         f"again with --set machine.n_workers=1") from error


def n_gpus(machine: Machine) -> int:
    return machine.n_gpus or torch.cuda.device_count()


def device_of(machine: Machine) -> str:
    """The device of this worker process: the workers of a pool are counted, and go round the GPUs."""
    if machine.device != "cuda":
        return machine.device
    index = int(multiprocessing.current_process().name.rpartition("-")[2])
    return f"cuda:{index % n_gpus(machine)}"


def workers_that_fit(n_workers: int, corpora: Mapping[str, Corpus], n_inputs: int) -> int:
    """As many workers as memory holds: each needs its inputs once and as much again for the fit's own arrays."""
    n_rows = max(int(corpus.lengths.sum()) for corpus in corpora.values())
    return max(1, min(n_workers, available_memory() // (2 * 4 * n_rows * n_inputs + WORKER_BYTES)))


# ---- results on disk -------------------------------------------------------------------------------------------------


def scores_as_json(scores: Iterable[ProbeScore]) -> list[list[Any]]:
    return [[*s[:4], artifacts.finite_or_none(s.value), s.n] for s in scores]


def read_result(context: Context, unit: Unit) -> tuple[list[ProbeScore], dict[str, Any]]:
    """The scores of a unit, NaN where there is none, and all that was written with them."""
    path = context.path(unit)
    try:
        found = storage.read_sealed_json(path)
        scores = [ProbeScore(setting, task, metric, seed, float("nan") if value is None else value, n)
                  for setting, task, metric, seed, value, n in found["scores"]]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptArtifact(f"{path} is not the result of a fit ({error!r}); delete it and run the same command "
                              f"again") from error
    return scores, found


def write_result(context: Context, unit: Unit, found: Mapping[str, Any], cpu_seconds: float) -> None:
    """The result of a unit, the same bytes whenever it is fitted; the time goes beside it, for the manifest."""
    storage.write_json(context.times / f"{'-'.join(map(str, unit))}.json", {"cpu_seconds": round(cpu_seconds, 3)})
    storage.write_sealed_json(context.path(unit), found)


def read_times(context: Context) -> dict[str, Any]:
    """Processor time of the units that this run or one before it fitted."""
    return {path.stem: storage.read_json(path)["cpu_seconds"] for path in sorted(context.times.glob("*.json"))}
