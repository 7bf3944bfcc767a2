"""Stage: what Inside-Outside loses with few non-terminals and with low rank, for both grammar variants."""

from __future__ import annotations

from dataclasses import dataclass

from pcfg_artifact import cells
from pcfg_artifact.approximation import rows
from pcfg_artifact.approximation.rows import Rows
from pcfg_artifact.approximation.scores import Trial
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.config import ApproximateConfig
from pcfg_artifact.grammar import PCFG, sample_trees
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.progress import progress
from pcfg_artifact.seeding import derive_seed, stream
from pcfg_artifact.treebank.binarise import VARIANTS
from pcfg_artifact.treebank.tree import Tree


@dataclass(frozen=True)
class PlannedTable:
    """A table to be measured: the approximations behind its rows, and what each is tried on."""

    name: str
    rows: Rows
    trial: Trial


def run(cfg: ApproximateConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    # A sentence of one word has one tree: it says nothing about a parser.
    test = [tree for tree in inputs.trees("test") if 2 <= len(tree.words()) <= cfg.max_length][:cfg.n_test]
    train = [tree for tree in inputs.trees("train") if 2 <= len(tree.words()) <= cfg.max_training_length]
    chosen = stream(cfg.seed, "approximate", "training").permutation(len(train))[:cfg.n_training]
    metrics: list[Metric] = []
    for variant in VARIANTS:
        tables = variant_tables(cfg, inputs.pcfg(variant), [train[s] for s in chosen], test, out, machine)
        total = sum(len(table.rows) for table in tables)
        units = ((table, row) for table in tables for row in table.rows)
        for table, row in progress(units, total=total, desc=f"approximations of {variant}"):
            name, scores = cells.approximation_table(table.name, variant), table.trial.scores(table.rows[row])
            metrics += [Metric(name, row, column, cfg.seed, *score) for column, score in scores.items()]
    out.write_metrics(metrics)


def variant_tables(cfg: ApproximateConfig, grammar: PCFG, train: list[Tree], test: list[Tree], out: StageDir,
                   machine: Machine) -> list[PlannedTable]:
    """Every table of one grammar variant, with the approximations behind its rows."""
    n_threads = machine.n_workers
    drawn = sample_trees(grammar, cfg.n_drawn, derive_seed(cfg.seed, "approximate", "drawn"), cfg.max_drawn_length)
    out.facts.setdefault("draws rejected as too long", []).append(drawn.n_rejected)
    sentences = list(drawn.tokens.rows())
    trial = Trial(grammar, test, sentences, n_threads)
    small_trial = Trial(grammar, test[:cfg.n_ablation_test], sentences[:cfg.n_ablation_drawn], n_threads)

    learned = rows.learn_correlations(grammar, [tree.words() for tree in train], cfg.n_projected, n_threads,
                                      progress)
    longest = max(cfg.max_length, cfg.max_drawn_length)
    few = rows.few_symbols(grammar, cfg.n_interminals, cfg.n_preterminals)
    low_rank = rows.low_rank(grammar, learned, cfg.ranks, cfg.n_preterminals, longest)
    return [
        PlannedTable("table1", {cells.EXACT: rows.exact(grammar)} | few, trial),
        PlannedTable("table2", {name: row for name, row in few.items() if name in compared_with(cfg)} | low_rank,
                     trial),
        PlannedTable("ablation", rows.ablations(grammar, learned, cfg.ablation_ranks, cfg.n_preterminals, longest),
                     small_trial),
        PlannedTable("merged", rows.merged(grammar, cfg.merged_interminals, cfg.n_preterminals, cfg.smoothing), trial),
    ]


def compared_with(cfg: ApproximateConfig) -> set[str]:
    """Rows of table 1 that table 2 repeats: as many in-terminals as the smallest rank, and those that are projected."""
    return {cells.few_symbols(n, cfg.n_preterminals) for n in (min(cfg.ranks), cfg.n_projected)}
