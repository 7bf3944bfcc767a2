"""The machine: what a stage may use of it, what it has, and what can be known to fail before a run begins.

Everything that asks the system about cores, memory, threads, disks or GPUs does it here.  The checks are pure
functions of `Hardware`, and each problem they return says what to do about it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from pcfg_artifact.system import cgroups

GB = 1 << 30
SHARED_MEMORY = Path("/dev/shm")
DRIVER = Path("/proc/driver/nvidia/version")
WSL_GPU = Path("/dev/dxg")  # the GPU of Windows below; its driver is not in /proc
LEAST_DRIVER = {11: 450, 12: 525, 13: 580}  # CUDA's major version -> NVIDIA's driver, as its release notes say
OLDER_BUILD = ("install a build of the same torch for an older CUDA (CUDA 12 runs with driver 525 and newer, and its "
               "12.6 on compute capability 5.0 and newer): change torch in requirements.txt, or pass PIP_ARGS")
UNKNOWN = "of unknown version"
ARITHMETIC = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE",
              "OPENBLAS_L2_SIZE")
LEAST_MEMORY_GB = 2.0  # below this even the smoke profile dies
LEAST_DISK_GB = 0.5  # beside what the stages write
LEAST_SHARED_GB = 1.0  # NCCL's buffers between the processes of one machine; Docker's default is 0.06


# ---- what a stage may use --------------------------------------------------------------------------------------------


class Machine(NamedTuple):
    """What the running stage may use."""

    device: str
    n_workers: int
    n_gpus: int | None = None  # None: every visible one
    executor: str | None = None  # address of a cluster that does the jobs of a pool; None: this machine
    restarts: int = 0  # of the processes that train a model, after one of them failed
    log: str | None = None  # where training repeats its progress: tensorboard
    scratch: str | None = None  # a folder for hidden states; None: that of their stage
    is_exclusive: bool = False  # whether a GPU serves one process only


def has_torch() -> bool:
    """Whether torch is installed: without it there is no model to train or to run, and no GPU is used."""
    return find_spec("torch") is not None


def usable_device(device: str) -> str:
    if device != "auto" or not has_torch():
        return "cpu" if device == "auto" else device
    import torch  # here, because most stages never need it

    return "cuda" if torch.cuda.is_available() else "cpu"


def available_cores() -> int:
    """Cores this process may use: of those it is bound to, as many as its control group pays for, and at least one."""
    process = psutil.Process()
    cores = len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else psutil.cpu_count() or 1
    limit = cgroups.core_limit()
    return cores if limit is None else max(1, min(cores, int(limit)))


def processor() -> str:
    """The name of the processor, or only its architecture where the system does not say."""
    model = re.search(r"^model name\s*:\s*(.+)$", _read(Path("/proc/cpuinfo")), re.MULTILINE)
    return model[1] if model else platform.machine()


def asked_arithmetic() -> dict[str, str]:
    """What the environment asks of the libraries that calculate: it moves last digits as another processor would."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(ARITHMETIC)}


def available_memory() -> int:
    """Bytes that can be had without swapping, and without being ended by the control group."""
    free, limit = int(psutil.virtual_memory().available), cgroups.memory_limit()
    return free if limit is None else min(free, limit.free)


def total_memory() -> int:
    """Bytes of the machine, or of the part of it that the control group grants."""
    total, limit = int(psutil.virtual_memory().total), cgroups.memory_limit()
    return total if limit is None else min(total, limit.total)


