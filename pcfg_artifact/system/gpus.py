"""GPUs that a plan knows: memory, and what NVIDIA's data sheets promise of dense half-precision matrix products."""

from __future__ import annotations

import re
from typing import NamedTuple


class Gpu(NamedTuple):
    """name: as people say it; pattern: found in the name that torch gives."""

    name: str
    pattern: str
    memory_gb: float  # of 2**30 bytes
    half_tflops: float  # with sums in single precision
    gigabytes_per_second: float  # of its memory


# An A100 and a V100 have two sizes of memory: the smaller stands here, and a GPU that is there is asked.
KNOWN = (
    Gpu("RTX 2080 Ti", r"2080 Ti", 10.8, 53.8, 616),
    Gpu("T4", r"\bT4\b", 14.6, 65, 320),
    Gpu("V100", r"V100", 15.8, 125, 900),
    Gpu("A10", r"\bA10G?\b", 22, 125, 600),
    Gpu("A100", r"A100", 39.4, 312, 1555),
    Gpu("L40S", r"L40S", 44.4, 362, 864),
    Gpu("H100", r"H100", 79.2, 989, 3350),
)
UNKNOWN = Gpu("unknown GPU", "", 10.8, 50, 600)  # taken for a small one
DEFAULT = "A100"  # planned for where there is no GPU


def gpu_of(name: str) -> Gpu:
    """The line of the table for a name as torch gives it."""
    return next((gpu for gpu in KNOWN if re.search(gpu.pattern, name)), UNKNOWN)
