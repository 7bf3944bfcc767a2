"""Stage `grammar`: a treebank becomes a PCFG, in both variants, with its sizes and symbol frequencies."""

from __future__ import annotations

import numpy as np

from pcfg_artifact.grammar.expectation import frequencies, grammar_sizes
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.sections import GrammarConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import progress, say
from pcfg_artifact.treebank.binarise import VARIANTS
from pcfg_artifact.treebank.reading import read_treebank
from pcfg_artifact.treebank.splits import split


def run(cfg: GrammarConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    treebank = read_treebank(inputs.source, skip_bad_trees=cfg.skip_bad_trees, progress=progress)
    for line in treebank.cleaning_report():
        say(line)
    parts = split(treebank)
    for name, trees in (("train", parts.train), ("test", parts.test)):
        out.write_text(f"{name}.trees", "".join(f"{tree}\n" for tree in trees))

    metrics: list[Metric] = []
    for variant in VARIANTS:
        grammar = learn_pcfg(parts.train, variant, cfg.cutoff, progress)
        grammar.save(out.path(variant))
        measured = [*grammar_sizes(grammar, parts.train), *symbol_shares(grammar)]
        metrics += [metric.at(grammar=variant, seed=cfg.seed) for metric in measured]
    counts = {"read": treebank.n_raw, "kept": len(parts.train) + len(parts.test), "train": len(parts.train),
              "test": len(parts.test), **treebank.cleaning}
    metrics += [Metric(table="treebank", group=what.replace("_", " "), metric="trees", seed=cfg.seed, value=value,
                       n=treebank.n_raw, unit="count") for what, value in counts.items()]
    out.write_json("sizes", {"variant": cfg.variant, "cutoff": cfg.cutoff, "split": parts.how,
                             "bad_trees": [str(bad) for bad in treebank.bad_trees]})
    out.write_metrics(metrics)


def symbol_shares(grammar: PCFG) -> list[Metric]:
    """Relative frequency of every symbol by rank, in-terminals and pre-terminals apart (the frequency figure)."""
    counts, n = frequencies(grammar), grammar.n_interminals
    return [Metric(table="frequency", group=kind, index=rank, metric="share", value=share, n=int(part.sum()),
                   unit="fraction")
            for kind, part in (("in-terminals", counts[:n]), ("pre-terminals", counts[n:]))
            for rank, share in enumerate(np.sort(part)[::-1] / part.sum(), start=1)]
