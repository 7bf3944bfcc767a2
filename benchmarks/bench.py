"""Measure speed and memory, ours against others, in one run on the same data.

`parsing` (the default): Inside-Outside engines against the reference and, where it is installed, torch-struct; growth
with length and grammar size; the sampler.  `prefix`: next words from left to right against Inside-Outside and, where it
is installed, genlm-grammar.  `versions`: Inside-Outside against that of another checkout.  `threads`: what a second
core brings to parsing and to sampling.  `pretrain`: our training loop against transformers' Trainer, and what the parts
of a step take.  `probing`: the linear probe against scikit-learn, both run to convergence, on a run's models: scores
and seconds.  `reading`: a corpus in random order, from memory-mapped arrays against Arrow tables.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

from pcfg_artifact.tools.arguments import add_treebank_arguments

EXAMPLE = "run_all.sh bench parsing --treebank craft_penn.zip"


# Each is a module beside this one with run(args) -> rows: column -> value, a number or a text.
BENCHMARKS = ("parsing", "prefix", "pretrain", "probing", "reading", "threads", "versions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, default="parsing", metavar="NAME",
                        help=f"one of {', '.join(BENCHMARKS)} (parsing)")
    add_treebank_arguments(parser, "parsing, prefix, threads, versions: learn the grammar from its training split, "
                                   "parse its test split (embedded)", default="embedded")
    parser.add_argument("--against", type=Path, metavar="DIR",
                        help="prefix, versions: also time Inside-Outside of another checkout of this repository")
    parser.add_argument("--run", type=Path, metavar="RUN", help="probing: a finished run, whose models are probed")
    parser.add_argument("--device", default="cpu", help="parsing: cuda measures the engine gpu beside one core (cpu)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    rows = importlib.import_module(f"benchmarks.{args.name}").run(args)
    print(json.dumps(rows, indent=1) if args.json else _table(rows))
    return 0


def _table(rows: list[dict[str, Any]]) -> str:
    """Columns in the order in which rows first mention them."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns, *([_text(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
    return "\n".join("  ".join(f"{cell:<{width}}" if n == 0 else f"{cell:>{width}}"
                               for n, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
                     for line in cells)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
