"""Check this machine: Python, packages, CPU, memory, disk, GPU and driver; a fix for each problem found.

Exits with 0 when all that the smoke profile needs is there, and with 1 otherwise.  With --gpu it also tries the GPUs
for two minutes: two training steps of every model of a profile with its real batch, a sum over all GPUs, fits, hidden
states and charts, and prints what they take beside the plan.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
from importlib import metadata
from pathlib import Path

from pcfg_artifact.errors import StageError
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.training_plan import memory_problems
from pcfg_artifact.system import machine
from pcfg_artifact.system.machine import Hardware, Need

EXAMPLE = "run_all.sh doctor --gpu"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="where a run would write (.)")
    parser.add_argument("--gpu", action="store_true", help="try the GPUs: two minutes")
    parser.add_argument("--profile", default="paper", help="whose models --gpu trains (paper)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
                        help="change one value of the profile")


def run(args: argparse.Namespace) -> int:
    hardware = machine.read_hardware(args.out)
    problems: list[str] = []
    facts = [("Python", f"{platform.python_version()} on {platform.platform()}"), ("packages", _packages(problems)),
             ("CPU", f"{machine.available_cores()} of {os.cpu_count()} cores usable, {machine.processor()}"),
             ("memory", f"{hardware.memory_gb:.1f} of {hardware.total_memory_gb:.1f} GB free"),
             ("disk", f"{hardware.disk_gb:.1f} GB free at {hardware.place}"), ("GPU", _gpu(hardware)),
             ("/dev/shm", "none" if hardware.shared_gb is None else f"{hardware.shared_gb:.1f} GB")]
    if asked := machine.asked_arithmetic():
        facts.append(("arithmetic", f"{', '.join(f'{name}={value}' for name, value in asked.items())}: last digits may "
                                    f"differ from the recorded ones"))
    problems += machine.machine_problems(hardware, Need(device="auto", n_gpus=None, processes=None, disk_gb=0.0))
    if unused := machine.unused_gpu(hardware):
        problems.append(unused)
    for name, text in facts:
        print(f"{name:<10} {text}")
    for problem in problems:
        print(f"problem: {problem}")
    if args.gpu and not problems:
        problems += _tried(args, hardware)
    print("no problem found" if not problems else f"{len(problems)} problem(s) found")
    return 1 if problems else 0


def _tried(args: argparse.Namespace, hardware: Hardware) -> list[str]:
    """Try every GPU; the problem that was found, if any."""
    from pcfg_artifact.workers.gpu_trial import run_trial  # here, because it brings torch

    profile = load_profile(args.profile, args.settings)
    if not hardware.gpus:
        found = ["there is no GPU here to try; run it on a machine with GPUs"]
    else:
        found = memory_problems(profile, hardware)
        try:
            if not found:
                run_trial(profile, print)
        except StageError as error:
            found = [str(error)]
    for problem in found:
        print(f"problem: {problem}")
    return found


def _packages(problems: list[str]) -> str:
    requirements = Path(__file__).parents[2] / "requirements.txt"
    if not requirements.is_file():
        return "requirements.txt is not beside the package; versions not compared"
    required = dict(re.findall(r"^([\w.-]+)==([\w.]+)", requirements.read_text(encoding="utf-8"), re.MULTILINE))
    wrong = []
    for name, version in required.items():
        try:
            found = metadata.version(name).partition("+")[0]  # +cpu, +cu130: the build, not the version
        except metadata.PackageNotFoundError:
            found = "missing"
        if found != version:
            wrong.append(f"{name} {found} (required {version})")
    if wrong:
        problems.append(f"packages differ from requirements.txt: {', '.join(wrong)}; delete .venv and run run_all.sh "
                        f"again, or rebuild the image")
    return f"{len(required) - len(wrong)} of {len(required)} as in requirements.txt"


def _gpu(hardware: Hardware) -> str:
    if hardware.gpus:
        return (f"{len(hardware.gpus)} x {hardware.gpus[0]}, driver {hardware.driver or 'unknown'}, "
                f"CUDA {hardware.cuda} in torch")
    if not machine.has_torch():
        return "none is used without torch, which the extra `models` brings"
    return f"none; torch {metadata.version('torch')} runs on the CPU"
