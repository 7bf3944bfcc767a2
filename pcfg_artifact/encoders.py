"""Encoders on disk: Hugging Face folders, those of a run's stage `pretrain` and anybody's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from pcfg_artifact.artifacts import Folder
from pcfg_artifact.errors import UsageError


def model_folders(pretrain: Folder) -> dict[str, Path]:
    """Every pre-trained model of a finished stage `pretrain` by name."""
    return {path.parent.name: path.parent for path in sorted(pretrain.root.glob("models/*/config.json"))}


def untrained_folder(pretrain: Folder, name: str) -> Path:
    """A model of the stage as it was before its first step."""
    return pretrain.path(f"untrained/{name}")


def load_encoder(folder: Path, *, attention: str = "sdpa") -> tuple[Any, Any]:
    """(model, tokenizer) of a Hugging Face folder."""
    logging.set_verbosity_error()  # it warns of heads that no probe reads
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, add_prefix_space=True, local_files_only=True)
        model = AutoModel.from_pretrained(folder, attn_implementation=attention, dtype=torch.float32,
                                          local_files_only=True)
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} cannot be loaded as an encoder with its tokenizer ({error}); give a folder written "
                         f"by save_pretrained of both") from error
    if not tokenizer.is_fast:
        raise UsageError(f"the tokenizer in {folder} does not say which word a piece belongs to; save its fast version "
                         f"(tokenizer.json) there")
    return model.eval(), tokenizer
