"""Write requirements-hashes.txt: every package that requirements.txt brings on Linux, with the SHA-256 of its files.

    python scripts/write_hashes.py

pip says which packages these are, those of NVIDIA that torch's default build needs among them; the files and their
hashes are what PyPI's own pages list.  Kept are those that Linux on x86_64 or aarch64 can install for CPython 3.11 to
3.14.  It needs the network, and downloads some gigabytes where the index has no separate metadata.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "requirements-hashes.txt"
INDEX = "https://pypi.org/simple"
PYTHONS = ("cp311", "cp312", "cp313", "cp314")
HEAD = """\
# Made by scripts/write_hashes.py: every package that requirements.txt brings on Linux with torch's CUDA build, and the
# SHA-256 of every file that PyPI had of it for CPython 3.11 to 3.14.
#     pip install --require-hashes -r requirements-hashes.txt
"""


def resolved() -> dict[str, str]:
    """Package -> version, as pip would install them with nothing there, from PyPI alone."""
    command = [sys.executable, "-m", "pip", "install", "--isolated", "--index-url", INDEX, "--dry-run", "--quiet",
               "--ignore-installed", "--only-binary=:all:", "--report=-", "-r", str(ROOT / "requirements.txt")]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {canonicalize_name(one["metadata"]["name"]): one["metadata"]["version"] for one in report["install"]}


def can_be_installed(name: str) -> bool:
    """Whether a file is a wheel for the Pythons and processors that are meant."""
    try:
        tags = parse_wheel_filename(name)[3]
    except InvalidWheelFilename:
        return False
    return any(re.fullmatch(r"any|manylinux.*_(x86_64|aarch64)|linux_(x86_64|aarch64)", tag.platform)
               and (tag.abi in (*PYTHONS, "none", "abi3") and re.match(r"py3|cp3", tag.interpreter))
               and (tag.interpreter in PYTHONS or tag.abi != "none" or tag.interpreter.startswith("py3"))
               for tag in tags)


def hashes(package: str, version: str) -> list[str]:
    """SHA-256 of the files of one version, as PyPI's page of the package lists them."""
    with urllib.request.urlopen(f"{INDEX}/{package}/", timeout=60) as page:
        links = re.findall(r'<a [^>]*href="([^"]+)"', page.read().decode())
    found = {}
    for link in map(html.unescape, links):
        address, _, mark = link.partition("#")
        file = urllib.request.unquote(address.rpartition("/")[2])  # type: ignore[attr-defined]
        if can_be_installed(file) and str(parse_wheel_filename(file)[1]) == version and mark.startswith("sha256="):
            found[file] = mark.removeprefix("sha256=")
    if not found:
        raise SystemExit(f"{INDEX}/{package}/ lists no wheel of {version} with a hash")
    return sorted(found.values())


def main() -> None:
    entries = []
    for package, version in sorted(resolved().items()):
        marks = (f"--hash=sha256:{one}" for one in hashes(package, version))
        entries.append(" \\\n    ".join([f"{package}=={version}", *marks]))
    TARGET.write_text(HEAD + "\n".join(entries) + "\n", encoding="utf-8")
    print(f"{TARGET.name}: {len(entries)} packages")


if __name__ == "__main__":
    main()
