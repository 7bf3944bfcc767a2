"""Sentences that a user names: a text file, standard input, or a folder of a dataset."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from pcfg_artifact.errors import UsageError
from pcfg_artifact.treebank import arrow

HELP = "sentences: a text file, one a line; a folder written by datasets' save_to_disk; - = standard input (-)"


def read_sentences(name: str) -> Iterator[list[str]]:
    """The words of every sentence: of every line, or of every row of a saved dataset."""
    if name != "-" and arrow.is_saved_dataset(Path(name)):
        yield from arrow.sentences(Path(name))
        return
    if name == "-" and sys.stdin is None:
        raise UsageError("standard input is closed; give a text file, one sentence a line")
    try:
        with (sys.stdin if name == "-" else Path(name).open(encoding="utf-8-sig")) as file:
            for n, line in enumerate(file, start=1):
                if "\0" in line:
                    raise UsageError(f"line {n:,} of {name} holds a NUL character; give a text file, one sentence "
                                     f"a line")
                yield line.split()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a NUL in it
        raise UsageError(f"cannot read sentences from {name} ({error}); "
                         f"give a text file, one sentence a line") from error
