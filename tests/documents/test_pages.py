"""README and guides: console and Python blocks print what is shown; the examples of --help run.

In what a page shows, a line `...` stands for any lines, and a line that ends in `...` is cut off.  Of a run of the
pipeline the plan alone is made.  What depends on trained models is compared but for its numbers: here a model with
random weights stands in for those of `runs/smoke`.

    PCFG_ARTIFACT_WRITE_PAGES=runs/smoke ./run_all.sh test tests/documents/test_pages.py

writes the outputs that differ into the pages, and all that depend on trained models, from that run (1 in place of a
run: the former alone).
"""

import argparse
import contextlib
import importlib
import io
import os
import re
import shlex
import zipfile
from pathlib import Path

import pytest

import pcfg_artifact as pa
from pcfg_artifact.cli import MODULE_OF, TOOLS, main

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs" / "guides").glob("*.md"))]
WRITE = os.environ.get("PCFG_ARTIFACT_WRITE_PAGES")
RUN = None if WRITE in (None, "1") else (REPOSITORY / WRITE).resolve()
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]\d+)?")
WIDEST = 140  # characters of a line of output
TEXT = "the company sells banks in the market .\n"
# They need a treebank or runs that are not here, a GPU, or minutes: their arguments alone are read.
ONLY_READ = ("bench", "compare", "doctor", "export", "record", "scale", "compile")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the pages and examples assume: a grammar, a text, a zip of trees, and a run with models."""
    where = tmp_path_factory.mktemp("pages")
    grammar = pa.zoo("english")
    grammar.save(where / "my_grammar")
    (where / "sentences.txt").write_text(TEXT)
    trees = pa.read_treebank("embedded").trees[:300]
    with zipfile.ZipFile(where / "craft_penn.zip", "w") as archive:
        archive.writestr("all.mrg", "\n".join(str(tree) for tree in trees))
    run = where / "runs" / "smoke"
    if RUN is not None:
        run.parent.mkdir()
        run.symlink_to(RUN)
        return where
    grammar.save(run / "grammar" / "vm")
    config = pa.build_config(pa.parse_shape("A4L3"), n_words=grammar.n_words, width=64, max_length=64, dropout=0.0,
                             layer_norm="pre")
    for kind in ("models", "untrained"):
        pa.build_model(config, seed=0).save_pretrained(run / "pretrain" / kind / "A4L3")
        pa.build_tokenizer(grammar.words, max_length=62).save_pretrained(run / "pretrain" / kind / "A4L3")
    return where


def printed_by(command: str, here_document: str) -> str:
    """What a line of a page prints."""
    if command.startswith("cat > "):
        Path(command.removeprefix("cat > ")).write_text(here_document)
        return here_document
    program, *arguments = shlex.split(command)
    assert program == "./run_all.sh", command
    if not arguments or arguments[0].startswith("-"):
        arguments.append("--dry-run")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(arguments) == 0, command
    return out.getvalue()


def matches(shown: str, printed: str, with_numbers: bool) -> bool:
    def plain(text):
        lines = [line.rstrip() for line in text.splitlines()]
        return lines if with_numbers else [" ".join(NUMBER.sub("#", line).split()) for line in lines]

    patterns = ["(?:.*\n)*" if line == "..." else
                f"{re.escape(line.removesuffix('...'))}.*\n" if line.endswith("...") else f"{re.escape(line)}\n"
                for line in plain(shown)]
    return re.fullmatch("".join(patterns), "".join(f"{line}\n" for line in plain(printed))) is not None


def shortened(printed: str) -> str:
    lines = (line.rstrip() if len(line) <= WIDEST else f"{line[:WIDEST - 3]}..." for line in printed.splitlines())
    return "".join(f"{line}\n" for line in lines)


def found_of(kind: str, block: str, namespace: dict) -> str:
    """The block with what it prints now, where that is not what it shows."""
    if kind == "python":
        code, marker, shown = block.partition("# prints\n")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, namespace)
        printed = "".join(f"# {line}\n" for line in out.getvalue().splitlines())
        return block if not marker or matches(shown, printed, with_numbers=True) else code + marker + printed
    parts = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        printed = printed_by(command, shown)
        is_trained = "runs/smoke" in command
        is_kept = matches(shown, printed, with_numbers=not is_trained) and not (is_trained and RUN)
        parts.append(f"$ {command}\n{shown if is_kept else shortened(printed)}")
    return "".join(parts)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_of_the_page_print_what_it_shows(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    text, namespace = page.read_text(encoding="utf-8"), {}
    found = BLOCK.sub(lambda block: f"```{block[1]}\n{found_of(block[1], block[2], namespace)}```", text)
    if WRITE:
        page.write_text(found, encoding="utf-8")
        pytest.skip("outputs written")
    assert found == text


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_example_of_help_runs(tool, folder, monkeypatch):
    monkeypatch.chdir(folder)
    module = importlib.import_module("benchmarks.bench" if tool == "bench" else
                                     f"pcfg_artifact.tools.{MODULE_OF.get(tool, tool)}")
    program, *arguments = shlex.split(module.EXAMPLE.partition(" > ")[0])
    assert (program, arguments[0]) == ("run_all.sh", tool)
    if tool in ONLY_READ:
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        parser.parse_args(arguments[1:])
        return
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(arguments) == 0
    assert out.getvalue()
