"""Which engine runs, and how: one value that every function above the engines passes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pcfg_artifact.errors import UsageError

Outside = Literal["pruned", "full"]
Precision = Literal["auto", "float64", "float32"]


@dataclass(frozen=True)
class EngineOptions:
    """backend: name of an engine (registry.py); "auto" is "cpu", or "gpu" where device is another than the CPU.

    outside: "pruned" gives beta where alpha is not 0, "full" gives beta of every non-terminal of the right type.
    device and dtype are for "gpu", whose device "cpu" is the first GPU; dtype "auto" is float64 where the GPU has it at
    half rate, and float32 with exponents elsewhere.  n_threads is for "cpu" (None: all cores).
    """

    backend: str = "auto"
    device: str = "cpu"
    outside: Outside = "pruned"
    dtype: Precision = "auto"
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
