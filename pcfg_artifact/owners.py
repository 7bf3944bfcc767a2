"""Where each table comes from: the stages that write it, and the functions that compute its values.

The order is that of the report.  A table that is added to cells.py gets its line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Owner:
    """`computed_by`: stage -> "module:function", which can be imported; a stage that derives numbers counts too."""

    title: str
    computed_by: Mapping[str, str]
    is_figure: bool = False  # drawn, since as a table it would be long and say less


_TRIAL = {"approximate": "pcfg_artifact.approximation.scores:Trial.scores"}
_TREES = {"probe": "pcfg_artifact.probing.tasks:score_binary_trees"}
_MARGINALS = {"probe": "pcfg_artifact.probing.tasks:score_correlation"}
_CONTROL = {"control": "pcfg_artifact.probing.probe_rows:selectivity_rows"}
_ERRORS = {"construct": "pcfg_artifact.constructions.agreement:entry_errors"}
_BEST = {"probe": "pcfg_artifact.probing.probe_rows:best_layer_rows"}

OWNERS = {
    "table1": Owner("Table 1. Few non-terminals: F1 and masked-word perplexity", _TRIAL),
    "table2": Owner("Table 2. Low rank: F1 and masked-word perplexity", _TRIAL),
    "table3": Owner("Table 3. Perplexity of the pre-trained models",
                    {"pretrain": "pcfg_artifact.mlm.evaluation:mean_loss"}),
    "table4": Owner("Table 4. Parsing by probes, best layer", _TREES),
    "table5": Owner("Table 5. Marginals: Pearson correlation by span length", _MARGINALS),
    "table6": Owner("Table 6. Control task of the parsing probe, accuracy by layer", _CONTROL),
    "table7": Owner("Table 7. Marginals: Spearman and Pearson correlation", _MARGINALS),
    "table8": Owner("Table 8. Control task of the marginal probe, by span length", _CONTROL),
    "table1_novm": Owner("Table 1 with the coarser grammar (no parent annotation)", _TRIAL),
    "table2_novm": Owner("Table 2 with the coarser grammar (no parent annotation)", _TRIAL),
    "ablation": Owner("Ablations of the approximations", _TRIAL),
    "ablation_novm": Owner("Ablations with the coarser grammar", _TRIAL),
    "merged": Owner("Merged symbols instead of dropped ones, exact inference", _TRIAL),
    "merged_novm": Owner("Merged symbols with the coarser grammar", _TRIAL),
    "percentages": Owner("What the approximations cost, in percent",
                         {"verify": "pcfg_artifact.verification.derived:percentages"}),
    "percentages_novm": Owner("What the approximations cost with the coarser grammar, in percent",
                              {"verify": "pcfg_artifact.verification.derived:percentages"}),
    "near_zero": Owner("Share of spans with hardly any probability",
                       {"verify": "pcfg_artifact.records:near_zero"}),
    "sensitivity": Owner("Sensitivity and selectivity of the probes",
                         {"verify": "pcfg_artifact.verification.derived:sensitivity"}),
    "sizes": Owner("Sizes of the constructed transformers",
                   {"construct": "pcfg_artifact.constructions.claimed_sizes:built"}),
    "agreement": Owner("Constructed transformers against Inside-Outside, largest relative error", _ERRORS),
    "marginals": Owner("Parsing by Inside-Outside and by the trivial baselines",
                       {"marginals": "pcfg_artifact.stages.marginals:parsing_metrics"}),
    "optimum": Owner("Exact masked-word optimum", {"marginals": "pcfg_artifact.parsing.masking:perplexity"}),
    "against_optimum": Owner("Models beside the exact optimum, under the same masks",
                             {"pretrain": "pcfg_artifact.mlm.optimum:Gap.between"}),
    "grammar": Owner("The learned grammar", {"grammar": "pcfg_artifact.grammar.sizes:grammar_sizes"}),
    "treebank": Owner("The treebank", {"grammar": "pcfg_artifact.treebank.reading:read_treebank"}),
    "agreement_by_layer": Owner("Constructed transformers against Inside-Outside, by the layer that computes a span",
                                _ERRORS),
    "best_layer": Owner("The layer that a probe parses best from", _BEST),
    "constructed": Owner("Parsing by the constructed transformers",
                         {"construct": "pcfg_artifact.stages.construct:parsing_metrics"}),
    "figure_selectivity": Owner("Control task of the marginal probe, by layer", _CONTROL),
    "optimum_gap": Owner("Distance of the models from the optimum, by kind of masked word",
                         {"pretrain": "pcfg_artifact.mlm.gap:circumstance_rows"}),
    "probing_corpora": Owner("The corpora of the probes", {"probe": "pcfg_artifact.corpora:read_corpora"}),
    "sample": Owner("The sampled sentences", {"sample": "pcfg_artifact.stages.sample:write_shard"}),
    "spread": Owner("What the seed of a probe changes", _BEST),
    "next_word": Owner("Causal models beside the exact next word, on the same words",
                       {"incremental": "pcfg_artifact.mlm.next_word_gap:next_word_rows"}),
    "next_word_gap": Owner("Distance of the causal models from the exact next word, by kind of word",
                           {"incremental": "pcfg_artifact.mlm.gap:circumstance_rows"}),
    "incremental": Owner("What is known of the tree at each word: share of the variance that is explained, best layer",
                         {"incremental": "pcfg_artifact.probing.reading_probe:explained"}),
    "settled": Owner("How much of the tree is settled when a span ends, some words later, and at the end",
                     {"incremental": "pcfg_artifact.parsing.settling:settling"}),
    "figure_incremental": Owner("What is known of the tree at each word, every layer",
                                {"incremental": "pcfg_artifact.probing.reading_probe:explained"}, is_figure=True),
    "figure_frequency": Owner("Frequency of non-terminals",
                              {"grammar": "pcfg_artifact.stages.grammar:frequency_metrics"}, is_figure=True),
    "figure_layers": Owner("Parsing by probes, every layer", _TREES, is_figure=True),
    "figure_marginals": Owner("Marginals by probes, every layer", _MARGINALS, is_figure=True),
    "figure_attention": Owner("Attended distance of every head",
                              {"attention": "pcfg_artifact.probing.attended_distance:attended_distances"},
                              is_figure=True),
    "interventions": Owner("Encoded or used? Change of masked words when a span's states are changed, middle layer",
                           {"intervene": "pcfg_artifact.interventions.effects:Observations.estimates"}),
    "intervention_groups": Owner("The same by width of the span and distance of the masked word",
                                 {"intervene": "pcfg_artifact.interventions.effects:Observations.estimates"}),
    "dynamics": Owner("When a model learns: the step at which each curve has gone half of its way",
                      {"dynamics": "pcfg_artifact.interventions.learning_curves:half_way_step"}),
    "figure_interventions": Owner("Interventions at every layer",
                                  {"intervene": "pcfg_artifact.interventions.effects:Observations.estimates"},
                                  is_figure=True),
    "figure_dynamics": Owner("What a model has learned while it is trained",
                             {"dynamics": "pcfg_artifact.workers.checkpoint_jobs:measure_checkpoint"},
                             is_figure=True),
    "loss_curve": Owner("Loss while pre-training", {"pretrain": "pcfg_artifact.mlm.training:train"}, is_figure=True),
    "f1_by_length": Owner("F1 by span width", {"marginals": "pcfg_artifact.parsing.scoring:span_f1",
                                               "probe": "pcfg_artifact.probing.tasks:score_spans"}, is_figure=True),
}


def tables_of(stage: str) -> tuple[str, ...]:
    """The tables that a stage may write rows of."""
    return tuple(table for table, owner in OWNERS.items() if stage in owner.computed_by)
