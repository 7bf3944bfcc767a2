"""Training checkpoints on disk: complete or absent, the last two kept, damage found before it is used."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.mlm.training import TrainingState
from pcfg_artifact.system import storage

KEPT = 2
TENSORS, STATE = "tensors.safetensors", "state.json"


def steps(folder: Path) -> list[int]:
    """Steps that have a complete checkpoint, in order."""
    names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(match[1]) for name in names if (match := re.fullmatch(r"step-(\d+)", name)))


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:07d}"


def write(folder: Path, progress: TrainingState) -> None:
    """Add a checkpoint under its final name when all of it is on disk, and only then remove the oldest."""
    final = path_of(folder, progress.step)
    unfinished = folder / f"{storage.TEMPORARY}{final.name}"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        storage.write_bytes(unfinished / TENSORS, save(progress.tensors))
        storage.write_sealed_json(unfinished / STATE, {
            "step": progress.step, "losses": progress.losses, "validation": progress.validation,
            "loss_scale": progress.loss_scale, "sha256": storage.sha256(unfinished / TENSORS)})
        shutil.rmtree(final, ignore_errors=True)
        storage.rename(unfinished, final)
    except OSError as error:
        raise StageError(f"cannot write the checkpoint {final}: {error.strerror or error}; the one before it is "
                         f"intact: free space and run the same command again") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    for step in steps(folder)[:-KEPT]:
        shutil.rmtree(path_of(folder, step))


def latest_step(folder: Path) -> int | None:
    """The step of the newest checkpoint, or None where there is none."""
    return max(steps(folder), default=None)


class Writer:
    """Writes checkpoints beside training, one at a time; an error is raised when the next is saved, or at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pool = folder, ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def __enter__(self) -> Writer:
        return self

    def save(self, state: TrainingState) -> None:
        self._wait()
        self._pending = self._pool.submit(write, self._folder, state)

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def __exit__(self, *failure: Any) -> None:
        self._pool.shutdown(wait=True)
        self._wait()


def read(folder: Path, step: int) -> TrainingState:
    """The checkpoint of a step; a damaged one is an error, not a silent new start."""
    path = path_of(folder, step)
    before = max((saved for saved in steps(folder) if saved < step), default=None)
    advice = f"delete {path} to continue from {'the beginning' if before is None else f'step {before}'}"
    try:
        state = storage.read_sealed_json(path / STATE)
        if not state["step"] == step == len(state["losses"]):
            raise ValueError(f"{STATE} is of step {state['step']} and has {len(state['losses'])} losses, expected "
                             f"{step} of both")
        data = (path / TENSORS).read_bytes()
        if storage.sha256(path / TENSORS) != state["sha256"]:
            raise ValueError(f"{TENSORS} has {len(data)} bytes and not the SHA-256 that {STATE} records")
        return TrainingState(state["step"], state["losses"], [tuple(pair) for pair in state["validation"]],
                        load(data), state["loss_scale"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, CorruptArtifact) as error:
        raise CorruptArtifact(f"the checkpoint {path} is damaged ({error}); {advice}") from error


def remove_all(folder: Path) -> None:
    for step in steps(folder):
        shutil.rmtree(path_of(folder, step))
