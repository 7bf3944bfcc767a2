"""Whether a finished stage still says what this code, this config and these inputs would say.

A stage's code is every source file of the package that it reaches by imports, with the data files those read.  It is
found by reading the sources, not by running them: `from package import name` leads to the module that the package's
`__init__` takes the name from, so that one name does not reach all.
"""

from __future__ import annotations

import ast
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pcfg_artifact import config, storage
from pcfg_artifact.artifacts import Manifest
from pcfg_artifact.machine import asked_arithmetic, available_cores, processor

PACKAGE = Path(__file__).parent
VERSIONED = ("numpy", "scipy", "numba", "torch", "transformers", "scikit-learn", "pandas", "datasets")
DATA = (".yaml", ".html", ".css", ".js")
# Where training begins; what else a trained model could depend on is reached from here.
WEIGHTS = ("pcfg_artifact.mlm.training", "pcfg_artifact.mlm.objectives")
NOT_OF_WEIGHTS = ("artifacts.py", "cgroups.py", "errors.py", "machine.py", "progress.py", "storage.py")
# What config.py does for a stage is the stage's config section, which is compared by value.
COMPARED_BY_VALUE = ("config.py",)


# ---- code -----------------------------------------------------------------------------------------------------------


def stage_code(stage: str) -> dict[str, str]:
    """File below the package -> SHA-256, of everything the stage reaches."""
    return code_of((f"pcfg_artifact.stages.{stage}",))


def weights_code() -> dict[str, str]:
    """The same of the modules that can change the weights of a trained model: narrower than its stage's."""
    return {name: digest for name, digest in code_of(WEIGHTS).items() if name not in NOT_OF_WEIGHTS}


@cache
def code_of(modules: tuple[str, ...], package: Path = PACKAGE) -> dict[str, str]:
    """The same for modules by name."""
    reached: dict[Path, None] = {}
    todo = [path for name in modules for path in _files_of(name, package)]
    while todo:
        path = todo.pop()
        if path not in reached:
            reached[path] = None
            todo += _imports(path, package)
    files = {path.relative_to(package).as_posix(): path for path in (*reached, *_data_files(reached))}
    return {name: storage.sha256(files[name]) for name in sorted(files) if name not in COMPARED_BY_VALUE}


def _files_of(module: str, package: Path) -> Iterator[Path]:
    """The file of a module of ours, and the `__init__` of every package on the way to it; nothing for other modules."""
    place = package
    for part in module.split(".")[1:]:
        place = place / part
        if place.with_suffix(".py").is_file():
            yield place.with_suffix(".py")
        elif (place / "__init__.py").is_file():
            yield place / "__init__.py"


def _imports(path: Path, package: Path) -> list[Path]:
    """Files of ours that the module at `path` imports, wherever in it; an `__init__` only hands names on."""
    if path.name == "__init__.py":
        return []
    found: list[Path] = []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found += [file for alias in node.names if _is_ours(alias.name, package)
                      for file in _files_of(alias.name, package)]
        elif isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module, package):
            for alias in node.names:
                found += _files_of(_source_of(node.module, alias.name, package), package)
    return found


def _is_ours(module: str, package: Path) -> bool:
    return module == package.name or module.startswith(f"{package.name}.")


def _source_of(module: str, name: str, package: Path) -> str:
    """The module behind `from module import name`: itself, a module below it, or where its `__init__` has it from."""
    place = package.joinpath(*module.split(".")[1:])
    if (place / f"{name}.py").is_file() or (place / name / "__init__.py").is_file():
        return f"{module}.{name}"
    if (place / "__init__.py").is_file():
        for node in ast.walk(_tree(place / "__init__.py")):
            if isinstance(node, ast.ImportFrom) and node.module and name in (alias.name for alias in node.names):
                return node.module
    return module


def _data_files(modules: Sequence[Path] | dict[Path, None]) -> Iterator[Path]:
    """Files beside a module that it names in its text: a stage that reads them depends on them."""
    for path in modules:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(DATA):
                file = path.parent / node.value
                if "\n" not in node.value and file.is_file():
                    yield file


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def versions() -> dict[str, str]:
    return {"python": sys.version.split()[0], **{name: metadata.version(name) for name in VERSIONED},
            "pcfg_artifact": code_hash()}


@cache
def code_hash() -> str:
    """Of the package's sources: which code a result comes from, in a repository or an image."""
    sources = sorted(path for kind in ("*.py", *(f"*{suffix}" for suffix in DATA)) for path in PACKAGE.rglob(kind))
    return storage.fingerprint({path.relative_to(PACKAGE).as_posix(): storage.sha256(path) for path in sources})[:12]


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
    return storage.fingerprint({"config": config.as_json(section), "inputs": inputs, "code": code})


def why_run(manifest: Manifest | None, folder: Path, section: Any, inputs: dict[str, str],
            code: dict[str, str]) -> str | None:
    """Why a stage must run, in words; None when it is done, and every file of it is as its manifest says."""
    if manifest is None:
        return "not done yet"
    for what, before, now in (("config", manifest.config, config.as_json(section)),
                              ("input", manifest.inputs, inputs), ("code", manifest.code, code)):
        if changed := _changed(before, now):
            return f"{what} changed: {', '.join(changed)}"
    manifest.verify(folder)
    return None


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    # JSON has no tuples: compare what a manifest can hold.
    return sorted(key for key in before.keys() | now.keys()
                  if storage.fingerprint(before.get(key)) != storage.fingerprint(now.get(key)))
