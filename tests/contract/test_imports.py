"""The folders tell the architecture: imports point one way, and libraries touch neither disk nor terminal."""

import ast
from pathlib import Path

import pytest

import pcfg_artifact

ROOT = Path(pcfg_artifact.__file__).parent
# Each level may import from its own folder and from the levels below it.
LEVELS = [
    {"__main__"},
    {"cli"},
    {"tools"},
    {"pipeline"},
    {"planning"},
    {"stages"},
    {"workers"},
    {"records"},
    {"inputs"},
    {"verification", "probing", "mlm", "constructions"},
    {"approximation"},
    {"parsing"},
    {"grammar"},
    {"treebank"},
    {"freshness"},
    {"config"},
    {"artifacts"},
    {"storage"},
    {"errors", "seeding", "machine", "progress", "ragged"},
]
LEVEL = {name: depth for depth, names in enumerate(LEVELS) for name in names}
LIBRARIES = {"verification", "probing", "mlm", "constructions", "approximation", "parsing", "grammar", "treebank"}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT)


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_parts(tree: ast.AST):
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.startswith("pcfg_artifact."):
                yield name.split(".")[1]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    here = part(path)
    assert here in LEVEL, f"{here} has no level: say where it stands"
    for other in imported_parts(ast.parse(path.read_text())):
        assert other == here or LEVEL[other] > LEVEL[here], f"{here} imports {other}"


# The treebank reader opens what the user names, the embedded treebank its own source, the cpu engine asks the kernel
# how much memory is free; Hugging Face folders are opened by transformers itself.
MAY_OPEN = {"treebank/reading.py", "treebank/embedded.py", "parsing/cpu.py"}


@pytest.mark.parametrize("path", [p for p in MODULES if part(p) in LIBRARIES], ids=lambda p: str(p.relative_to(ROOT)))
def test_libraries_print_nothing_and_open_no_file(path):
    called = {node.func.id for node in ast.walk(ast.parse(path.read_text()))
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert "print" not in called
    if path.relative_to(ROOT).as_posix() not in MAY_OPEN:
        assert "open" not in called


def test_there_is_no_folder_or_file_without_a_concept():
    assert not [p for p in MODULES if p.stem in {"utils", "helpers", "common", "misc"}]
