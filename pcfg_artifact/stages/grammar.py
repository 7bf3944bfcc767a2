"""Stage `grammar`: a treebank becomes a PCFG, in both variants, or a given grammar is taken as it is; with sizes."""

from __future__ import annotations

from typing import Any

from pcfg_artifact.grammar.expectation import grammar_sizes, symbol_shares
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.metrics.schema import GIVEN, Metric
from pcfg_artifact.run.given_grammar import grammar_of_run
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.sections import GrammarConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import progress, say
from pcfg_artifact.system.random_streams import derive_seed
from pcfg_artifact.treebank.binarise import VARIANTS
from pcfg_artifact.treebank.reading import read_treebank
from pcfg_artifact.treebank.splits import split


def run(cfg: GrammarConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    metrics, about = take(cfg, inputs.source, out) if inputs.is_given else learn(cfg, inputs.source, out)
    out.write_json("sizes", about)
    out.write_metrics(metric.at(seed=cfg.seed) for metric in metrics)


def learn(cfg: GrammarConfig, source: str, out: StageDir) -> tuple[list[Metric], dict[str, Any]]:
    """Both variants from the training trees of a treebank."""
    treebank = read_treebank(source, skip_bad_trees=cfg.skip_bad_trees, progress=progress)
    for line in treebank.cleaning_report():
        say(line)
    parts = split(treebank)
    for name, trees in (("train", parts.train), ("test", parts.test)):
        out.write_text(f"{name}.trees", "".join(f"{tree}\n" for tree in trees))

    metrics: list[Metric] = []
    for variant in VARIANTS:
        grammar = learn_pcfg(parts.train, variant, cfg.cutoff, progress)
        grammar.save(out.path(variant))
        metrics += measured(grammar, variant, [len(tree.words()) for tree in parts.train])
    counts = {"read": treebank.n_raw, "kept": len(parts.train) + len(parts.test), "train": len(parts.train),
              "test": len(parts.test), **treebank.cleaning}
    metrics += [Metric(table="treebank", group=what.replace("_", " "), metric="trees", value=value, n=treebank.n_raw,
                       unit="count") for what, value in counts.items()]
    return metrics, {"variant": cfg.variant, "cutoff": cfg.cutoff, "split": parts.how,
                     "bad_trees": [str(bad) for bad in treebank.bad_trees]}


def take(cfg: GrammarConfig, source: str, out: StageDir) -> tuple[list[Metric], dict[str, Any]]:
    """The given grammar, and trees drawn from it for the stages that read a treebank's."""
    grammar = grammar_of_run(source, cfg.longest)
    grammar.save(out.path(GIVEN))
    drawn = {name: sample_trees(grammar, n, derive_seed(cfg.seed, "given", name))
             for name, n in (("train", cfg.n_train), ("test", cfg.n_test))}
    for name, trees in drawn.items():
        out.write_ragged(f"{name}/rules", trees.rules)
    return measured(grammar, GIVEN, drawn["train"].tokens.lengths.tolist()), {"variant": GIVEN, "source": source}


def measured(grammar: PCFG, variant: str, lengths: list[int]) -> list[Metric]:
    """Sizes and frequencies; lengths: words of the training trees."""
    return [metric.at(grammar=variant) for metric in (*grammar_sizes(grammar, lengths), *symbol_shares(grammar))]
