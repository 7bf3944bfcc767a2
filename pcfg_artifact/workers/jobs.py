"""Training jobs: what one process of pre-training needs to know, as a file; which models are trained, and launching.

Each model carries a fingerprint of its own, of everything that can change its weights, so that a change elsewhere in
the profile or the code trains nothing again.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.mlm.model import parse_shape
from pcfg_artifact.mlm.training import precision_of
from pcfg_artifact.run import freshness
from pcfg_artifact.run.sections import PretrainConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import progress_bar, say
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.workers import checkpoints
from pcfg_artifact.workers.distributed import FINISHED, ORDER, TORCHRUN
from pcfg_artifact.workers.launch import run_workers
from pcfg_artifact.workers.training_log import ProgressReader, board_of

CARD = "README.md"  # in a model's folder, when the stage knows how good the model is
# Settings that leave a trained model what it is: how it is judged, and how its work is shared out.
NOT_OF_A_MODEL = ("models", "causal_models", "n_exact", "exact_max_length", "batch_tokens", "processes", "save_every",
                  "control_texts", "windows", "layer_use")

FOLDERS = ("models", "untrained", "kept", "scratch")  # of the stage, with a folder for each model


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TrainingJob:
    """One model to train: scratch/<model>/job.json, beside its checkpoints."""

    model: str
    made_from: str  # fingerprint of all that decides the weights
    config: PretrainConfig
    words: tuple[str, ...]  # the vocabulary, by word id
    device: str
    pretraining: Path  # shards, by folder and stem as the sample stage writes them
    validation: Path
    final: Path  # the model's folder, which appears as a whole
    untrained: Path  # the same model before its first step, likewise: probes compare the two
    kept: Path  # the same model on the way, a folder for each step that is kept
    log: str | None = None  # where progress goes beside progress.jsonl: tensorboard

    def write(self, path: Path) -> None:
        storage.write_json(path, TypeAdapter(TrainingJob).dump_python(self, mode="json"))

    @classmethod
    def read(cls, path: Path) -> TrainingJob:
        try:
            return TypeAdapter(TrainingJob).validate_python(storage.read_json(path))
        except ValidationError as error:
            wrong = error.errors()[0]
            raise CorruptArtifact(f"{path} is not a training job of this release ({'.'.join(map(str, wrong['loc']))}: "
                                  f"{wrong['msg']}); delete it and run the stage again") from error


def write_jobs(cfg: PretrainConfig, words: tuple[str, ...], shards: Mapping[str, Path], out: StageDir,
               machine: Machine, control_shards: Mapping[str, Mapping[str, Path]] = {}) -> None:
    """One job file per model.  Models and checkpoints of other jobs are removed.

    shards: of sampled sentences by split; control_shards: by control text.  Nobody follows a control model on its way.
    """
    # What `auto` chooses here decides the weights, so it is part of the fingerprint, and the same on every machine.
    cfg = replace(cfg, precision=precision_of(cfg.precision, machine.device))  # type: ignore[arg-type]
    board_of(machine.log, out.path("scratch/tensorboard"))  # refused now, and not by a worker
    shards_of = {name: control_shards[text] for name, text in cfg.control_models.items()}
    read = {name: shards_of.get(name, shards) for name in cfg.all_models}
    data = {shard: [storage.sha256(Path(f"{shard}.{part}.npy")) for part in Ragged._fields]
            for found in read.values() for shard in found.values()}
    settings = {key: value for key, value in asdict(cfg).items() if key not in NOT_OF_A_MODEL}
    code = freshness.code_of(freshness.WEIGHTS)
    made_from = {name: storage.fingerprint([name, settings, words, [digest for shard in found.values()
                                                                    for digest in data[shard]], code])
                 for name, found in read.items()}
    _remove_other_models(made_from, out)
    for name, found in read.items():
        of_model = replace(cfg, n_kept=0) if name in cfg.control_models else cfg
        TrainingJob(name, made_from[name], of_model, words, machine.device, found["pretraining"].resolve(),
                    found["validation"].resolve(), out.path(f"models/{name}").resolve(),
                    out.path(f"untrained/{name}").resolve(), out.path(f"kept/{name}").resolve(),
                    machine.log).write(out.path(f"scratch/{name}/job.json"))
    storage.write_json(out.path(f"scratch/{ORDER}"), cfg.all_models)  # last: followers wait for it


def _remove_other_models(made_from: Mapping[str, str], out: StageDir) -> None:
    """Remove models and checkpoints that the profile does not name, or that were made from something else."""
    for name in {path.name for part in FOLDERS for path in out.path(part).glob("*") if path.is_dir()}:
        job = out.json(f"scratch/{name}/job") if out.has(f"scratch/{name}/job.json") else {}
        if not isinstance(job, dict) or job.get("made_from", "") != made_from.get(name):
            for part in FOLDERS:
                if out.path(f"{part}/{name}").exists():
                    shutil.rmtree(out.path(f"{part}/{name}"))


def read_finished(cfg: PretrainConfig, out: StageDir, name: str) -> dict[str, Any]:
    """What training.json says of a finished model, whose files must be as they were written."""
    folder = out.path(f"models/{name}")
    advice = f"delete {folder} to train {name} again"
    try:
        result = storage.read_sealed_json(folder / FINISHED)
        if len(result["losses"]) != cfg.steps:
            raise CorruptArtifact(f"{folder / FINISHED} has {len(result['losses'])} losses, expected {cfg.steps}")
        kept = {out.path(f"kept/{name}/{step}"): files for step, files in result["kept_sha256"].items()}
        for place, expected in {folder: result["sha256"], out.path(f"untrained/{name}"): result["untrained_sha256"],
                                **kept}.items():
            found = hashes(place) if place.is_dir() else {}
            wrong = sorted(file for file in expected.keys() | found.keys() if expected.get(file) != found.get(file))
            if wrong:
                problem = "does not have the SHA-256 that" if wrong[0] in found else "is missing, though"
                raise CorruptArtifact(f"{place / wrong[0]} {problem} {FINISHED} records")
    except (CorruptArtifact, KeyError, TypeError, AttributeError, OSError) as error:
        raise CorruptArtifact(f"the finished model {name} is damaged ({error}); {advice}") from error
    return result


def processes_of(cfg: PretrainConfig, device: str, n_gpus: int | None = None) -> int:
    """Processes of one model on this machine: as set, or one a GPU."""
    return cfg.processes or (n_gpus or torch.cuda.device_count() if device == "cuda" else 1)


def train_models(cfg: PretrainConfig, out: StageDir, machine: Machine) -> None:
    """Train what is not finished: on GPUs one model after another over all of them, on CPUs several side by side."""
    pending = [name for name in cfg.all_models if not out.has(f"models/{name}/{FINISHED}")]
    for name in set(cfg.all_models) - set(pending):
        read_finished(cfg, out, name)  # a damaged one is found before hours are spent on the others
        checkpoints.remove_all(out.path(f"scratch/{name}"))  # where the worker died between the two
    on_gpu = machine.device == "cuda"
    n_processes = processes_of(cfg, machine.device, machine.n_gpus)
    # Several machines train one model after another, in the order of the profile.
    one_by_one = on_gpu or TORCHRUN in os.environ
    n_parallel = 1 if one_by_one else max(1, machine.n_workers // n_processes)
    if n_parallel > 1:  # the deepest first, so that no core waits long for the last one
        pending.sort(key=lambda name: parse_shape(name).layers, reverse=True)
    commands = {name: ("-m", "pcfg_artifact.workers.trainer", str(out.path(f"scratch/{name}/job.json").absolute()),
                       f"--number={cfg.all_models.index(name)}", f"--processes={n_processes}",
                       f"--restarts={machine.restarts}", f"--parent={os.getpid()}") for name in pending}
    logs = {name: out.path(f"scratch/{name}/worker.log") for name in pending}
    reader = ProgressReader(out.root, None if sys.stderr.isatty() else say)
    try:
        with progress_bar(cfg.steps * len(pending), "pre-training") as bar:
            run_workers(commands, logs, n_parallel, lambda: bar.update(reader.steps_done() - bar.n))
    except StageError as error:
        left = {name for name in cfg.all_models if not out.has(f"models/{name}/{FINISHED}")}
        if not left <= set(cfg.causal_models):
            raise
        raise StageError(f"{error}\nonly causal models are left, which are not the paper's; to go on without them, run "
                         f"the same command with --set pretrain.causal_models=[]") from error


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a model's folder that save_pretrained wrote; its card is written later."""
    return {path.name: storage.sha256(path) for path in sorted(folder.iterdir())
            if path.is_file() and path.name not in (FINISHED, CARD) and not path.name.startswith(storage.TEMPORARY)}
