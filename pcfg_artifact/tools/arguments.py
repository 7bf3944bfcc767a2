"""Arguments that several tools share."""

from __future__ import annotations

import argparse
from pathlib import Path

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.rulefile import from_text


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
