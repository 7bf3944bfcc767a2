"""The wheel: everything the package needs is in it, and it works where nothing of the repository is."""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import pcfg_artifact

ROOT = Path(__file__).parents[2]
PROGRAM = "pcfg-artifact"


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy: a build leaves folders behind."""
    folder = tmp_path_factory.mktemp("wheel")
    files = run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard") \
        if (ROOT / ".git").exists() else "\0".join(str(path.relative_to(ROOT)) for path in wanted_files())
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "source" / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
        "--wheel-dir", folder, folder / "source")
    return next(folder.glob("*.whl"))


def wanted_files():
    for part in ("pcfg_artifact", "expected_results"):
        yield from (path for path in (ROOT / part).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    yield from (ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE"))


def test_every_package_is_listed():
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "pcfg_artifact").rglob("__init__.py")}
    assert listed == found | {"pcfg_artifact.expected_results"}


def test_the_wheel_has_the_version_of_the_package(wheel):
    assert wheel.name.startswith(f"pcfg_artifact-{pcfg_artifact.__version__}-")


def test_the_wheel_holds_every_file_of_the_package_and_the_expected_results(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    for path in wanted_files():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("expected_results/"):
            assert f"pcfg_artifact/{name}" in held
        elif name.startswith("pcfg_artifact/"):
            assert name in held


@pytest.mark.slow
def test_an_installed_wheel_learns_parses_and_plans_without_the_repository(wheel, tmp_path):
    """In an environment of its own; the packages it depends on are seen through a .pth file, not installed again."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "fresh")
    inner = next((tmp_path / "fresh" / "lib").iterdir()) / "site-packages"
    others = [path for path in sys.path if path.endswith("site-packages")]
    (inner / "shared.pth").write_text("\n".join(others))
    run(sys.executable, "-m", "pip", "--python", tmp_path / "fresh" / "bin" / "python", "install", "--quiet",
        "--no-deps", "--no-index", wheel)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def call(*arguments, **options):
        return run(*arguments, cwd=tmp_path, env=environment, **options)

    program, python = tmp_path / "fresh" / "bin" / PROGRAM, tmp_path / "fresh" / "bin" / "python"
    where = "from pcfg_artifact.run import expected; print(expected.EXPECTED, len(expected.load_claims()), " \
            "expected.load_record('smoke').seeds)"
    folder, n_relations, _ = call(python, "-c", where).split(maxsplit=2)
    assert Path(folder) == inner / "pcfg_artifact" / "expected_results"
    assert int(n_relations) > 40
    call(program, "learn", "--treebank", "embedded", "--out", "g")
    tree = call(program, "parse", "--grammar", "g", input="the company sells banks .\n")
    assert tree.startswith("(S ")
    assert "verify" in call(program, "--dry-run")
    bench = subprocess.run([program, "bench"], capture_output=True, text=True, check=False, cwd=tmp_path,
                           env=environment)
    assert bench.returncode == 2
    assert "use `./run_all.sh bench` in a clone" in bench.stderr
