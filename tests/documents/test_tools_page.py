"""docs/TOOLS.md: every tool is there, and its commands and Python, run as printed, print what the page shows.

With PCFG_ARTIFACT_WRITE_TOOLS=1 the test writes the page's outputs instead of comparing with them.
"""

import contextlib
import io
import os
import re
import shlex
from pathlib import Path

import pytest

from pcfg_artifact.cli import TOOLS, main

PAGE = Path(__file__).parents[2] / "docs" / "TOOLS.md"
LONGEST, WIDEST = 26, 120  # lines of an output that the page shows, and characters of a line
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)


def test_every_tool_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    assert [tool for tool in TOOLS if f"`{tool}`" not in text] == []


def run(command: str, here_document: str) -> str:
    """What a line of the page prints."""
    if command.startswith("cat > "):
        Path(command.removeprefix("cat > ")).write_text(here_document)
        return ""
    echoed = re.fullmatch(r'echo "(.*)" \| (.*)', command)
    stdin, command = (echoed[1] + "\n", echoed[2]) if echoed else ("", command)
    program, *arguments = shlex.split(command)
    assert program == "./run_all.sh"
    out, before = io.StringIO(), os.sys.stdin
    os.sys.stdin = io.StringIO(stdin)
    try:
        with contextlib.redirect_stdout(out):
            assert main(arguments) == 0, command
    finally:
        os.sys.stdin = before
    return out.getvalue()


def shortened(text: str) -> str:
    lines = [line.rstrip() if len(line) <= WIDEST else f"{line[:WIDEST - 3]}..." for line in text.splitlines()]
    return "".join(f"{line}\n" for line in (lines if len(lines) <= LONGEST else [*lines[:LONGEST - 1], "..."]))


def console(block: str) -> str:
    """The block with what its commands print now."""
    found = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        printed = run(command, shown)
        found.append(f"$ {command}\n{shown if command.startswith('cat > ') else shortened(printed)}")
    return "".join(found)


@pytest.mark.slow
def test_commands_and_python_of_the_page_print_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    namespace: dict = {}
    parts, end = [], 0
    for block in BLOCK.finditer(text):
        if block[1] == "console":
            new = console(block[2])
        else:
            new = block[2].split("# prints\n")[0]
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(new, namespace)
            new += "# prints\n" + "".join(f"# {line}\n" for line in out.getvalue().splitlines())
        parts += [text[end:block.start(2)], new]
        end = block.end(2)
    found = "".join([*parts, text[end:]])
    if os.environ.get("PCFG_ARTIFACT_WRITE_TOOLS"):
        PAGE.write_text(found, encoding="utf-8")
        pytest.skip("outputs written")
    assert found == text
