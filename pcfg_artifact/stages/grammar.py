"""Stage 1: a treebank becomes a PCFG, in both variants, with its sizes and symbol frequencies."""

from __future__ import annotations

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.config import GrammarConfig
from pcfg_artifact.grammar import PCFG, learn_pcfg
from pcfg_artifact.grammar.expectation import frequencies
from pcfg_artifact.grammar.sizes import grammar_sizes
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.progress import progress, say
from pcfg_artifact.treebank.binarise import VARIANTS
from pcfg_artifact.treebank.losses import losses
from pcfg_artifact.treebank.reading import read_treebank
from pcfg_artifact.treebank.splits import split


def run(cfg: GrammarConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    treebank = read_treebank(inputs.source, skip_bad_trees=cfg.skip_bad_trees, progress=progress)
    for line in losses(treebank):
        say(line)
    parts = split(treebank)
    for name, trees in (("train", parts.train), ("test", parts.test)):
        out.write_text(f"{name}.trees", "".join(f"{tree}\n" for tree in trees))

    metrics: list[Metric] = []
    for variant in VARIANTS:
        grammar = learn_pcfg(parts.train, variant, cfg.cutoff, progress)
        grammar.save(out.path(variant))
        sizes = grammar_sizes(grammar, parts.train)
        metrics += [Metric(*cells.grammar_size(name, variant), cfg.seed, value, len(parts.train), unit)
                    for name, (value, unit) in sizes.items()]
        metrics += frequency_metrics(grammar, variant, cfg.seed)
    metrics += [Metric(*cells.treebank_count(name), cfg.seed, value, treebank.n_raw, "count")
                for name, value in {"read": treebank.n_raw, "kept": len(parts.train) + len(parts.test),
                                    "train": len(parts.train), "test": len(parts.test), **treebank.cleaning}.items()]
    out.write_json("sizes", {"variant": cfg.variant, "cutoff": cfg.cutoff, "split": parts.how,
                             "bad_trees": [str(bad) for bad in treebank.bad_trees]})
    out.write_metrics(metrics)


def frequency_metrics(grammar: PCFG, variant: str, seed: int) -> list[Metric]:
    """Relative frequency of every symbol by rank, in-terminals and pre-terminals apart (the frequency figure)."""
    counts, n = frequencies(grammar), grammar.n_interminals
    metrics = []
    for kind, part in (("interminal", counts[:n]), ("preterminal", counts[n:])):
        share = np.sort(part)[::-1] / part.sum()
        metrics += [Metric(*cells.frequency(kind, rank, variant), seed, value, int(part.sum()), "fraction")
                    for rank, value in enumerate(share, start=1)]
    return metrics
