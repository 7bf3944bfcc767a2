"""The role of a probe, and the registry of those there are.

To add one: a class that plays the role in a file of its own, an entry in PROBES, and its name in a profile's list
`probe.probes`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, get_args, get_type_hints

import numpy as np
import torch

from pcfg_artifact.errors import ConfigError, UsageError
from pcfg_artifact.probing.linear_probe import LinearProbe
from pcfg_artifact.probing.two_layer_probe import TwoLayerProbe


class FittedProbe(Protocol):
    """A probe after its fit, for S seeds at once."""

    @property
    def facts(self) -> Mapping[str, float | bool | None]:
        """What is worth knowing about the fit, such as whether it converged; not part of any table."""
        ...

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(S, n) answers for inputs x (n, D) float32: labels if the targets were integers, numbers otherwise."""
        ...


class Probe(Protocol):
    """A way to learn targets from hidden states: a dataclass whose fields are its options, with their defaults."""

    @property
    def name(self) -> str:
        """As in profiles and in the rows of the tables."""
        ...

    @property
    def has_seeds(self) -> bool:
        """Whether a fit depends on a seed: it is then fitted for several, otherwise for the first alone."""
        ...

    @property
    def uses_gpu(self) -> bool: ...

    def fit(self, x: np.ndarray, targets: np.ndarray, seeds: Sequence[int], *, device: str = "cpu",
            overwrite_x: bool = False) -> FittedProbe:
        """Fit to inputs x (n, D) float32 and targets (n,): classes if they are integers, numbers otherwise.

        overwrite_x=True saves the memory of a copy; device is cpu unless the probe uses a GPU.
        """
        ...


PROBES: dict[str, type[Any]] = {probe.name: probe for probe in (LinearProbe, TwoLayerProbe)}


def check_names(names: Iterable[str]) -> None:
    """Refuse a name that the registry does not have."""
    for name in names:
        if name not in PROBES:
            raise ConfigError(f"'probe.probes' names {name!r}, expected some of {', '.join(PROBES)}; a new probe is "
                              f"registered in pcfg_artifact/probing/probes.py")


def build_probes(names: Sequence[str], options: Mapping[str, Any]) -> dict[str, Probe]:
    """The named probes, each with those of the options that are its fields."""
    check_names(names)
    return {name: PROBES[name](**{field.name: options[field.name] for field in dataclasses.fields(PROBES[name])
                                  if field.name in options}) for name in names}


def shown_probe(preferred: str, names: Iterable[str]) -> str:
    """The probe that the paper shows, or the first of a run without it."""
    names = tuple(names)
    return preferred if preferred in names else names[0]


# ---- fitted probes as plain tensors and numbers, and back ------------------------------------------------------------
# A fitted probe is a dataclass whose fields are arrays, tensors, numbers, or such groups again; its own type hints say
# which, so that a new kind of probe is saved without a word here.

Scalars = dict[str, int | float | bool]


def tensors_of(fitted: FittedProbe, prefix: str = "") -> tuple[dict[str, torch.Tensor], Scalars]:
    """Every array and every number of a fitted probe, by name."""
    tensors: dict[str, torch.Tensor] = {}
    scalars: Scalars = {}
    for name in _fields(type(fitted)):
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


def probe_of(probe: str, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any], prefix: str = "") -> Any:
    """The fitted probe whose parts these are; probe: its name."""
    return _assembled(get_type_hints(PROBES[probe].fit)["return"], tensors, scalars, prefix)


def _assembled(kind: type[Any], tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any], prefix: str) -> Any:
    parts: dict[str, Any] = {}
    for name, hint in _fields(kind).items():
        key = prefix + name
        if _fields(hint):
            parts[name] = _assembled(hint, tensors, scalars, f"{key}.")
        elif key in tensors:
            parts[name] = tensors[key] if hint is torch.Tensor else tensors[key].numpy()
        elif key in scalars:
            parts[name] = scalars[key]
        elif type(None) in get_args(hint):
            parts[name] = None
        else:
            raise UsageError(f"the saved probe has no {key!r}; keep it again with --save")
    return kind(**parts)


def _fields(kind: Any) -> dict[str, Any]:
    """Names and types of the parts of a dataclass or a named tuple; nothing for other types."""
    has_parts = isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"))
    return get_type_hints(kind) if has_parts else {}