@cache
def can_compile() -> bool:
    """Whether torch.compile can make GPU kernels here: by Triton, which needs a C compiler and Python's headers."""
    return (find_spec("triton") is not None and Path(sysconfig.get_path("include"), "Python.h").is_file()
            and bool(shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")))


def free_gpu_memory(device: str) -> int:
    """Bytes that a GPU still has."""
    import torch  # here, because most stages never need it

    return int(torch.cuda.mem_get_info(device)[0])


@contextmanager
def single_thread() -> Iterator[None]:
    """Torch on one thread: for work of many small steps, where threads mostly wait for each other."""
    import torch  # here, because it takes seconds

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def reset_peak_memory() -> None:
    with suppress(OSError):  # where it is refused the peak covers the whole process: larger, never smaller
        Path("/proc/self/clear_refs").write_text("5")  # Linux: VmHWM starts again at the present size


def peak_memory_mb() -> float:
    """Peak resident memory of this process since the last reset, in MB."""
    peak = re.search(r"^VmHWM:\s+(\d+) kB", _read(Path("/proc/self/status")), re.MULTILINE)
    return int(peak[1]) / 1024 if peak else 0.0


# ---- what it has ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hardware:
    """The facts that decide whether a run can work."""

    memory_gb: float  # free
    total_memory_gb: float
    disk_gb: float  # free at `place`
    place: Path  # the nearest folder of the output that exists
    can_write: bool
    shared_gb: float | None
    gpus: tuple[str, ...] = ()  # those torch can use
    driver: str | None = None  # NVIDIA's, if one is installed
    cuda: str | None = None  # what torch was built for; None is a CPU build
    capabilities: tuple[tuple[int, int], ...] = ()  # of the GPUs: what code they can run
    built_for: tuple[str, ...] = ()  # what code torch holds: sm_75, .., compute_120
    gpu_memory_gb: tuple[float, ...] = ()


@dataclass(frozen=True)
class Need:
    """What a run asks of the machine."""

    device: str  # auto, cpu or cuda
    n_gpus: int | None  # None: whatever there is
    processes: int | None  # of data-parallel training; None: one per GPU
    disk_gb: float


def read_hardware(out: Path) -> Hardware:
    place = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    driver = _driver()
    gpus = _gpus() if has_torch() and (driver is not None or WSL_GPU.exists()) else {}
    if gpus.get("gpus") and driver is None:
        driver = UNKNOWN
    return Hardware(memory_gb=available_memory() / GB, total_memory_gb=total_memory() / GB,
                    disk_gb=shutil.disk_usage(place).free / GB, place=place, can_write=os.access(place, os.W_OK),
                    shared_gb=shutil.disk_usage(SHARED_MEMORY).total / GB if SHARED_MEMORY.is_dir() else None,
                    driver=driver, **gpus)


# ---- what would fail ------------------------------------------------------------------------------------------------


def machine_problems(hardware: Hardware, need: Need) -> list[str]:
    """Why a run with this need would fail on this machine, each with its fix; empty where nothing speaks against it."""
    problems = []
    if hardware.memory_gb < LEAST_MEMORY_GB:
        problems.append(f"{hardware.memory_gb:.1f} GB of memory free, {LEAST_MEMORY_GB:g} GB needed at least; close "
                        f"other programs or give the container more")
    needed_gb = need.disk_gb + LEAST_DISK_GB
    if hardware.disk_gb < needed_gb:
        problems.append(f"{hardware.disk_gb:.1f} GB free at {hardware.place}, {needed_gb:.1f} GB needed; free space or "
                        f"pass another --out")
    if not hardware.can_write:
        problems.append(f"{hardware.place} cannot be written by this user; pass another --out, or in a container mount "
                        f"a folder that user {os.getuid()} may write")
    return problems + gpu_problems(hardware, need)


def gpu_problems(hardware: Hardware, need: Need) -> list[str]:
    if need.device == "cpu":
        return []
    n_gpus, problems = len(hardware.gpus), []
    if need.device == "cuda" and not n_gpus:
        why = unused_gpu(hardware) or "there is no GPU here; run it on a machine with GPUs"
        problems.append(f"{why}, or run on the CPU with --set machine.device=cpu")
    for name, capability in dict(zip(hardware.gpus, hardware.capabilities, strict=False)).items():
        if not can_run(capability, hardware.built_for):
            problems.append(f"{name} has compute capability {capability[0]}.{capability[1]}, and this torch (CUDA "
                            f"{hardware.cuda}) holds code for {', '.join(hardware.built_for)} only; {OLDER_BUILD}, or "
                            f"run on the CPU with --set machine.device=cpu")
    if need.n_gpus is not None and need.n_gpus > n_gpus:
        problems.append(f"{need.n_gpus} GPUs were asked for, {n_gpus} are visible; lower machine.n_gpus, or make more "
                        f"visible (--gpus all, CUDA_VISIBLE_DEVICES)")
    # Training in several processes exchanges gradients through shared memory.
    n_processes = training_processes(hardware, need)
    if n_gpus and n_processes > 1 and hardware.shared_gb is not None and hardware.shared_gb < LEAST_SHARED_GB:
        problems.append(f"/dev/shm has {hardware.shared_gb:.2f} GB, {LEAST_SHARED_GB:g} GB needed to train on "
                        f"{n_processes} GPUs; start the container with --shm-size 8g, or train on one with "
                        f"--set pretrain.processes=1")
    return problems


def can_run(capability: tuple[int, int], built_for: tuple[str, ...]) -> bool:
    """Whether a GPU runs one of these: sm_XY on X.Y and later minor versions, compute_XY on all that are later."""
    for name in built_for:
        kind, _, digits = name.partition("_")
        version = int(re.sub(r"\D", "", digits) or 0)  # sm_90a
        major, minor = divmod(version, 10)
        if (kind == "sm" and major == capability[0] and minor <= capability[1]) or (
                kind == "compute" and (major, minor) <= capability):
            return True
    return not built_for


def training_processes(hardware: Hardware, need: Need) -> int:
    """Processes of one model: as set, or one per GPU, or one."""
    if need.processes is not None:
        return need.processes
    return 1 if need.device == "cpu" else need.n_gpus or len(hardware.gpus) or 1


def unused_gpu(hardware: Hardware) -> str | None:
    """Why a GPU that is there cannot be used, and what to do; None where there is none, or torch can use it."""
    if hardware.driver is None or hardware.gpus or not has_torch():
        return None
    if hardware.cuda is None:
        return f"NVIDIA driver {hardware.driver} is installed, but torch is a CPU build; install torch's default build"
    found = f"NVIDIA driver {hardware.driver} is installed, but torch (CUDA {hardware.cuda}) cannot use a GPU"
    least = LEAST_DRIVER.get(int(hardware.cuda.partition(".")[0]))
    version = hardware.driver.partition(".")[0]
    if least is not None and version.isdecimal() and int(version) < least:
        return f"{found}: that CUDA needs driver {least} or newer; update the driver, or {OLDER_BUILD}"
    return (f"{found}: the container was started without --gpus all, or CUDA_VISIBLE_DEVICES hides them; start it with "
            f"--gpus all, or set the variable")


# ---- looking at the machine -----------------------------------------------------------------------------------------


def _gpus() -> dict[str, Any]:
    """The fields of Hardware that torch knows."""
    import torch  # here, because it takes seconds, and a machine without a driver has no GPU to ask for

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver that is too old: said once, and better, above
        usable = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
        return {"gpus": tuple(map(torch.cuda.get_device_name, usable)), "cuda": torch.version.cuda,
                "capabilities": tuple(map(torch.cuda.get_device_capability, usable)),
                "built_for": tuple(torch.cuda.get_arch_list()),
                "gpu_memory_gb": tuple(torch.cuda.get_device_properties(i).total_memory / GB for i in usable)}


def _driver() -> str | None:
    """The version of NVIDIA's kernel driver, which containers see too, whatever tools they hold."""
    version = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", _read(DRIVER))
    return version[1] if version else UNKNOWN if DRIVER.exists() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
