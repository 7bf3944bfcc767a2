"""Check this machine: Python, packages, CPU, memory, disk, GPU and driver; a fix for each problem found.

Exits with 0 when all that the smoke profile needs is there, and with 1 otherwise.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
from importlib import metadata
from pathlib import Path

from pcfg_artifact import config, preflight
from pcfg_artifact.preflight import Machine, Need

EXAMPLE = "run_all.sh doctor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="where a run would write (.)")


def run(args: argparse.Namespace) -> int:
    machine = preflight.read_machine(args.out)
    problems: list[str] = []
    facts = [("Python", _python()), ("packages", _packages(problems)), ("CPU", _cpu()), ("memory", _memory(machine)),
             ("disk", f"{machine.disk_gb:.1f} GB free at {machine.place}"), ("GPU", _gpu(machine)),
             ("/dev/shm", "none" if machine.shared_gb is None else f"{machine.shared_gb:.1f} GB")]
    problems += preflight.machine_problems(machine, Need(device="auto", n_gpus=None, processes=None, disk_gb=0.0))
    if unused := preflight.unused_gpu(machine):
        problems.append(unused)
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


def _memory(machine: Machine) -> str:
    if machine.memory_gb is None:
        return "unknown (no /proc/meminfo)"
    return f"{machine.memory_gb:.1f} of {machine.total_memory_gb:.1f} GB free"


def _gpu(machine: Machine) -> str:
    if machine.gpus:
        return (f"{len(machine.gpus)} x {machine.gpus[0]}, driver {machine.driver or 'unknown'}, "
                f"CUDA {machine.cuda} in torch")
    return f"none; torch {metadata.version('torch')} runs on the CPU"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
