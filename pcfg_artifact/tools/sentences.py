"""Sentences that a user names, for every tool that takes text: in the argument itself, in a file, or from `-`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.treebank import arrow

MASK = "[MASK]"
HELP = ("a sentence, words separated by blanks; or a text file, one sentence a line; or a folder written by datasets' "
        "save_to_disk; or - for standard input")
FILE_NAME = re.compile(r"\S*/\S*|\S*\.[A-Za-z]\w*")  # what is meant as a name, though no such file is there


def add_text_arguments(parser: argparse.ArgumentParser, what: str = "sentences", default: str = "-") -> None:
    """The positional argument `sentences`, and --json."""
    parser.add_argument("sentences", nargs="?", default=default, metavar=what.upper(),
                        help=f"{HELP} ({default or 'no words'})")
    add_json_argument(parser)


def add_json_argument(parser: argparse.ArgumentParser, *others: str) -> None:
    parser.add_argument("--json", *others, action="store_true", help="print JSON, one line a sentence")


def read_sentences(text: str) -> Iterator[list[str]]:
    """The words of every sentence: of `text` itself, or of every line or row of what it names."""
    if text != "-" and not os.path.exists(text):
        if FILE_NAME.fullmatch(text):
            raise UsageError(f"cannot read sentences from {text}: no such file; give a text file, one sentence a line "
                             f"(a sentence of this one word goes in by standard input and -)")
        if "\0" in text:
            raise UsageError("the sentence holds a NUL character; give words separated by blanks")
        yield text.split()
    elif text != "-" and arrow.is_saved_dataset(Path(text)):
        yield from arrow.sentences(Path(text))
    else:
        yield from _lines(text)


def _lines(name: str) -> Iterator[list[str]]:
    if name == "-" and sys.stdin is None:
        raise UsageError("standard input is closed; give a sentence, or a text file, one sentence a line")
    try:
        with (sys.stdin if name == "-" else Path(name).open(encoding="utf-8-sig")) as file:
            for n, line in enumerate(file, start=1):
                if "\0" in line:
                    raise UsageError(f"line {n:,} of {name} holds a NUL character; give a text file, one sentence "
                                     f"a line")
                yield line.split()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8
        raise UsageError(f"cannot read sentences from {name} ({error}); "
                         f"give a text file, one sentence a line") from error


def one_sentence(text: str) -> list[str]:
    """The words of the only sentence, for tools that answer a question about one."""
    sentences = list(read_sentences(text))
    if len(sentences) != 1:
        raise UsageError(f"{text} has {len(sentences):,} sentences, expected one")
    return sentences[0]


def masked_positions(grammar: PCFG, words: list[str]) -> list[int]:
    """Where the words are [MASK]; the grammar must know all others, or have a signature for them."""
    masked = [t for t, word in enumerate(words) if word == MASK]
    if not masked:
        raise UsageError(f"no {MASK} in {' '.join(words)!r}; write {MASK} where a word is to be predicted")
    strange = [word for word, w in zip(words, grammar.encode(words), strict=True) if w < 0 and word != MASK]
    if strange:
        raise UsageError(f"the grammar has no word and no signature for {strange[0]!r}; use words it knows")
    return masked
