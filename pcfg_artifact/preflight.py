"""What can be known to fail before a run begins: memory, disk, shared memory, GPUs, driver, an incomplete treebank.

`read_machine` looks at the machine; the checks are pure, and each problem they return says what to do about it.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

GB = 1 << 30
SHARED_MEMORY = Path("/dev/shm")
DRIVER = Path("/proc/driver/nvidia/version")
LEAST_MEMORY_GB = 2.0  # below this even the smoke profile dies
LEAST_DISK_GB = 0.5  # beside what the stages write
LEAST_SHARED_GB = 1.0  # NCCL's buffers between the processes of one machine; Docker's default is 0.06


@dataclass(frozen=True)
class Machine:
    """The facts that decide whether a run can work."""

    memory_gb: float | None  # free; None where the system does not say
    total_memory_gb: float | None
    disk_gb: float  # free at `place`
    place: Path  # the nearest folder of the output that exists
    can_write: bool
    shared_gb: float | None
    gpus: tuple[str, ...]  # those torch can use
    driver: str | None  # NVIDIA's, if one is installed
    cuda: str | None  # what torch was built for; None is a CPU build


@dataclass(frozen=True)
class Need:
    """What a run asks of the machine."""

    device: str  # auto, cpu or cuda
    n_gpus: int | None  # None: whatever there is
    processes: int | None  # of data-parallel training; None: one per GPU
    disk_gb: float


def read_machine(out: Path) -> Machine:
    memory = {name: int(value) / (1 << 20) for name, value in
              re.findall(r"^(\w+):\s+(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE)}
    place = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    driver = _driver()
    gpus, cuda = _gpus() if driver is not None else ((), None)
    return Machine(memory_gb=memory.get("MemAvailable"), total_memory_gb=memory.get("MemTotal"),
                   disk_gb=shutil.disk_usage(place).free / GB, place=place, can_write=os.access(place, os.W_OK),
                   shared_gb=shutil.disk_usage(SHARED_MEMORY).total / GB if SHARED_MEMORY.is_dir() else None,
                   gpus=gpus, driver=driver, cuda=cuda)


def machine_problems(machine: Machine, need: Need) -> list[str]:
    """Why a run with this need would fail on this machine, each with its fix; empty where nothing speaks against it."""
    problems = []
    if machine.memory_gb is not None and machine.memory_gb < LEAST_MEMORY_GB:
        problems.append(f"{machine.memory_gb:.1f} GB of memory free, {LEAST_MEMORY_GB:g} GB needed at least; close "
                        f"other programs or give the container more")
    wanted = need.disk_gb + LEAST_DISK_GB
    if machine.disk_gb < wanted:
        problems.append(f"{machine.disk_gb:.1f} GB free at {machine.place}, {wanted:.1f} GB needed; free space or pass "
                        f"another --out")
    if not machine.can_write:
        problems.append(f"{machine.place} cannot be written by this user; pass another --out, or in a container mount "
                        f"a folder that user {os.getuid()} may write")
    return problems + gpu_problems(machine, need)


def gpu_problems(machine: Machine, need: Need) -> list[str]:
    if need.device == "cpu":
        return []
    n_gpus, problems = len(machine.gpus), []
    if need.device == "cuda" and not n_gpus:
        why = unused_gpu(machine) or "there is no GPU here; run it on a machine with GPUs"
        problems.append(f"{why}, or run on the CPU with --set machine.device=cpu")
    if need.n_gpus is not None and need.n_gpus > n_gpus:
        problems.append(f"{need.n_gpus} GPUs were asked for, {n_gpus} are visible; lower machine.n_gpus, or make more "
                        f"visible (--gpus all, CUDA_VISIBLE_DEVICES)")
    # Training in several processes exchanges gradients through shared memory.
    n_processes = need.processes if need.processes is not None else need.n_gpus or n_gpus
    if n_gpus and n_processes > 1 and machine.shared_gb is not None and machine.shared_gb < LEAST_SHARED_GB:
        problems.append(f"/dev/shm has {machine.shared_gb:.2f} GB, {LEAST_SHARED_GB:g} GB needed to train on "
                        f"{n_processes} GPUs; start the container with --shm-size 8g, or train on one with "
                        f"--set pretrain.processes=1")
    return problems


def unused_gpu(machine: Machine) -> str | None:
    """Why a GPU that is there cannot be used, and what to do; None where there is none, or torch can use it."""
    if machine.driver is None or machine.gpus:
        return None
    if machine.cuda is None:
        return f"NVIDIA driver {machine.driver} is installed, but torch is a CPU build; install torch's default build"
    return (f"NVIDIA driver {machine.driver} is installed, but torch (CUDA {machine.cuda}) cannot use a GPU: the "
            f"driver is too old for that CUDA, or the container was started without --gpus all; update the driver, or "
            f"start the container with it")


def treebank_problems(sections: Mapping[str, int], wanted: tuple[str, ...], test: str, n_train: int,
                      n_test: int) -> list[str]:
    """Whether a Wall Street Journal is the complete one; `sections`: section -> trees found.

    A source without any of the wanted sections is another treebank, and not judged here.
    """
    if not any(section in sections for section in (*wanted, test)):
        return []
    missing = [section for section in (*wanted, test) if not sections.get(section)]
    counts = ", ".join(f"{section}: {sections.get(section, 0):,}" for section in (*wanted, test))
    found = sum(sections.get(section, 0) for section in wanted), sections.get(test, 0)
    if found == (n_train, n_test):
        return []
    what = f"sections {', '.join(missing)} are missing" if missing else "some sections are incomplete"
    return [f"the Penn Treebank is not complete, {what}: {found[0]:,} trees in sections {wanted[0]}-{wanted[-1]} and "
            f"{found[1]:,} in section {test}, expected {n_train:,} and {n_test:,} (found {counts}); mount the whole "
            f"wsj folder of the treebank's third release, or judge it as another treebank with the profile reduced"]


# ---- looking at the machine -----------------------------------------------------------------------------------------


def _gpus() -> tuple[tuple[str, ...], str | None]:
    import torch  # here, because it takes seconds, and a machine without a driver has no GPU to ask for

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver that is too old: said once, and better, above
        usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return tuple(torch.cuda.get_device_name(i) for i in range(usable)), torch.version.cuda


def _driver() -> str | None:
    """The version of NVIDIA's kernel driver, which containers see too, whatever tools they hold."""
    version = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", _read(DRIVER))
    return version[1] if version else "of unknown version" if DRIVER.exists() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
