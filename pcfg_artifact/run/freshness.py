"""Whether a finished stage is up to date with this code, this config and these inputs.

A stage's code is its own module and the rooms that the table of stages (run/pipeline.py) lists for it: folders or
single files of the package, each with one hash.  A test compares the lists with what the stages import.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pcfg_artifact.run.sections import as_json
from pcfg_artifact.run.stage_folder import Manifest
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import asked_arithmetic, available_cores, processor

PACKAGE = Path(__file__).parents[1]
VERSIONED = ("numpy", "scipy", "numba", "torch", "transformers", "scikit-learn", "pandas", "datasets")
NOT_DONE = "not done yet"  # why a stage runs that has never run
# What every stage depends on.  run/sections.py is not among it: a stage's section is compared by value.
EVERY_STAGE = ("errors.py", "system", "metrics/schema.py", "metrics/models.py", "treebank", "grammar",
               "run/inputs.py", "run/stage_folder.py")
# What can change the weights of a trained model: single files, since training again takes hours.
WEIGHTS = (*(f"mlm/{name}.py" for name in (
    "data", "forward", "gpt2", "model", "objectives", "optimisers", "packing", "tokenizer", "training")),
    "metrics/models.py", "parsing/masks.py", "system/ragged.py", "system/random_streams.py")


# ---- code -----------------------------------------------------------------------------------------------------------


def stage_code(stage: str, rooms: tuple[str, ...]) -> dict[str, str]:
    """Room -> hash, for all code that a stage depends on."""
    return code_of((f"stages/{stage}.py", *EVERY_STAGE, *rooms))


def code_of(rooms: tuple[str, ...], package: Path = PACKAGE) -> dict[str, str]:
    """Name -> hash, for folders and files of the package."""
    return {room: _hash_of(package / room) for room in rooms}


@cache
def _hash_of(room: Path) -> str:
    """The hash of a file, or of all sources and data files of a folder."""
    if not room.is_dir():
        return storage.sha256(room)
    files = sorted(path for path in room.rglob("*") if path.is_file() and "__pycache__" not in path.parts
                   and not path.name.startswith("."))
    return storage.fingerprint({path.relative_to(room).as_posix(): storage.sha256(path) for path in files})


def versions() -> dict[str, str]:
    return {"python": sys.version.split()[0], **{name: metadata.version(name) for name in VERSIONED},
            "pcfg_artifact": code_hash()}


def code_hash() -> str:
    """A short hash of the whole package."""
    return _hash_of(PACKAGE)[:12]


def provenance(manifests: dict[str, Manifest]) -> str:
    """Commit, versions and machine of one run, in one line."""
    here = PACKAGE.parent

    def git(*arguments: str) -> str:
        found = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=False)
        return found.stdout.strip() if found.returncode == 0 else ""

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = " with local changes" if git("status", "--porcelain", "--", "pcfg_artifact") else ""
    # a stage that newer code did not touch keeps the version it was made with
    found = sorted({pair for manifest in manifests.values() for pair in manifest.versions.items()})
    versions = ", ".join(f"{name} {version}" for name, version in found)
    device = sorted({str(manifest.machine.get("device")) for manifest in manifests.values()})
    seconds = sum(manifest.seconds for manifest in manifests.values())
    asked = "".join(f", {name}={value}" for name, value in asked_arithmetic().items())
    return (f"commit {commit}{changed}; {versions}; {platform.system()} {platform.machine()}, {processor()}, "
            f"{available_cores()} cores, {'/'.join(device)}{asked}; {seconds:.0f} s")


# ---- stages ---------------------------------------------------------------------------------------------------------


def fingerprint(section: Any, inputs: dict[str, str], code: dict[str, str]) -> str:
    return storage.fingerprint({"config": as_json(section), "inputs": inputs, "code": code})


def why_run(manifest: Manifest | None, folder: Path, section: Any, inputs: dict[str, str],
            code: dict[str, str]) -> str | None:
    """Why a stage must run, in words; None if it is done and its files are as its manifest says."""
    if manifest is None:
        return NOT_DONE
    for what, before, now in (("config", manifest.config, as_json(section)),
                              ("input", manifest.inputs, inputs), ("code", manifest.code, code)):
        if changed := _changed(before, now):
            return f"{what} changed: {', '.join(changed)}"
    manifest.verify(folder)
    return None


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    # JSON has no tuples: compare what a manifest can hold.
    return sorted(key for key in before.keys() | now.keys()
                  if storage.fingerprint(before.get(key)) != storage.fingerprint(now.get(key)))
