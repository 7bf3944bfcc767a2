"""Another checkout of this repository beside this one, in one process: Inside-Outside of both in turn on the same
sentences, and how far their charts are apart.

Times are processor time of the one thread that works, the best of some rounds.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parsing import alternately, consume, sizes
from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.engine import EngineOptions, each_chart, inside_outside
from pcfg_artifact.system.machine import single_thread
from pcfg_artifact.tools.arguments import load_treebank
from pcfg_artifact.treebank.splits import split

BANDS = ((5, 15), (16, 25), (26, 40), (41, 80))  # words
N_OF_BAND, N_COMPARED, ROUNDS = 40, 500, 4
ONE_THREAD = EngineOptions(n_threads=1)
PACKAGE, COPY = "pcfg_artifact", "pcfg_before"  # two packages of one name cannot be imported together
MODULE = re.compile(rf"\b{PACKAGE}(?=\.[a-z{{])|(?<=from ){PACKAGE}\b|(?<=import ){PACKAGE}\b")  # not names of formats

Sentences = Sequence[list[str]]
Pass = Callable[[Sentences], Iterator[Chart]]


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.against is None:
        raise UsageError("bench versions compares with another checkout of this repository; name it with --against")
    check_checkout(args.against)
    trees = split(load_treebank(args))
    grammar = learn_pcfg(trees.train)
    with single_thread(), other_checkout(args.against, grammar) as before:
        return [*speeds(grammar, [tree.words() for tree in trees.test], before),
                *agreement(grammar, [tree.words() for tree in trees.test], before)]


def check_checkout(folder: Path) -> None:
    if not (folder / PACKAGE).is_dir():
        raise UsageError(f"--against {folder} holds no folder {PACKAGE}; give a checkout of this repository")


@contextmanager
def other_checkout(folder: Path, grammar: PCFG) -> Iterator[Pass]:
    """Inside-Outside as the package in `folder` does it, with the same grammar, imported under a name of its own."""
    check_checkout(folder)
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(folder / PACKAGE, Path(scratch) / COPY, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (Path(scratch) / COPY).rglob("*.py"):
            path.write_text(MODULE.sub(COPY, path.read_text(encoding="utf-8")), encoding="utf-8")
        grammar.save(Path(scratch) / "grammar")
        sys.path.insert(0, scratch)
        try:
            parsing = importlib.import_module(f"{COPY}.parsing")
            theirs = importlib.import_module(f"{COPY}.grammar").PCFG.load(Path(scratch) / "grammar")
            yield lambda sentences: iter(parsing.inside_outside(theirs, list(sentences), n_threads=1))
        finally:
            sys.path.remove(scratch)
            for name in [name for name in sys.modules if name.split(".")[0] == COPY]:
                del sys.modules[name]


def speeds(grammar: PCFG, test: Sentences, before: Pass) -> Iterator[dict[str, Any]]:
    """Old against new by length, and all of these together."""
    totals, n = np.zeros(2), 0
    for low, high in BANDS:
        sentences = [words for words in test if low <= len(words) <= high][:N_OF_BAND]
        if not sentences:
            continue
        passes = [partial(their_charts, before, sentences), partial(our_charts, grammar, sentences)]
        seconds = alternately(passes, ROUNDS)
        yield speed_row(f"{len(sentences)} sentences of {low} to {high} words", seconds, len(sentences))
        totals, n = totals + seconds, n + len(sentences)
    yield speed_row(f"all of them; {sizes(grammar)}", totals, n)


def their_charts(before: Pass, sentences: Sentences) -> None:
    consume(before(sentences))


def our_charts(grammar: PCFG, sentences: Sentences) -> None:
    consume(iter(inside_outside(grammar, list(sentences), n_threads=1)))


def speed_row(on: str, seconds: np.ndarray, n: int) -> dict[str, Any]:
    before, now = 1000 * seconds / n
    return {"on": on, "before ms": float(before), "now ms": float(now), "times as fast": float(before / now)}


def agreement(grammar: PCFG, test: Sentences, before: Pass) -> Iterator[dict[str, Any]]:
    """The largest difference over all entries: of logs of Z, inside and outside, and of marginals."""
    sentences = [words for words in test if BANDS[0][0] <= len(words) <= BANDS[-1][1]][:N_COMPARED]
    charts = zip(before(sentences), each_chart(grammar, sentences, ONE_THREAD), strict=True)
    yield {"on": f"agreement on {len(sentences)} sentences",
           "largest difference": max((difference(old, new) for old, new in charts), default=0.0)}


def difference(old: Chart, new: Chart) -> float:
    """Infinite where one of them has an entry that the other has not."""
    if old.log_prob != new.log_prob and not np.isfinite([old.log_prob, new.log_prob]).all():
        return np.inf
    found = [_by_entry(chart) for chart in (old, new)]
    if not np.array_equal(found[0][0], found[1][0]):
        return np.inf
    largest = 0.0 if old.log_prob == new.log_prob else abs(old.log_prob - new.log_prob)
    for x, y in zip(found[0][1:], found[1][1:], strict=True):
        if not np.array_equal(x == -np.inf, y == -np.inf):
            return np.inf
        possible = x > -np.inf
        largest = max(largest, float(np.abs(x[possible] - y[possible]).max(initial=0.0)))
    return largest


def _by_entry(chart: Chart) -> tuple[np.ndarray, ...]:
    starts, ends = chart.entry_bounds
    entry = (starts * (chart.length + 1) + ends) * chart.n_nonterminals + chart.symbols
    order = np.argsort(entry)
    return tuple(values[order] for values in (entry, chart.entry_log_inside, chart.entry_log_outside,
                                              chart.entry_marginals))
