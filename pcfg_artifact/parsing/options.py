"""Which engine runs, and how: one value that every function above the engines passes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pcfg_artifact.errors import UsageError

Outside = Literal["pruned", "full"]
Precision = Literal["float64", "float32"]


@dataclass(frozen=True)
class EngineOptions:
    """backend: name of an engine (registry.py); "auto" is "cpu", or "torch" where device is another than the CPU.

    outside: "pruned" gives beta where alpha is not 0, "full" gives beta of every non-terminal of the right type.
    device and dtype are for "torch"; n_threads is for "cpu" (None: all cores).  Stages take "cpu" whatever the
    machine: bringing a chart from a GPU to Python costs more than computing it on the CPU.
    """

    backend: str = "auto"
    device: str = "cpu"
    outside: Outside = "pruned"
    dtype: Precision = "float64"
    n_threads: int | None = None

    def __post_init__(self) -> None:
        for name, value, known in (("outside", self.outside, get_args(Outside)),
                                   ("dtype", self.dtype, get_args(Precision))):
            if value not in known:
                raise UsageError(f"{name} {value!r} is unknown; expected {' or '.join(known)}")

    @property
    def is_full(self) -> bool:
        return self.outside == "full"


DEFAULT = EngineOptions()
