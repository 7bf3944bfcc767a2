"""Check this machine: Python, packages, CPU, memory, disk, GPU and driver; a fix for each problem found.

Exits with 0 when all that the smoke profile needs is there, and with 1 otherwise.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from pcfg_artifact import config

EXAMPLE = "run_all.sh doctor"
GB = 1 << 30
LEAST_MEMORY_GB, LEAST_DISK_GB, LEAST_SHM_GB = 4, 2, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="where a run would write (.)")


def run(args: argparse.Namespace) -> int:
    problems: list[str] = []
    facts = [("Python", _python()), ("packages", _packages(problems)), ("CPU", _cpu()),
             ("memory", _memory(problems)), ("disk", _disk(args.out, problems)), ("GPU", _gpu(problems)),
             ("/dev/shm", _shared_memory(problems))]
    for name, text in facts:
        print(f"{name:<10} {text}")
    for problem in problems:
        print(f"problem: {problem}")
    print("no problem found" if not problems else f"{len(problems)} problem(s) found")
    return 1 if problems else 0


def _python() -> str:
    return f"{platform.python_version()} on {platform.platform()}"


def _packages(problems: list[str]) -> str:
    requirements = Path(__file__).parents[2] / "requirements.txt"
    if not requirements.is_file():
        return "requirements.txt is not beside the package; versions not compared"
    wanted = dict(re.findall(r"^([\w.-]+)==([\w.]+)", requirements.read_text(encoding="utf-8"), re.MULTILINE))
    wrong = []
    for name, version in wanted.items():
        try:
            found = metadata.version(name).partition("+")[0]  # +cpu, +cu130: the build, not the version
        except metadata.PackageNotFoundError:
            found = "missing"
        if found != version:
            wrong.append(f"{name} {found} (wanted {version})")
    if wrong:
        problems.append(f"packages differ from requirements.txt: {', '.join(wrong)}; delete .venv and run run_all.sh "
                        f"again, or rebuild the image")
    return f"{len(wanted) - len(wrong)} of {len(wanted)} as in requirements.txt"


def _cpu() -> str:
    model = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return f"{config.available_cores()} of {os.cpu_count()} cores usable, {model[1] if model else platform.machine()}"


def _memory(problems: list[str]) -> str:
    lines = re.findall(r"^(\w+):\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    kilobytes = {name: int(value) for name, value in lines}
    if not kilobytes:
        return "unknown (no /proc/meminfo)"
    total, free = kilobytes["MemTotal"] / (1 << 20), kilobytes["MemAvailable"] / (1 << 20)
    if free < LEAST_MEMORY_GB:
        problems.append(f"{free:.1f} GB of memory free, {LEAST_MEMORY_GB} GB needed; close other programs or give the "
                        f"container more")
    return f"{free:.1f} of {total:.1f} GB free"


def _disk(out: Path, problems: list[str]) -> str:
    place = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free / GB
    if free < LEAST_DISK_GB:
        problems.append(f"{free:.1f} GB free at {place}, {LEAST_DISK_GB} GB needed; free space or pass another --out")
    if not os.access(place, os.W_OK):
        problems.append(f"{place} cannot be written; pass another --out")
    return f"{free:.1f} GB free at {place}"


def _gpu(problems: list[str]) -> str:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return f"{len(names)} x {names[0]}, driver {_driver() or 'unknown'}, CUDA {torch.version.cuda} in torch"
    driver = _driver()
    if driver and torch.version.cuda:
        problems.append(f"driver {driver} is there but torch (CUDA {torch.version.cuda}) sees no GPU; update the "
                        f"driver, or start the container with --gpus all")
    elif driver:
        problems.append(f"driver {driver} is there but torch is a CPU build; install torch's CUDA build to use the GPU")
    return f"none; torch {torch.__version__} runs on the CPU"


def _driver() -> str | None:
    if not shutil.which("nvidia-smi"):
        return None
    asked = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                           capture_output=True, text=True, check=False, timeout=30)
    return asked.stdout.split("\n")[0].strip() or None if asked.returncode == 0 else None


def _shared_memory(problems: list[str]) -> str:
    if not Path("/dev/shm").is_dir():
        return "none"
    size = shutil.disk_usage("/dev/shm").total / GB
    import torch

    if torch.cuda.device_count() > 1 and size < LEAST_SHM_GB:
        problems.append(f"/dev/shm has {size:.2f} GB, {LEAST_SHM_GB} GB needed for several GPUs; start the container "
                        f"with --shm-size 8g")
    return f"{size:.1f} GB"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
