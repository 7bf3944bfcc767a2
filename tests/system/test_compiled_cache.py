"""Compiled functions are not used again after any source that may be compiled has changed."""

import os

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


def test_what_the_user_says_stays(package, monkeypatch):
    monkeypatch.setenv(VARIABLE, "/elsewhere")
    choose_folder(package)
    assert os.environ[VARIABLE] == "/elsewhere"


def test_where_nothing_can_be_written_numba_decides(package, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert chosen(package, monkeypatch) is None


def test_every_compiled_function_of_the_package_stands_in_a_room_that_counts():
    rooms = {path.relative_to(compiled_cache.PACKAGE).parts[0] for path in compiled_cache.PACKAGE.rglob("*.py")
             if "import njit" in (text := path.read_text(encoding="utf-8")) or "@njit" in text}
    assert rooms <= set(compiled_cache.COMPILED)
