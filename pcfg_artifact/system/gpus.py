"""GPUs that a plan knows: memory, and what NVIDIA's data sheets promise of dense half-precision matrix products."""

from __future__ import annotations

import ctypes
import re
from typing import Any, NamedTuple


class Gpu(NamedTuple):
    """name: as people say it; pattern: found in the name that torch gives."""

    name: str
    pattern: str
    memory_gb: float  # of 2**30 bytes
    half_tflops: float  # with sums in single precision
    gigabytes_per_second: float  # of its memory
    multiprocessors: int
    gigahertz: float  # of its fastest clock
    has_double: bool = False  # numbers of 64 bits at half the rate of those of 32, or at the same


# An A100 and a V100 have two sizes of memory: the smaller stands here, and a GPU that is there is asked.
KNOWN = (
    Gpu("RTX 2080 Ti", r"2080 Ti", 10.8, 53.8, 616, 68, 1.55),
    Gpu("T4", r"\bT4\b", 14.6, 65, 320, 40, 1.59),
    Gpu("V100", r"V100", 15.8, 125, 900, 80, 1.53, True),
    Gpu("A10", r"\bA10G?\b", 22, 125, 600, 72, 1.70),
    Gpu("A100", r"A100", 39.4, 312, 1555, 108, 1.41, True),
    Gpu("L40S", r"L40S", 44.4, 362, 864, 142, 2.52),
    Gpu("H100", r"H100", 79.2, 989, 3350, 132, 1.98, True),
)
UNKNOWN = Gpu("unknown GPU", "", 10.8, 50, 600, 68, 1.5)  # taken for a small one
DEFAULT = "A100"  # planned for where there is no GPU


def gpu_of(name: str) -> Gpu:
    """The line of the table for a name as torch gives it."""
    return next((gpu for gpu in KNOWN if re.search(gpu.pattern, name)), UNKNOWN)


# ---- who may use them -----------------------------------------------------------------------------------------------

COMPUTE_MODE, EXCLUSIVE_PROCESS = 20, 3  # names of the driver's interface: an attribute, and one of its values


def are_exclusive(driver: Any = None) -> bool:
    """Whether a visible GPU serves one process only, as `nvidia-smi -c EXCLUSIVE_PROCESS` makes it.

    driver: NVIDIA's library; None: the one of this machine, if there is any.
    """
    if driver is None:
        try:
            driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            return False
    count, gpu, mode = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):  # each says 0 where it succeeds
        return False
    for index in range(count.value):
        if driver.cuDeviceGet(ctypes.byref(gpu), index):
            continue
        if not driver.cuDeviceGetAttribute(ctypes.byref(mode), COMPUTE_MODE, gpu) and mode.value == EXCLUSIVE_PROCESS:
            return True
    return False
