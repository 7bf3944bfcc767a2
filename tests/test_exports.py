"""One public namespace: every name is there, once, and one name does not load all modules."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import pcfg_artifact as pa

NAMES = [name for names in pa.PUBLIC.values() for name in names]
ROOT = Path(pa.__file__).parent
MOST_NAMES = 65  # 60 until questions of charts and the zoo came in


def test_names_are_few_unique_and_described():
    assert len(NAMES) == len(set(NAMES)) <= MOST_NAMES
    assert all(words for names in pa.PUBLIC.values() for words in names.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_in_the_namespace_and_in_its_package(name):
    module = next(module for module, names in pa.PUBLIC.items() if name in names)
    value = getattr(importlib.import_module(f"pcfg_artifact.{module}"), name)
    assert getattr(pa, name) is value
    room = importlib.import_module(f"pcfg_artifact.{module.split('.')[0]}")
    if room.__name__ != "pcfg_artifact.metrics":
        assert getattr(room, name) is value
        assert name in dir(room)
    assert name in dir(pa)
    # Python puts a submodule that was imported under its own name into the package: the two must not meet.
    assert not (ROOT / f"{name}.py").exists()
    assert not (Path(room.__file__).parent / f"{name}.py").exists()


@pytest.mark.parametrize("room", ["", ".grammar", ".parsing", ".constructions"])
def test_a_name_that_is_not_public_is_an_attribute_error(room):
    package = importlib.import_module(f"pcfg_artifact{room}")
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_results_are_public():
    assert pa.results.load is importlib.import_module("pcfg_artifact.results").load


def test_masks_load_neither_an_engine_nor_numba():
    code = "import sys; from pcfg_artifact.parsing import Masking; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "pcfg_artifact.parsing.masks" in loaded
    assert not {"numba", "torch", "pcfg_artifact.parsing.engine", "pcfg_artifact.parsing.scoring"} & set(loaded)


@pytest.mark.parametrize("name", ["write_api_page", "write_cli_page"])
def test_pages_of_reference_are_of_the_lists(name):
    """`python scripts/NAME.py` writes them."""
    spec = importlib.util.spec_from_file_location(name, ROOT.parent / "scripts" / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text(encoding="utf-8") == script.page()
