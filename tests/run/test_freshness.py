"""A stage is made again when a room that it depends on changed, and only then."""

import ast
import shutil
from pathlib import Path

import pytest

from pcfg_artifact.run import freshness, pipeline
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.stage_folder import Manifest

PACKAGE = freshness.PACKAGE
# A stage's config section is compared by value, and what is asked here changes no number.
OF_NO_STAGE = {"run/sections.py", "run/freshness.py"}
# How files are written and what the machine is; no weight depends on them.
NOT_OF_WEIGHTS = {"errors.py", "system/machine.py", "system/cgroups.py", "system/gpus.py", "system/progress.py",
                  "system/storage.py",
                  "run/stage_folder.py"}
EVERYWHERE = {stage.name for stage in pipeline.STAGES}


# ---- the lists are those of the imports ------------------------------------------------------------------------------


def files_of(module: str) -> set[Path]:
    """The file of a module of ours, or all files of a package, since an `__init__` hands on the names of any."""
    place = PACKAGE.joinpath(*module.split(".")[1:])
    if place == PACKAGE:
        return set()
    return {place.with_suffix(".py")} if place.with_suffix(".py").is_file() else set(place.glob("*.py"))


def reached(*modules: str) -> set[str]:
    """Files below the package that the modules import, they themselves among them."""
    todo, found = [PACKAGE / module for module in modules], set()
    while todo:
        path = todo.pop()
        if path in found or path.relative_to(PACKAGE).as_posix() in OF_NO_STAGE:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                below = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if PACKAGE.joinpath(*name.split(".")[1:]).is_dir() or
                         PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py").is_file() else node.module
                         for name in below]
            else:
                continue
            todo += [file for name in names if name.split(".")[0] == PACKAGE.name for file in files_of(name)]
    return {path.relative_to(PACKAGE).as_posix() for path in found if path.name != "__init__.py"}


def is_in(file: str, rooms) -> bool:
    return any(file == room or file.startswith(f"{room}/") for room in rooms)


@pytest.mark.parametrize("stage", pipeline.STAGES, ids=lambda stage: stage.name)
def test_the_rooms_of_a_stage_are_those_of_its_imports(stage):
    listed, files = freshness.stage_code(stage.name, stage.rooms), reached(f"stages/{stage.name}.py")
    assert not sorted(file for file in files if not is_in(file, listed)), "is imported, and not among the stage's rooms"
    assert not [room for room in stage.rooms if not any(is_in(file, [room]) for file in files)], "is not imported"
    rooms = [*freshness.EVERY_STAGE, *stage.rooms]
    assert not [room for n, room in enumerate(rooms) if is_in(room, rooms[:n] + rooms[n + 1:])
                and not room.startswith("metrics/")], "is listed twice"  # the judge reads all of metrics/


def test_the_files_of_the_weights_are_those_that_training_imports():
    assert set(freshness.WEIGHTS) == reached("mlm/training.py", "mlm/objectives.py") - NOT_OF_WEIGHTS


# ---- what a change concerns ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """A copy of the package's sources that a test may change."""
    copy = tmp_path_factory.mktemp("copy") / "pcfg_artifact"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def rooms_changed(package: Path, file: str) -> dict[str, set[str]]:
    """Stage, or "weights" -> the rooms whose hash differs after a line was added to `file`; stages without left out."""
    def code():
        freshness._hash_of.cache_clear()
        return {**{stage.name: freshness.code_of(tuple(freshness.stage_code(stage.name, stage.rooms)), package)
                   for stage in pipeline.STAGES}, "weights": freshness.code_of(freshness.WEIGHTS, package)}

    before, text = code(), (package / file).read_text()
    (package / file).write_text(text + "\n")
    after = code()
    (package / file).write_text(text)
    changed = {name: {room for room in before[name] if before[name][room] != after[name][room]} for name in before}
    return {name: rooms for name, rooms in changed.items() if rooms}


@pytest.mark.parametrize(("file", "room", "stages"), [
    ("judge/report.html", "judge", {"verify"}),
    ("judge/claims.py", "judge", {"verify"}),
    ("metrics/views.yaml", "metrics", {"verify"}),
    ("constructions/relative.py", "constructions", {"construct", "intervene"}),
    ("interventions/effects.py", "interventions", {"intervene", "dynamics"}),
    ("probing/linear_probe.py", "probing", {"probe", "control", "attention", "incremental", "intervene", "dynamics"}),
    ("mlm/exact_comparison.py", "mlm", {"pretrain", "incremental", "intervene", "dynamics"}),
    ("workers/trainer.py", "workers", {"pretrain", "probe", "control", "incremental", "intervene", "dynamics"}),
    ("stages/probe.py", "stages/probe.py", {"probe"}),
    ("treebank/tree.py", "treebank", EVERYWHERE),
    ("run/config.py", "", set()),
    ("run/sections.py", "", set()),
    ("run/plan.py", "", set()),
    ("tools/doctor.py", "", set()),
])
def test_a_changed_file_concerns_the_stages_with_its_room_and_trains_no_model_again(
        package, file, room, stages):
    assert rooms_changed(package, file) == {stage: {room} for stage in stages}


@pytest.mark.parametrize("file", freshness.WEIGHTS)
def test_a_file_that_can_change_weights_trains_models_again(package, file):
    changed = rooms_changed(package, file)
    assert changed["weights"] == {file}
    assert "pretrain" in changed


# ---- the reason ------------------------------------------------------------------------------------------------------


def test_the_reason_names_the_room_that_changed(tmp_path):
    section, code = load_profile("smoke").sample, {"grammar": "1", "system": "2"}
    inputs = {"grammar": "g"}
    manifest = Manifest("sample", "", freshness.as_json(section), inputs, {}, code=code)
    assert freshness.why_run(manifest, tmp_path, section, inputs, code) is None
    assert freshness.why_run(manifest, tmp_path, section, inputs, {**code, "system": "3"}) == "code changed: system"
    assert freshness.why_run(manifest, tmp_path, section, {"grammar": "h"}, code) == "input changed: grammar"
    assert freshness.why_run(None, tmp_path, section, inputs, code) == "not done yet"
    marks = {freshness.fingerprint(section, inputs, {"a": digest}) for digest in "xyx"}
    assert len(marks) == 2


def test_what_python_compiles_is_not_code(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "module.py").write_text("x = 1\n")
    before = freshness.code_of(("room",), tmp_path)
    freshness._hash_of.cache_clear()
    (tmp_path / "room" / "__pycache__").mkdir()
    (tmp_path / "room" / "__pycache__" / "module.pyc").write_text("")
    assert freshness.code_of(("room",), tmp_path) == before
