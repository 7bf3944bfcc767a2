"""docs/bill_of_materials.csv: name, version and licence of every pinned package, as the packages themselves say.

With PCFG_ARTIFACT_WRITE_BILL=1 the test writes the file instead of comparing with it.
"""

import csv
import io
import os
import re
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
BILL = ROOT / "docs" / "bill_of_materials.csv"
FILES = ("requirements.txt", "requirements-dask.txt", "requirements-lint.txt")  # only the first is always installed
LONGEST = 60  # some packages put the whole text of a licence where its name belongs
CLASSIFIER = "License :: OSI Approved :: "


def pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    return dict(line.split(";")[0].strip().split("==") for line in lines if "==" in line and not line.startswith("#"))


def licence(package: str) -> str:
    about = metadata.metadata(package)
    if expression := about.get("License-Expression"):
        return expression
    named = about.get("License") or ""
    classified = [c.removeprefix(CLASSIFIER) for c in about.get_all("Classifier", []) if c.startswith(CLASSIFIER)]
    short = " ".join(named.split())
    return short if 0 < len(short) <= LONGEST else "; ".join(classified)


def bill(files: tuple[str, ...]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["package", "version", "licence", "pinned by"])
    for file in files:
        for package, version in sorted(pins(file).items(), key=lambda pin: pin[0].lower()):
            writer.writerow([package, version, licence(package), file])
    return buffer.getvalue()


def plain(version: str) -> str:
    return version.split("+")[0]  # torch's builds (+cpu, +cu130) are one version


def installed(file: str) -> bool:
    """Whether a file's packages are here; those that are must have the version it pins."""
    for package, version in pins(file).items():
        try:
            found = plain(metadata.version(package))
        except metadata.PackageNotFoundError:
            return False
        assert found == version, f"{package} {found} is installed, {file} pins {version}; install {file}"
    return True


def test_the_bill_of_materials_is_what_the_installed_packages_say():
    files = tuple(file for file in FILES if installed(file))
    assert files[:1] == FILES[:1], "install requirements.txt"
    if os.environ.get("PCFG_ARTIFACT_WRITE_BILL"):
        assert files == FILES, "install the packages of all files before the bill is written"
        BILL.write_text(bill(files))
    written = BILL.read_text()
    assert set(bill(files).splitlines()) <= set(written.splitlines()), "run it once with PCFG_ARTIFACT_WRITE_BILL=1"
    rows = list(csv.DictReader(written.splitlines()))
    pinned = {(package, version, file) for file in FILES for package, version in pins(file).items()}
    assert {(row["package"], row["version"], row["pinned by"]) for row in rows} == pinned
    assert len(rows) == len(pinned)


def test_every_pinned_package_has_a_licence_that_lets_anybody_use_it():
    for row in csv.DictReader(BILL.read_text().splitlines()):
        assert row["licence"], row["package"]
        assert not re.search(r"\b(AGPL|SSPL|proprietary|non-?commercial)\b", row["licence"], re.IGNORECASE), row
