"""What a second core brings: Inside-Outside and sampling to disk on one thread and on all cores, by the clock."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.parsing import LONGEST, SHORTEST, alternately, consume
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import Sampler
from pcfg_artifact.parsing.cpu import CpuEngine
from pcfg_artifact.parsing.engine import EngineOptions
from pcfg_artifact.parsing.leaves import sentence_leaves
from pcfg_artifact.system.machine import available_cores
from pcfg_artifact.tools.arguments import load_treebank
from pcfg_artifact.treebank.splits import split
from pcfg_artifact.workers.shards import write_shard

N_SENTENCES, N_DRAWN, ROUNDS = 400, 1_000_000, 3


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    trees = split(load_treebank(args))
    grammar = learn_pcfg(trees.train)
    sentences = [tree.words() for tree in trees.test if SHORTEST <= len(tree.words()) <= LONGEST][:N_SENTENCES]
    return [*parsing(grammar, sentences), *sampling(grammar, N_DRAWN)]


def parsing(grammar: PCFG, sentences: Sequence[list[str]]) -> Iterator[dict[str, Any]]:
    leaves = [sentence_leaves(grammar, sentence) for sentence in sentences]

    def work(n_threads: int) -> Callable[[], None]:
        engine = CpuEngine(grammar, EngineOptions(n_threads=n_threads))
        return lambda: consume(engine.charts(leaves))

    yield from by_threads("cpu: inside, outside, marginals", len(sentences), work)


def sampling(grammar: PCFG, n: int) -> Iterator[dict[str, Any]]:
    sampler = Sampler(grammar, 0)
    with tempfile.TemporaryDirectory() as folder:

        def work(n_threads: int) -> Callable[[], Any]:
            return partial(write_shard, Path(folder) / str(n_threads), sampler, 0, n, with_rules=False,
                           n_workers=n_threads)

        yield from by_threads("sampling to disk", n, work)


def by_threads(what: str, n: int, work: Callable[[int], Callable[[], Any]]) -> Iterator[dict[str, Any]]:
    """A row for one thread and one for all cores: the best of some rounds, taken in turn."""
    counts = (1, max(available_cores(), 2))
    best = alternately([work(count) for count in counts], ROUNDS, time.perf_counter)
    for count, spent in zip(counts, best, strict=True):
        yield {"what": what, "threads": count, "sentences": n, "seconds": float(spent), "sentences/s": n / float(spent),
               "times as fast": float(best[0] / spent)}
