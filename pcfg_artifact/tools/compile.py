"""Compile the fast routines of this package for this machine, which the first run would do otherwise.

They are kept beside the package, or where NUMBA_CACHE_DIR says.  run_all.sh calls this once, when it has installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from pcfg_artifact.approximation.low_rank import approximate_charts
from pcfg_artifact.approximation.merging import choose_classes
from pcfg_artifact.approximation.restriction import select_symbols
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.parsing.decoding import parses
from pcfg_artifact.parsing.prefix.left_to_right import Prefix, incremental_posteriors, next_words
from pcfg_artifact.system.machine import available_cores
from pcfg_artifact.system.progress import progress
from pcfg_artifact.treebank.reading import EMBEDDED, read_treebank
from pcfg_artifact.workers.pool import run_jobs

EXAMPLE = "run_all.sh compile"
N_TREES = 50  # any grammar will do: what is compiled depends on types alone


def inside_outside(grammar: PCFG, sentences: Sequence[list[str]]) -> None:
    list(parses(grammar, sentences))


def left_to_right(grammar: PCFG, sentences: Sequence[list[str]]) -> None:
    next_words(grammar, sentences[0])
    list(incremental_posteriors(grammar, sentences[0]))
    Prefix(grammar).extend(sentences[0][0]).n_begun()


def approximations(grammar: PCFG, sentences: Sequence[list[str]]) -> None:
    choose_classes(grammar, 2, 2)
    approximate_charts(grammar, sentences[0], *select_symbols(grammar, 2, 2))


def sampling(grammar: PCFG, sentences: Sequence[list[str]]) -> None:
    sample_trees(grammar, 2).tokens.row(0)


# Every routine that the stages call, in calls that share none; what takes longest comes first.
ROUTINES: dict[str, Callable[[PCFG, Sequence[list[str]]], None]] = {
    "Inside-Outside": inside_outside, "left to right": left_to_right, "approximations": approximations,
    "sampling": sampling}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(args: argparse.Namespace) -> int:
    started = time.monotonic()
    trees = read_treebank(EMBEDDED).trees[:N_TREES]
    found = run_jobs(use, list(ROUTINES), (learn_pcfg(trees), [trees[0].words()]), available_cores())
    done = list(progress(found, total=len(ROUTINES), desc="compiling"))
    print(f"compiled in {time.monotonic() - started:.0f} s: {', '.join(sorted(done, key=list(ROUTINES).index))}")
    return 0


def use(about: tuple[PCFG, Sequence[list[str]]], name: str) -> str:
    """Call a routine, which compiles it; in a worker process."""
    ROUTINES[name](*about)
    return name
