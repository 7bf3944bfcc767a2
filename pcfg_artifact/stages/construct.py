"""Stage: the constructed transformers against the algorithms they run, their sizes, and the trees they find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pcfg_artifact import cells
from pcfg_artifact.approximation.transforms import Correlations
from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.config import ConstructConfig
from pcfg_artifact.constructions import (
    ApproximateInsideOutside,
    HardAttentionInsideOutside,
    RelativeInsideOutside,
    claimed_sizes,
)
from pcfg_artifact.constructions.agreement import (
    CHARTS,
    Agreement,
    approximate_errors,
    end_to_end_errors,
    entry_errors,
    linear,
)
from pcfg_artifact.constructions.filling import example
from pcfg_artifact.constructions.transformer import ConstructedTransformer
from pcfg_artifact.errors import StageError
from pcfg_artifact.example_sentence import example_trees
from pcfg_artifact.grammar import PCFG
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine, single_thread
from pcfg_artifact.parsing import (
    EngineOptions,
    best_binary_tree,
    each_chart,
    inside_outside,
    labelled_recall,
    span_f1,
)
from pcfg_artifact.parsing.best_labels import best_labels
from pcfg_artifact.parsing.masking import word_distributions
from pcfg_artifact.parsing.scoring import gold_spans
from pcfg_artifact.progress import progress
from pcfg_artifact.treebank.binarise import VARIANTS
from pcfg_artifact.treebank.tree import Tree

CLOSE = 1e-9  # a span's error against the whole pass of the algorithm; projection may cancel a span to noise
BATCH = 32  # sentences that an approximate model parses at once


@single_thread()  # two threads took 37 s of processor time for 9 beside other work
def run(cfg: ConstructConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    grammar = inputs.pcfg()
    test = [tree for tree in inputs.trees("test") if 2 <= len(tree.words()) <= cfg.max_length]
    train = [tree.words() for tree in inputs.trees("train") if 2 <= len(tree.words()) <= cfg.max_length]
    explored = [filled_example(grammar, tree) for tree in example_trees(inputs)]
    out.write_json("example", explored[0])
    out.write_json("explored", [explored_sentence(grammar, found) for found in explored])
    sampled = sampled_sentences(inputs, grammar, cfg)
    metrics = list(exact_metrics(grammar, sampled, cfg))
    for variant in VARIANTS:
        metrics += approximate_metrics(variant, inputs.pcfg(variant), train[:cfg.n_training], sampled,
                                       test[:cfg.n_parsed], cfg, machine)
    out.write_metrics(metrics)


def sampled_sentences(inputs: Inputs, grammar: PCFG, cfg: ConstructConfig) -> list[list[str]]:
    """The first sampled sentences of every length in question; all of them have probability."""
    drawn, found = inputs.sentences("validation"), []
    for length in cfg.lengths:
        chosen = np.flatnonzero(drawn.lengths == length)[:cfg.n_per_length]
        if not len(chosen):
            raise StageError(f"no sampled sentence has {length} words; choose other construct.lengths, "
                             f"or draw more with sample.n_validation")
        found += [[grammar.words[w] for w in drawn.row(s)] for s in chosen]
    return found


def filled_example(grammar: PCFG, tree: Tree) -> dict[str, Any]:
    """The sentence of a treebank tree through the layers of Theorem 3.2."""
    model = RelativeInsideOutside(grammar, len(tree.words()))
    return example(model, tree.words()) | {"gold": sorted(map(list, gold_spans(tree, binary=True)))}


def explored_sentence(grammar: PCFG, found: dict[str, Any]) -> dict[str, Any]:
    """What a reader of the report can look into: the exact chart, the trees, and the layers that fill the chart."""
    chart = inside_outside(grammar, [found["words"]], outside="full")[0]
    return {"words": found["words"], "gold": found["gold"], "parse": [list(span) for span in labelled_recall(chart)],
            "log_prob": chart.log_prob, "cells": best_labels(grammar, chart), "layers": found["layers"]}


def exact_metrics(grammar: PCFG, sentences: list[list[str]], cfg: ConstructConfig) -> Iterator[Metric]:
    n, L = grammar.n_nonterminals, cfg.max_length
    for name, model, claimed in (
            ("theorem_3.1", HardAttentionInsideOutside(grammar, L), claimed_sizes.claimed_hard(n, L)),
            ("theorem_3.2", RelativeInsideOutside(grammar, L), claimed_sizes.claimed_relative(n, L))):
        agreement, one_mask = Agreement(L), 0.0
        for sentence in progress(sentences, total=len(sentences), desc=name):
            embeddings, chart = model(sentence), inside_outside(grammar, [sentence], outside="full")[0]
            agreement.add(*map(entry_errors, model.read_charts(embeddings), linear(chart)))
            expected = word_distributions(grammar, chart)
            one_mask = max(one_mask, float(entry_errors(model.word_distributions(embeddings), expected).max()))
        yield from model_metrics(name, model, claimed, agreement, cfg)
        yield Metric(*cells.agreement(name, "one_mask"), cfg.seed, one_mask, len(sentences), "relative_error")


def approximate_metrics(variant: str, grammar: PCFG, train: list[list[str]], sampled: list[list[str]],
                        test: Sequence[Tree], cfg: ConstructConfig, machine: Machine) -> Iterator[Metric]:
    """Both approximate models of a variant: agreement on sampled and treebank sentences, F1 on the latter."""
    L, words = cfg.max_length, [tree.words() for tree in test]
    few = ApproximateInsideOutside(grammar, L, cfg.n_interminals, cfg.n_preterminals, None, backend="structured")
    correlations = Correlations(few.interminals, L)
    for chart in each_chart(grammar, train, EngineOptions(n_threads=machine.n_workers)):
        correlations.add(chart)
    rank = min(cfg.rank, len(few.interminals))
    options = (grammar, L, cfg.n_interminals, cfg.n_preterminals, rank, cfg.sign_rule, correlations.transforms(rank))
    low_rank = ApproximateInsideOutside(*options, backend="structured")
    exact = inside_outside(grammar, words, n_threads=machine.n_workers)
    yield from parsing_metrics(cells.constructed_model("exact", variant), test,
                               [labelled_recall(chart) for chart in exact],
                               [chart.log_prob > -np.inf for chart in exact], cfg.seed)
    for kind, model in (("few", few), ("low_rank", low_rank)):
        name = cells.constructed_model(kind, variant)
        agreement, trees, is_parsed, sentences = Agreement(L), [], [], words + sampled
        whole_pass = []
        batches = [sentences[first:first + BATCH] for first in range(0, len(sentences), BATCH)]
        for batch in progress(batches, total=len(batches), desc=name):
            embeddings = model(batch)
            for sentence, charts, marginals in zip(batch, model.read_charts(embeddings),
                                                   model.read_marginals(embeddings), strict=True):
                agreement.add(*approximate_errors(model, sentence, charts))
                whole_pass.append(end_to_end_errors(model, sentence, charts))
                trees.append(best_binary_tree(marginals.max(axis=-1)))
                is_parsed.append(bool(marginals.any()))
        claimed = claimed_sizes.claimed_approximate(cfg.n_interminals, model.rank, L)
        yield from model_metrics(name, model, claimed, agreement, cfg)
        errors = np.concatenate(whole_pass)
        yield Metric(*cells.agreement(name, "spans within 1e-9 end to end"), cfg.seed,
                     float(np.mean(errors <= CLOSE)), len(errors), "fraction")
        yield from parsing_metrics(name, test, trees[:len(test)], is_parsed[:len(test)], cfg.seed)
    if cfg.n_dense:  # the same weights as full matrices, a layer at a time
        dense, agreement = ApproximateInsideOutside(*options, backend="dense"), Agreement(L)
        longest = sorted(words, key=len)[-cfg.n_dense:]
        for charts, sentence in zip(dense.read_charts(dense(longest)), longest, strict=True):
            agreement.add(*approximate_errors(dense, sentence, charts))
        for name in CHARTS:
            yield Metric(*cells.agreement(cells.constructed_model("low_rank dense", variant), name), cfg.seed,
                         agreement.worst(name), len(longest), "relative_error")


def model_metrics(name: str, model: ConstructedTransformer, claimed: dict[str, int], agreement: Agreement,
                  cfg: ConstructConfig) -> Iterator[Metric]:
    """Sizes, and the largest errors: over all, by length of the sentence, and by the layer that computes the span."""
    for size, value in claimed_sizes.built(model).items():
        yield Metric(*cells.constructed_size(name, size, "claimed"), cfg.seed, claimed[size], 1, "count")
        yield Metric(*cells.constructed_size(name, size, "built"), cfg.seed, value, 1, "count")
    errors = {cells.agreement(name, chart): agreement.worst(chart) for chart in CHARTS}
    errors |= {cells.agreement(name, chart, length): float(agreement.by_length[chart][length])
               for chart in CHARTS for length in cfg.lengths}
    for cell, error in errors.items():
        yield Metric(*cell, cfg.seed, error, agreement.n_sentences, "relative_error")
    for index, layer in enumerate(model.plan.layers, start=1):
        yield Metric(*cells.agreement_by_layer(name, index), cfg.seed, agreement.of_layer(layer),
                     agreement.n_sentences, "relative_error")


def parsing_metrics(name: str, gold: Sequence[Tree], trees: list, is_parsed: list[bool], seed: int) -> Iterator[Metric]:
    """F1 on test sentences; one without probability counts as right-branching."""
    for convention in ("PB", "KIM"):
        for column, (value, n) in cells.f1_columns(span_f1(gold, trees, convention)).items():
            yield Metric(*cells.constructed_score(name, column), seed, value, n, "percent")
    yield Metric(*cells.constructed_score(name, "failed"), seed, 1 - float(np.mean(is_parsed)), len(gold), "fraction")
