"""The documents name files that exist, and the map shows every room."""

import json
import re
from pathlib import Path

import pytest

import pcfg_artifact

PACKAGE = Path(pcfg_artifact.__file__).parent
REPOSITORY = PACKAGE.parent
MAP = REPOSITORY / "docs" / "dev" / "architecture.md"
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def test_every_room_of_the_package_is_on_the_map():
    text = MAP.read_text(encoding="utf-8")
    rooms = [f"{path.name}/" if path.is_dir() else path.name for path in PACKAGE.iterdir()
             if path.suffix == ".py" or (path / "__init__.py").is_file()]
    assert [room for room in rooms if f"`{room}`" not in text and not room.startswith("__")] == []


def test_every_file_on_the_map_exists():
    named = re.findall(r"`([\w/]+\.py)`", MAP.read_text(encoding="utf-8"))
    assert len(named) > 20
    assert [name for name in named if not (PACKAGE / name).is_file() and not (REPOSITORY / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_citation_and_changes_name_the_version_of_the_package():
    version = pcfg_artifact.__version__
    assert f"\nversion: {version}\n" in (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    for name in (".zenodo.json", "codemeta.json"):
        assert json.loads((REPOSITORY / name).read_text(encoding="utf-8"))["version"] == version
    released = re.findall(r"^## (\d\S*)", (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert released[0] == version
