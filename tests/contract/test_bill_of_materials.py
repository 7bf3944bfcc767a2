"""docs/bill_of_materials.csv: name, version and licence of every pinned package, as the packages themselves say.

With PCFG_ARTIFACT_WRITE_BILL=1 the test writes the file instead of comparing with it.
"""

import csv
import io
import os
import re
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BILL = ROOT / "docs" / "bill_of_materials.csv"
LONGEST = 60  # some packages put the whole text of a licence where its name belongs
CLASSIFIER = "License :: OSI Approved :: "


def pins() -> dict[str, str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return dict(line.split(";")[0].strip().split("==") for line in lines if "==" in line and not line.startswith("#"))


def licence(package: str) -> str:
    about = metadata.metadata(package)
    if expression := about.get("License-Expression"):
        return expression
    named = about.get("License") or ""
    classified = [c.removeprefix(CLASSIFIER) for c in about.get_all("Classifier", []) if c.startswith(CLASSIFIER)]
    short = " ".join(named.split())
    return short if 0 < len(short) <= LONGEST else "; ".join(classified)


def bill() -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["package", "version", "licence"])
    for package, version in sorted(pins().items(), key=lambda pin: pin[0].lower()):
        writer.writerow([package, version, licence(package)])
    return buffer.getvalue()


def plain(version: str) -> str:
    return version.split("+")[0]  # torch's builds (+cpu, +cu130) are one version


def test_the_bill_of_materials_is_what_the_installed_packages_say():
    for package, version in pins().items():
        found = plain(metadata.version(package))
        if found != version:
            pytest.fail(f"{package} {found} is installed, requirements.txt pins {version}; install requirements.txt")
    if os.environ.get("PCFG_ARTIFACT_WRITE_BILL"):
        BILL.write_text(bill())
    assert BILL.read_text() == bill(), "run this test once with PCFG_ARTIFACT_WRITE_BILL=1"


def test_every_pinned_package_has_a_licence_that_lets_anybody_use_it():
    for row in csv.DictReader(BILL.read_text().splitlines()):
        assert row["licence"], row["package"]
        assert not re.search(r"\b(AGPL|SSPL|proprietary|non-?commercial)\b", row["licence"], re.IGNORECASE), row
