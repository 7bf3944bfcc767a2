"""The pinned packages: everything that is needed is pinned and has hashes, and everybody may use it."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FILES = ("requirements.txt", "requirements-dask.txt", "requirements-lint.txt")  # only the first is always installed
CLASSIFIER = "License :: OSI Approved :: "


def pins(file: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def needs(package: str) -> list[Requirement]:
    """What an installed package needs here, without its extras."""
    needed = map(Requirement, metadata.requires(package) or [])
    return [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]


def test_every_package_that_a_pinned_one_needs_is_pinned_with_its_hashes():
    hashed = pins("requirements-hashes.txt")
    assert {name: hashed.get(name) for name in pins("requirements.txt")} == pins("requirements.txt")
    for package in pins("requirements.txt"):
        for needed in needs(package):
            version = hashed.get(canonicalize_name(needed.name))
            assert version is not None, f"{package} needs {needed}, which is not in requirements-hashes.txt"
            assert needed.specifier.contains(version, prereleases=True), (package, str(needed), version)


def test_every_entry_has_hashes_and_those_of_gpus_are_among_them():
    text = (ROOT / "requirements-hashes.txt").read_text(encoding="utf-8")
    entries = re.sub(r"#.*\n", "", text).replace(" \\\n", " ").splitlines()
    assert len(entries) == len(pins("requirements-hashes.txt"))
    for entry in entries:
        assert re.fullmatch(r"\S+==\S+(\s+--hash=sha256:[0-9a-f]{64})+", entry), entry
    assert {"triton", "nvidia-nccl-cu13", "nvidia-cublas"} <= pins("requirements-hashes.txt").keys()


# Packages whose metadata do not say it.
UNSTATED = {"mlcroissant": "Apache-2.0, by its repository mlcommons/croissant"}


@pytest.mark.parametrize("file", FILES)
def test_every_pinned_package_has_a_licence_that_lets_anybody_use_it(file):
    for package, version in pins(file).items():
        try:
            about = metadata.metadata(package)
        except metadata.PackageNotFoundError:
            assert file != "requirements.txt", f"{package} is missing"
            pytest.skip(f"{package} of {file} is not installed")
        found = about["Version"].partition("+")[0]  # torch's builds (+cpu, +cu130) are one version
        assert found == version, f"{package} {found} is installed, {file} pins {version}; install {file}"
        classified = [one for one in about.get_all("Classifier", []) if one.startswith(CLASSIFIER)]
        licence = " ".join([about.get("License-Expression") or "", (about.get("License") or "").partition("\n")[0],
                            *classified]).strip()
        assert licence or about.get_all("License-File") or package in UNSTATED, package
        assert not re.search(r"\b(AGPL|SSPL|proprietary|non-?commercial)\b", licence, re.IGNORECASE), (package, licence)
