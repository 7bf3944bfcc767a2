"""Compiled functions are not used again after any source that may be compiled has changed."""

import os
from pathlib import Path

import pytest

from pcfg_artifact.system import compiled_cache
from pcfg_artifact.system.compiled_cache import VARIABLE, choose_folder


@pytest.fixture
def package(tmp_path, monkeypatch):
    for room in compiled_cache.COMPILED:
        (tmp_path / room).mkdir()
        (tmp_path / room / "kernel.py").write_text("x = 1\n")
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


def chosen(package, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    choose_folder(package)
    return os.environ.get(VARIABLE)


@pytest.mark.parametrize("room", [*compiled_cache.COMPILED, "parsing/cpu_kernels"])
def test_a_changed_source_means_another_folder(package, monkeypatch, room):
    (package / room).mkdir(exist_ok=True)
    (package / room / "kernel.py").write_text("x = 1\n")
    before = chosen(package, monkeypatch)
    assert before == chosen(package, monkeypatch)
    (package / room / "kernel.py").write_text("x = 22\n")
    assert chosen(package, monkeypatch) != before


def test_a_folder_that_the_user_names_serves_no_stale_code(package, monkeypatch, tmp_path):
    """As in an image whose cache outlives it: another version of the sources has another folder below."""
    found = []
    for text in ("x = 1\n", "x = 2\n", "x = 1\n"):  # of one size
        (package / "parsing" / "kernel.py").write_text(text)
        monkeypatch.setenv(VARIABLE, "/elsewhere")
        choose_folder(package)
        found.append(os.environ[VARIABLE])
        choose_folder(package)  # in a process that this one starts
        assert os.environ[VARIABLE] == found[-1]
    assert [Path(folder).parent for folder in found] == [Path("/elsewhere")] * 3
    assert found[0] == found[2] != found[1]


def test_where_the_sources_cannot_be_written_what_was_compiled_is_taken_over(package, monkeypatch, tmp_path):
    beside = Path(chosen(package, monkeypatch))
    beside.mkdir(parents=True)
    (beside / "kernel.nbi").write_text("compiled")
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = Path(chosen(package, monkeypatch))
    assert folder == tmp_path / "cache" / "pcfg_artifact" / beside.name
    assert (folder / "kernel.nbi").read_text() == "compiled"
    (folder / "kernel.nbi").write_text("compiled again, on another processor")
    assert chosen(package, monkeypatch) == str(folder)
    assert (folder / "kernel.nbi").read_text() == "compiled again, on another processor"
    assert [path.name for path in folder.parent.iterdir()] == [beside.name]


def test_every_compiled_function_of_the_package_stands_in_a_room_that_counts():
    rooms = {path.relative_to(compiled_cache.PACKAGE).parts[0] for path in compiled_cache.PACKAGE.rglob("*.py")
             if "import njit" in (text := path.read_text(encoding="utf-8")) or "@njit" in text}
    assert rooms <= set(compiled_cache.COMPILED)
