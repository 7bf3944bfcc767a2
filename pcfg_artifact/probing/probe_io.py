"""Fitted probes as plain tensors and numbers, and back: what a file of them holds.

A fitted probe is a dataclass whose fields are arrays, tensors, numbers, or such groups again; its own type hints say
which, so that a new kind of probe is kept without a word here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import numpy as np
import torch

from pcfg_artifact.errors import UsageError
from pcfg_artifact.probing.probes import PROBES, FittedProbe

Scalars = dict[str, int | float | bool]


def fitted_kind(probe: str) -> type[Any]:
    """The class of a fitted probe, by the probe's name."""
    return get_type_hints(PROBES[probe].fit)["return"]


def tensors_of(fitted: FittedProbe, prefix: str = "") -> tuple[dict[str, torch.Tensor], Scalars]:
    """Every array and every number of a fitted probe, by name."""
    tensors: dict[str, torch.Tensor] = {}
    scalars: Scalars = {}
    for name, _ in _fields(type(fitted)).items():
        value = getattr(fitted, name)
        if _fields(type(value)):
            inner_tensors, inner_scalars = tensors_of(value, f"{prefix}{name}.")
            tensors |= inner_tensors
            scalars |= inner_scalars
        elif isinstance(value, torch.Tensor):
            tensors[prefix + name] = value.detach().cpu().contiguous()
        elif isinstance(value, np.ndarray):
            tensors[prefix + name] = torch.from_numpy(np.ascontiguousarray(value))
        elif value is not None:  # what is None is not there
            scalars[prefix + name] = value
    return tensors, scalars


def probe_of(kind: type[Any], tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any], prefix: str = "") -> Any:
    """The fitted probe whose parts these are."""
    parts: dict[str, Any] = {}
    for name, hint in _fields(kind).items():
        key = prefix + name
        if _fields(hint):
            parts[name] = probe_of(hint, tensors, scalars, f"{key}.")
        elif key in tensors:
            parts[name] = tensors[key] if hint is torch.Tensor else tensors[key].numpy()
        elif key in scalars:
            parts[name] = scalars[key]
        elif type(None) in get_args(hint):
            parts[name] = None
        else:
            raise UsageError(f"the kept probe has no {key!r}; keep it again with --save")
    return kind(**parts)


def _fields(kind: Any) -> dict[str, Any]:
    """Names and types of the parts of a dataclass or a named tuple; nothing for other types."""
    if not isinstance(kind, type):
        return {}
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return get_type_hints(kind) if issubclass(kind, tuple) and hasattr(kind, "_fields") else {}
