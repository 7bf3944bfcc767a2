"""Stage `approximate`: what Inside-Outside loses with few non-terminals and with low rank, for both variants."""

from __future__ import annotations

from pcfg_artifact.approximation import algorithm
from pcfg_artifact.approximation.algorithm import Approximation, Rows
from pcfg_artifact.approximation.scores import TABLE, Trial, costs
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.gpu.arithmetic import stage_options
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.sections import ApproximateConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import progress
from pcfg_artifact.system.random_streams import derive_seed, stream
from pcfg_artifact.treebank.tree import Tree


def run(cfg: ApproximateConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    # A sentence of one word has one tree: it says nothing about a parser.
    test = [tree for tree in inputs.trees("test") if 2 <= len(tree.words()) <= cfg.max_length][:cfg.n_test]
    train = [tree for tree in inputs.trees("train") if 2 <= len(tree.words()) <= cfg.max_training_length]
    chosen = stream(cfg.seed, "approximate", "training").permutation(len(train))[:cfg.n_training]
    metrics: list[Metric] = []
    for variant in inputs.variants:
        tables = variant_tables(cfg, inputs.pcfg(variant), [train[s] for s in chosen], test, out, machine)
        units = [(name, row, model, trial) for name, (rows, trial) in tables.items() for row, model in rows.items()]
        found = {(name, row): [score.at(table=name, grammar=variant, **row._asdict(), seed=cfg.seed)
                               for score in trial.scores(model)]
                 for name, row, model, trial in progress(units, desc=f"approximations of {variant}")}
        metrics += [score for scores in found.values() for score in scores]
        main = {row: scores for (name, row), scores in found.items() if name == TABLE}
        metrics += [cost for row in algorithm.COSTED if row in main for cost in costs(main[algorithm.EXACT], main[row])]
    out.write_metrics(metrics)


def variant_tables(cfg: ApproximateConfig, grammar: PCFG, train: list[Tree], test: list[Tree], out: StageDir,
                   machine: Machine) -> dict[str, tuple[Rows, Trial]]:
    """Every table of one grammar variant: its approximations, and what each is tried on."""
    n_threads = machine.n_workers
    drawn = sample_trees(grammar, cfg.n_drawn, derive_seed(cfg.seed, "approximate", "drawn"), cfg.max_drawn_length)
    out.facts.setdefault("draws rejected as too long", []).append(drawn.n_rejected)
    sentences = list(drawn.tokens.rows())
    options = stage_options(grammar, [*(len(tree.words()) for tree in test), *map(len, sentences)], machine.device,
                            n_threads)
    trial = Trial(grammar, test, sentences, options)
    small_trial = Trial(grammar, test[:cfg.n_ablation_test], sentences[:cfg.n_ablation_drawn], options)
    words = [tree.words() for tree in train]
    learned = algorithm.learn_correlations(grammar, words, cfg.n_projected, n_threads, progress)
    longest = max(cfg.max_length, cfg.max_drawn_length)
    main = {algorithm.EXACT: Approximation(grammar),
            **algorithm.few_symbols(grammar, cfg.n_interminals, cfg.n_preterminals),
            **algorithm.low_rank(grammar, learned, cfg.ranks, cfg.n_preterminals, longest),
            **algorithm.merged(grammar, cfg.merged_interminals, cfg.n_preterminals, cfg.smoothing)}
    ablations = algorithm.ablations(grammar, learned, cfg.ablation_ranks, cfg.n_preterminals, longest)
    return {TABLE: (main, trial), "ablation": (ablations, small_trial)}
