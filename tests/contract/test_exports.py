"""Packages that export lazily: every public name is there, and one name does not load all modules."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from pcfg_artifact import approximation, constructions, grammar, mlm, parsing, treebank

PACKAGES = (approximation, constructions, grammar, mlm, parsing, treebank)


def declared(package) -> dict[str, str]:
    """Name -> module of the imports that type checkers see."""
    tree = ast.parse(Path(package.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {alias.name: statement.module.removeprefix(f"{package.__name__}.")
            for statement in block.body for alias in statement.names}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_table_of_names_is_what_type_checkers_see(package):
    assert declared(package) == package.MODULE_OF
    assert sorted(package.__all__) == sorted(package.MODULE_OF)
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
        # Python puts a submodule that was imported under its own name into the package: the two must not meet.
        assert not (Path(package.__file__).parent / f"{name}.py").exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_public_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_masks_load_neither_an_engine_nor_numba():
    code = "import sys; from pcfg_artifact.parsing import Masking; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "pcfg_artifact.parsing.masks" in loaded
    assert not {"numba", "torch", "pcfg_artifact.parsing.engine", "pcfg_artifact.parsing.scoring"} & set(loaded)
