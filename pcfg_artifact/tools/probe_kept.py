"""Probes kept by `probe --save`, and applied to other text by `probe --load`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from pcfg_artifact.errors import UsageError
from pcfg_artifact.probing.probe_io import fitted_kind, probe_of, tensors_of
from pcfg_artifact.probing.probes import PROBES, FittedProbe
from pcfg_artifact.system import storage

WEIGHTS, ABOUT = "probes.safetensors", "probes.json"
FORMAT, VERSION = "pcfg_artifact probes", 1


def save_probes(folder: Path, probes: list[FittedProbe], args: argparse.Namespace, width: int) -> None:
    """One probe a layer, with what it reads."""
    tensors: dict[str, torch.Tensor] = {}
    scalars: dict[str, Any] = {}
    for layer, fitted in enumerate(probes):
        some_tensors, some_scalars = tensors_of(fitted, f"{layer}.")
        tensors |= some_tensors
        scalars |= some_scalars
    storage.write_bytes(folder / WEIGHTS, save(tensors, metadata={"format": "pt"}))
    storage.write_json(folder / ABOUT, {
        "format": FORMAT, "version": VERSION, "probe": args.probe, "input": args.input, "pooling": args.pooling,
        "layers": len(probes), "hidden_size": width, "model": args.model.name, "treebank": str(args.treebank),
        "training_sentences": args.train, "numbers": scalars})


def load_probes(folder: Path, n_layers: int, width: int) -> tuple[dict[str, Any], list[FittedProbe]]:
    """What save_probes wrote, for a model with this many layers and dimensions: what it says, and a probe a layer."""
    if not (folder / ABOUT).is_file():
        raise UsageError(f"{folder / ABOUT} not found; --load is a folder that `probe --save DIR` wrote")
    about = storage.read_json(folder / ABOUT)
    if not isinstance(about, dict) or about.get("format") != FORMAT or about.get("version") != VERSION \
            or about.get("probe") not in PROBES:
        raise UsageError(f"{folder / ABOUT} does not describe probes of this release; keep them again with --save")
    try:
        if (about["layers"], about["hidden_size"]) != (n_layers, width):
            raise UsageError(f"the probes in {folder} read {about['layers']} layers of {about['hidden_size']} "
                             f"dimensions (of {about['model']}); the model has {n_layers} of {width}: give the model "
                             f"they were fitted to")
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        kind = fitted_kind(about["probe"])
        return about, [probe_of(kind, tensors, about["numbers"], f"{layer}.") for layer in range(n_layers)]
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise UsageError(f"the probes in {folder} are damaged ({error}); keep them again with --save") from error
