"""Arguments that several tools share."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.rulefile import from_text
from pcfg_artifact.progress import progress
from pcfg_artifact.treebank.reading import Treebank, read_treebank


def add_treebank_arguments(parser: argparse.ArgumentParser, what: str = "", **options: Any) -> None:
    """--treebank (`what`: its help) and how to read it; options are those of add_argument."""
    what = what or "embedded, nltk, a folder, zip or file of bracketed trees, or a saved dataset"
    parser.add_argument("--treebank", metavar="SOURCE", help=what, **options)
    parser.add_argument("--skip-bad-trees", action="store_true", help="leave out malformed trees, and list them")


def load_treebank(args: argparse.Namespace) -> Treebank:
    treebank = read_treebank(args.treebank, skip_bad_trees=args.skip_bad_trees, progress=progress)
    for bad in treebank.bad_trees:
        print(f"left out: {bad}", file=sys.stderr)
    return treebank


def add_grammar_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--grammar", required=True, type=Path, metavar="DIR",
                        help="a grammar folder (from learn, or PCFG.save), or a text file of rules")


def load_grammar(path: Path) -> PCFG:
    """A grammar folder, or a text file of rules."""
    if path.is_file():
        try:
            return from_text(path.read_text(encoding="utf-8"), str(path))
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is not a text file of rules ({error}); "
                             f"give a grammar folder or a rule file") from error
    if not path.exists():
        raise UsageError(f"no grammar at {path}; make one with `run_all.sh learn --treebank SOURCE --out {path}`")
    return PCFG.load(path)
