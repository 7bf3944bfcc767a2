"""The folders tell the architecture: imports point one way, and libraries touch neither disk nor terminal."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import pcfg_artifact

ROOT = Path(pcfg_artifact.__file__).parent
# Each floor may import from its own rooms, in the order they stand here, and from the floors below it.
FLOORS = [
    [["__main__"], ["cli"]],
    [["tools"], ["results"]],  # 7
    [["stages"], ["workers"]],  # 6
    [["run"]],  # 5
    [["judge"]],  # 4
    [["interventions"], ["probing", "mlm", "constructions"], ["approximation"]],  # 3
    [["parsing"]],  # 2
    [["grammar"], ["treebank"]],  # 1
    [["metrics", "system"]],  # 0
    [["errors"]],
]
LEVEL = {name: depth for depth, names in enumerate(rooms for floor in FLOORS for rooms in floor) for name in names}
LIBRARIES = {"interventions", "judge", "metrics", "probing", "mlm", "constructions", "approximation", "parsing",
             "grammar", "treebank"}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT)


OF_THE_PACKAGE = ("__version__", "exports")


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
            if name.startswith("pcfg_artifact.") and name.split(".")[1] not in OF_THE_PACKAGE:
                yield name.split(".")[1]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    here = part(path)
    assert here in LEVEL, f"{here} has no level: say where it stands"
    for other in imported_parts(ast.parse(path.read_text())):
        assert other == here or LEVEL[other] > LEVEL[here], f"{here} imports {other}"


# Every way to open a file that the package has a use for; a library that calls one of them says here what for.
OPENING = {"open", "atomic_open", "read_text", "read_bytes", "write_text", "write_bytes", "load_from_disk", "ZipFile",
           "from_pretrained", "save_pretrained", "load_file", "save_file", "memmap", "open_memmap", "fromfile",
           "tofile", "save_bundle", "load_bundle", "iterdir", "rglob", "unlink", "mkdir"}
NUMPY = {"load", "save", "savez", "savez_compressed"}  # only as np.load and so on: a grammar has a `load` of its own
MAY_OPEN = {
    "treebank/reading.py": "opens what the user names, and the embedded trees",
    "treebank/arrow.py": "opens the dataset that the user names",
    "grammar/pcfg.py": "PCFG.save and PCFG.load are the format of a grammar folder",
    "grammar/latent.py": "as PCFG",
    "grammar/sources.py": "opens the grammar that the user names",
    "grammar/zoo_grammars.py": "reads cfg3_rules.json, which is part of the package",
    "constructions/constructed_model.py": "save_pretrained and from_pretrained are the format of a model folder",
    "mlm/encoders.py": "loads the model folder that the user names",
    "judge/report.py": "reads its template, which is part of the package",
    "metrics/views.py": "reads views.yaml, which is part of the package",
}


def openings(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            of_numpy = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "np"
            if name in OPENING or (of_numpy and name in NUMPY):
                found.add(name)
    return found


@pytest.mark.parametrize("path", [p for p in MODULES if part(p) in LIBRARIES], ids=lambda p: str(p.relative_to(ROOT)))
def test_libraries_print_nothing_and_open_no_file(path):
    called = {node.func.id for node in ast.walk(ast.parse(path.read_text()))
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert "print" not in called
    # An entry that opens nothing would hide the day when it does.
    assert bool(openings(path)) == (path.relative_to(ROOT).as_posix() in MAY_OPEN), openings(path)


@pytest.mark.parametrize("line", ["open(p)", "Path(p).open()", "p.read_text()", "np.load(p)", "zipfile.ZipFile(p)",
                                  "AutoModel.from_pretrained(p)", "np.lib.format.open_memmap(p)"])
def test_every_way_to_open_a_file_is_seen(line, tmp_path):
    (tmp_path / "module.py").write_text(f"x = {line}\n")
    assert openings(tmp_path / "module.py")


@pytest.mark.parametrize(("room", "other"), [("tools", "stages"), ("stages", "tools"), ("stages", "stages")])
def test_tools_and_stages_do_not_import_each_other(room, other):
    for path in (ROOT / room).glob("*.py"):
        names = [node.module or "" for node in ast.walk(ast.parse(path.read_text()))
                 if isinstance(node, ast.ImportFrom)]
        assert not [name for name in names if name.startswith(f"pcfg_artifact.{other}")], path


def test_file_names_are_unique_so_that_a_name_says_which_file_is_meant():
    names = Counter(path.name for path in MODULES if path.name != "__init__.py")
    assert [name for name, n in names.items() if n > 1] == []


def test_there_is_no_folder_or_file_without_a_concept():
    assert not [p for p in MODULES if p.stem in {"utils", "helpers", "common", "misc"}]


def test_class_names_are_unique_so_that_one_noun_means_one_thing():
    names = Counter(node.name for path in MODULES for node in ast.parse(path.read_text()).body
                    if isinstance(node, ast.ClassDef))
    assert [name for name, n in names.items() if n > 1] == []
