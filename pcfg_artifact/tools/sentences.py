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
    try:
        with (sys.stdin if name == "-" else Path(name).open(encoding="utf-8")) as file:
            for line in file:
                yield line.split()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read sentences from {name} ({error}); "
                         f"give a text file, one sentence a line") from error
