"""Arguments that several tools share: treebanks, grammars, folders, and sentences from an argument, a file or `-`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sources import read_grammar
from pcfg_artifact.system.progress import progress, say
from pcfg_artifact.treebank import arrow
from pcfg_artifact.treebank.cleaning import AUTO, LEAF_FORMATS
from pcfg_artifact.treebank.reading import Treebank, read_treebank

LARGEST = 2**31 - 1  # of a count, so that every kernel can hold it
MASK = "[MASK]"
HELP = ("a sentence, words separated by blanks; or a text file, one sentence a line; or a folder written by datasets' "
        "save_to_disk; or - for standard input")
FILE_NAME = re.compile(r"\S*/\S*|\S*\.[A-Za-z]\w*")  # what is meant as a name, though no such file is there


def add_treebank_arguments(parser: argparse.ArgumentParser, what: str = "", **options: Any) -> None:
    """--treebank (`what`: its help) and how to read it; options are those of add_argument."""
    what = what or "embedded, nltk, a folder, zip or file of bracketed trees, or a saved dataset"
    parser.add_argument("--treebank", metavar="SOURCE", help=what, **options)
    parser.add_argument("--skip-bad-trees", action="store_true", help="leave out malformed trees, and list them")
    parser.add_argument("--leaf-format", choices=LEAF_FORMATS, default=AUTO,
                        help="of the trees: plain words, or word-lemma (auto: decided for each file)")


def load_treebank(args: argparse.Namespace) -> Treebank:
    treebank = read_treebank(args.treebank, skip_bad_trees=args.skip_bad_trees, progress=progress,
                             leaf_format=args.leaf_format)
    for line in treebank.cleaning_report(args.leaf_format):
        say(line)
    return treebank


def refuse_counts(*counts: tuple[str, int | None, int]) -> None:
    """Refuse a number below its least: (option, value, least); a value of None was not given."""
    for option, value, least in counts:
        if value is not None and value < least:
            raise UsageError(f"{option} is {value}, expected {least} or more")
        if value is not None and value > LARGEST:
            raise UsageError(f"{option} is {shortened(value)}, expected at most {LARGEST:,}")


def refuse_unwritable(names: Iterable[str], where: object, what: str) -> None:
    """Refuse names that would be read back as something else from a line of words or brackets."""
    for name in names:
        if not name or any(character.isspace() or character == "\0" for character in name):
            problem = "is empty" if not name else "has a blank in it" if " " in name else "has white space in it"
            raise UsageError(f"the {what} {name!r} of {where} {problem}, so that the output could not be read back; "
                             f"give it another name, for example {'_'.join(name.split()) or 'X'}")


def refuse_unusable_folder(out: Path, option: str = "--out") -> None:
    """Refuse, before any work, an output folder that is a file or whose name is impossible."""
    try:
        is_file = out.exists() and not out.is_dir()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot use {shortened(out)} for {option}: {reason}; give another folder") from error
    if is_file:
        raise UsageError(f"{option} {out} is a file; give a folder")


def named_path(text: str) -> Path:
    """The type of an argument that is a path; an empty one, which would be the current folder, is refused."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the path is empty; `.` is the current folder")
    return Path(text)


def json_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table for JSON, with null for what is undefined."""
    rows = frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None)
    return [dict(zip(frame.columns, row, strict=True)) for row in rows]


def shortened(path: object) -> str:
    text = str(path)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def add_grammar_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--grammar", required=True, type=Path, metavar="SOURCE",
                        help="a grammar folder (from learn, or PCFG.save), a text file of rules (ours, or NLTK's), or "
                             "zoo:NAME (see `zoo`)")
    parser.add_argument("--weights", action="store_true",
                        help="the numbers of a rule file are weights of any size; a tree has its product over the sum "
                             "of all trees")


def load_grammar(path: Path, *, weights: bool = False) -> PCFG:
    """The grammar of a source; prints what was left out or changed."""
    grammar = read_grammar(path, weights=weights)
    if grammar.written is not None:
        for note in grammar.written.notes:
            say(note)
        if rules := grammar.written.zero_rules():
            say(f"left out: {len(rules):,} rules of probability 0 of {path} (first: `{rules[0]}`)")
    return grammar


# ---- sentences -------------------------------------------------------------------------------------------------------


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
