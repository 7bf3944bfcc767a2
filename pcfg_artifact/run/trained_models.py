"""The models in the folder of the stage `pretrain`: trained, untrained, and at the steps that were kept."""

from __future__ import annotations

from pathlib import Path

from pcfg_artifact.metrics.models import CAUSAL, is_trained
from pcfg_artifact.run.stage_folder import Folder
from pcfg_artifact.system import storage


def model_folders(pretrain: Folder) -> dict[str, Path]:
    """Every masked model of a finished stage `pretrain` by name."""
    return {path.parent.name: path.parent for path in sorted(pretrain.root.glob("models/*/config.json"))
            if not is_trained(path.parent.name, CAUSAL)}


def causal_folders(pretrain: Folder) -> dict[str, Path]:
    """Every causal model of the stage by name."""
    return {path.parent.name: path.parent for path in sorted(pretrain.root.glob("models/*/config.json"))
            if is_trained(path.parent.name, CAUSAL)}


def untrained_folder(pretrain: Folder, name: str) -> Path:
    """A model of the stage as it was before its first step."""
    return pretrain.path(f"untrained/{name}")


def kept_folders(pretrain: Folder, name: str) -> dict[int, Path]:
    """Step -> folder of a model, from before its first step to its last."""
    training = storage.read_sealed_json(pretrain.path(f"models/{name}/training.json"))
    steps = {int(folder.removeprefix("step-")): pretrain.path(f"kept/{name}/{folder}")
             for folder in training["kept_sha256"]}
    return {0: untrained_folder(pretrain, name), **dict(sorted(steps.items())),
            len(training["losses"]): pretrain.path(f"models/{name}")}
