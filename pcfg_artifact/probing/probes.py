"""The role of a probe, and the registry of those there are.

To add one: a class that plays the role in a file of its own, an entry in PROBES, and its name in a profile's list
`probe.probes`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pcfg_artifact.errors import ConfigError
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
