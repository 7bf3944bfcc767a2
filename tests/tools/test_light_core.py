"""What works without the extras: every light tool; the others, and names of the public namespace, say what they need.

The packages of the extras are hidden from every process of these tests, as if they had not been installed.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pcfg_artifact.errors import EXTRAS

ROOT = Path(__file__).parents[2]
HIDE = f"""
from importlib.machinery import PathFinder
HIDDEN = {{*{[package for packages in EXTRAS.values() for package in packages]}, "pyarrow", "triton"}}
found = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in HIDDEN else found(name, path, target)
PathFinder.find_spec = find_spec
"""
LIGHT = [
    "learn --treebank embedded --out my_grammar",
    "learn --treebank embedded --out latent --estimator spectral --states 2 2",
    "zoo cfg3b", "sample --grammar zoo:rhm -n 2 --trees", "sample --grammar my_grammar -n 2 --length 5:8",
    "sample --grammar my_grammar -n 20 --out shards", "sample --grammar my_grammar -n 2 --given SENTENCE",
    "parse --grammar my_grammar SENTENCE", "parse --grammar latent --decode latent SENTENCE",
    "parse --grammar my_grammar --kbest 2 SENTENCE", "parse --grammar my_grammar --entropy --json SENTENCE",
    "parse --grammar my_grammar --decode viterbi --unbinarise SENTENCE",
    "parse --grammar my_grammar --treebank embedded --limit 3 --labelled",
    "mask --grammar my_grammar MASKED", "next --grammar my_grammar SENTENCE", "surprisal --grammar my_grammar SENTENCE",
    "compile", "doctor", "compare --help", "record --help"]
WORDS = {"SENTENCE": "the company sells .", "MASKED": "the [MASK] sells ."}
NEEDING = {"construct": ("torch", "models"), "probe": ("torch", "models"), "intervene": ("torch", "models"),
           "states": ("matplotlib", "report")}


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """Call the command line several times in one process: (exit code, output, errors) of each."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "hidden").mkdir()
    (folder / "hidden" / "sitecustomize.py").write_text(HIDE)
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'hidden'}{os.pathsep}{ROOT}"}

    def call(code):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder,
                              env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def as_arguments(command):
    return [WORDS.get(part, part) for part in command.split()]


@pytest.mark.slow
def test_light_tools_run_without_the_extras(light):
    out = light(f"""
from pcfg_artifact.cli import main
def call(arguments):
    try:
        return main(arguments)
    except SystemExit as error:
        return error.code
codes = {{" ".join(arguments): call(arguments) for arguments in {[*map(as_arguments, LIGHT)]}}}
print("failed:", [command for command, code in codes.items() if code])
""")
    assert out.splitlines()[-1] == "failed: []"


@pytest.mark.slow
def test_tools_that_need_an_extra_say_which_in_one_line(light):
    commands = [[tool, "--help"] for tool in NEEDING]
    commands += [["surprisal", "--grammar", "zoo:rhm", "--model", ".", "a"], ["--to", "pretrain"], []]
    out = light(f"""
import contextlib, io
from pcfg_artifact.cli import main
for arguments in {commands}:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(arguments)
    print(code, said.getvalue(), end="")
""").splitlines()
    models = ("torch", "models")
    expected = [*((f"`{tool}`", *needed) for tool, needed in NEEDING.items()), ("`surprisal`", *models),
                ("the stage construct", *models), ("the stage construct", *models)]
    assert out == [f"2 error: {what} needs the package {package}, which the extra `{extra}` brings: "
                   f"pip install '.[{extra}]' in the repository" for what, package, extra in expected]


def test_a_public_name_of_an_extra_says_which(light):
    out = light("""
import pcfg_artifact as pa
try:
    pa.RuleWeights
except ImportError as error:
    print(error)
""")
    assert out == "pcfg_artifact.RuleWeights needs the package torch, which the extra `models` brings: " \
                  "pip install '.[models]' in the repository\n"


def test_the_extras_bring_the_packages_that_are_asked_for():
    names = {"sklearn": "scikit-learn"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, packages in EXTRAS.items():
        brought = {requirement.partition(">")[0] for requirement in project["optional-dependencies"][extra]}
        assert brought == {names.get(package, package) for package in packages}
    core = {requirement.partition(">")[0] for requirement in project["dependencies"]}
    assert not core & {names.get(package, package) for packages in EXTRAS.values() for package in packages}
