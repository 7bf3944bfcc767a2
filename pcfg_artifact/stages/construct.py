"""Stage `construct`: the constructed transformers beside the algorithms they run, their sizes, and their trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pcfg_artifact.approximation.merging import choose_classes, merge_symbols
from pcfg_artifact.approximation.transforms import Correlations
from pcfg_artifact.constructions import approximate_relative, hard, relative
from pcfg_artifact.constructions.agreement import (
    CHARTS,
    Agreement,
    approximate_errors,
    end_to_end_errors,
    entry_errors,
    linear,
)
from pcfg_artifact.constructions.approximate_relative import ApproximateInsideOutside, MergedInsideOutside
from pcfg_artifact.constructions.hard import HardAttentionInsideOutside
from pcfg_artifact.constructions.relative import RelativeInsideOutside
from pcfg_artifact.constructions.transformer import ConstructedTransformer, example, sizes
from pcfg_artifact.errors import StageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.decoding import best_binary_tree, best_labels, labelled_recall
from pcfg_artifact.parsing.engine import EngineOptions, each_chart, inside_outside
from pcfg_artifact.parsing.masking import word_distributions
from pcfg_artifact.parsing.scoring import gold_spans, span_f1
from pcfg_artifact.run.example_sentence import example_trees
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.sections import ConstructConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine, single_thread
from pcfg_artifact.system.progress import progress
from pcfg_artifact.treebank.tree import Tree

CLOSE = 1e-9  # a span's error against the whole pass of the algorithm; projection may cancel a span to noise
BATCH = 32  # sentences that an approximate model parses at once
MERGED_PARSED = 10  # treebank sentences that the transformer of a merged grammar parses, beside the sampled ones


@single_thread()  # two threads took 37 s of processor time for 9 beside other work
def run(cfg: ConstructConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    grammar = inputs.pcfg()
    test = [tree for tree in inputs.trees("test") if 2 <= len(tree.words()) <= cfg.max_length]
    train = [tree.words() for tree in inputs.trees("train") if 2 <= len(tree.words()) <= cfg.max_length]
    explored = [filled_example(grammar, tree) for tree in example_trees(inputs)]
    out.write_json("example", explored[0])
    out.write_json("explored", [explored_sentence(grammar, found) for found in explored])
    sampled = sampled_sentences(inputs, grammar, cfg)
    metrics = list(theorem_metrics(grammar, sampled, cfg))
    for variant in inputs.variants:
        metrics += approximate_metrics(variant, inputs.pcfg(variant), train[:cfg.n_training], sampled,
                                       test[:cfg.n_parsed], cfg, machine)
        if cfg.merged_smoothing is not None:
            parsed = [tree.words() for tree in test[:MERGED_PARSED]]
            metrics += merged_metrics(variant, inputs.pcfg(variant), cfg.merged_smoothing, parsed + sampled, cfg)
    out.write_metrics(metric.at(seed=cfg.seed) for metric in metrics)


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


def theorem_metrics(grammar: PCFG, sentences: list[list[str]], cfg: ConstructConfig) -> Iterator[Metric]:
    n, L = grammar.n_nonterminals, cfg.max_length
    yield from exact_metrics(HardAttentionInsideOutside(grammar, L), hard.claimed_sizes(n, L), sentences, cfg.lengths,
                             model="theorem_3.1")
    yield from exact_metrics(RelativeInsideOutside(grammar, L), relative.claimed_sizes(n, L), sentences, cfg.lengths,
                             model="theorem_3.2")


def exact_metrics(built: ConstructedTransformer, claimed: dict[str, int], sentences: list[list[str]],
                  lengths: Sequence[int], **named: Any) -> Iterator[Metric]:
    """Sizes of a transformer that runs Inside-Outside of its grammar, and its largest errors against the engine."""
    agreement, one_mask = Agreement(built.max_length), 0.0
    for sentence in progress(sentences, total=len(sentences), desc=", ".join(named.values())):
        embeddings, chart = built(sentence), inside_outside(built.grammar, [sentence], outside="full")[0]
        agreement.add(*map(entry_errors, built.read_charts(embeddings), linear(chart)))
        expected = word_distributions(built.grammar, chart)
        one_mask = max(one_mask, float(entry_errors(built.word_distributions(embeddings), expected).max()))
    yield from size_metrics(built, claimed, **named)
    yield from error_metrics(built, agreement, lengths, **named)
    yield Metric(table="agreement", metric="one_mask", value=one_mask, n=len(sentences), unit="relative_error",
                 **named)


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
    yield from parsing_metrics(test, [labelled_recall(chart) for chart in exact],
                               [chart.log_prob > -np.inf for chart in exact], grammar=variant, model="exact")
    for name, model in (("few", few), ("low_rank", low_rank)):
        named: dict[str, Any] = {"grammar": variant, "model": name}
        agreement, trees, is_parsed, sentences = Agreement(L), [], [], words + sampled
        whole_pass = []
        batches = [sentences[first:first + BATCH] for first in range(0, len(sentences), BATCH)]
        for batch in progress(batches, total=len(batches), desc=f"{name}, {variant}"):
            embeddings = model(batch)
            for sentence, charts, marginals in zip(batch, model.read_charts(embeddings),
                                                   model.read_marginals(embeddings), strict=True):
                agreement.add(*approximate_errors(model, sentence, charts))
                whole_pass.append(end_to_end_errors(model, sentence, charts))
                trees.append(best_binary_tree(marginals.max(axis=-1)))
                is_parsed.append(bool(marginals.any()))
        claimed = approximate_relative.claimed_sizes(cfg.n_interminals, model.rank, L)
        yield from size_metrics(model, claimed, **named)
        yield from error_metrics(model, agreement, cfg.lengths, **named)
        errors = np.concatenate(whole_pass)
        yield Metric(table="agreement", metric="spans_within_1e-9", value=float(np.mean(errors <= CLOSE)),
                     n=len(errors), unit="fraction", **named)
        yield from parsing_metrics(test, trees[:len(test)], is_parsed[:len(test)], **named)
    if cfg.n_dense:  # the same weights as full matrices, a layer at a time
        dense, agreement = ApproximateInsideOutside(*options, backend="dense"), Agreement(L)
        longest = sorted(words, key=len)[-cfg.n_dense:]
        for charts, sentence in zip(dense.read_charts(dense(longest)), longest, strict=True):
            agreement.add(*approximate_errors(dense, sentence, charts))
        for name in CHARTS:
            yield Metric(table="agreement", grammar=variant, model="low_rank_dense", metric=name,
                         value=agreement.worst(name), n=len(longest), unit="relative_error")


def merged_metrics(variant: str, grammar: PCFG, smoothing: float, sentences: list[list[str]], cfg: ConstructConfig
                   ) -> Iterator[Metric]:
    """The transformer of the merged grammar against exact inference in it, whose F1 is in the table of approximations.

    A merged grammar has a rule for every triple of classes: a sentence of 25 words takes about a second.
    """
    classes = choose_classes(grammar, min(cfg.n_interminals, grammar.n_interminals),
                             min(cfg.n_preterminals, grammar.n_preterminals))
    merged = merge_symbols(grammar, classes, smoothing)
    model = MergedInsideOutside(merged, cfg.max_length, backend="structured")
    claimed = approximate_relative.merged_sizes(merged.n_interminals, merged.n_preterminals, cfg.max_length,
                                                model.n_heads)
    yield from exact_metrics(model, claimed, sentences, cfg.lengths, model="merged", grammar=variant)


def size_metrics(built: ConstructedTransformer, claimed: dict[str, int], **named: Any) -> Iterator[Metric]:
    for group, counted in (("claimed", claimed), ("built", sizes(built))):
        for metric, value in counted.items():
            yield Metric(table="sizes", group=group, metric=metric, value=value, n=1, unit="count", **named)


def error_metrics(built: ConstructedTransformer, agreement: Agreement, lengths: Sequence[int], **named: Any
                  ) -> Iterator[Metric]:
    """The largest errors: over all, by length of the sentence, and by the layer that computes the span."""
    def largest(metric: str, error: float, **dimensions: Any) -> Metric:
        return Metric(table="agreement", metric=metric, value=error, n=agreement.n_sentences, unit="relative_error",
                      **dimensions, **named)

    for chart in CHARTS:
        yield largest(chart, agreement.worst(chart))
        for length in lengths:
            yield largest(chart, float(agreement.by_length[chart][length]), group="sentence length", index=length)
    for layer, weights in enumerate(built.plan.layers, start=1):
        yield largest("inside_or_outside", agreement.of_layer(weights), layer=layer)


def parsing_metrics(gold: Sequence[Tree], trees: list, is_parsed: list[bool], **named: Any) -> Iterator[Metric]:
    """F1 on test sentences; one without probability counts as right-branching."""
    for convention in ("PB", "KIM"):
        yield from span_f1(gold, trees, convention).metrics("constructed", **named)
    yield Metric(table="constructed", metric="failed", value=1 - float(np.mean(is_parsed)), n=len(gold),
                 unit="fraction", **named)
