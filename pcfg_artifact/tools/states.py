"""F1 of the latent-variable PCFG against its number of states: a table and a figure.

Learns from the training trees of a treebank, parses its test sentences with the PCFG and with the spectral
latent-variable PCFG of each number of states, and writes metrics.csv and f1_by_states.png.  The projections are
computed once: those for fewer states are the first of those for more.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.spectral import SMOOTHING, collect_nodes, latent_pcfg, node_vectors
from pcfg_artifact.judge.drawing import MARKERS, SERIES, Drawing, colour, finish, new_figure, styled
from pcfg_artifact.metrics.schema import Metric, to_csv
from pcfg_artifact.parsing.decoding import Span, parse_of, with_retries
from pcfg_artifact.parsing.latent_engine import Survivors, latent_charts
from pcfg_artifact.parsing.scoring import span_f1
from pcfg_artifact.run import stage_folder
from pcfg_artifact.system import storage
from pcfg_artifact.system.progress import progress
from pcfg_artifact.tools.arguments import (
    add_treebank_arguments,
    load_treebank,
    named_path,
    refuse_counts,
    refuse_unusable_folder,
)
from pcfg_artifact.treebank.binarise import VARIANTS
from pcfg_artifact.treebank.splits import split
from pcfg_artifact.treebank.tree import Tree

EXAMPLE = "run_all.sh states --treebank craft_penn.zip --states 1 2 4 8 16 --out states"
PLAIN, LATENT = "PCFG", "spectral PCFG"
CURVES = {("PB", "sentence_f1"): "PB, sentence", ("PB", "corpus_f1"): "PB, corpus",
          ("KIM", "sentence_f1"): "KIM, sentence", ("KIM", "corpus_f1"): "KIM, corpus"}  # by convention and measure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_treebank_arguments(parser, required=True)
    parser.add_argument("--states", type=int, nargs="+", metavar="M", default=[1, 2, 4, 8, 13, 16],
                        help="the most states of a symbol, one grammar for each (1 2 4 8 13 16)")
    parser.add_argument("--out", required=True, type=named_path, metavar="DIR", help="the folder to write")
    parser.add_argument("--variant", choices=VARIANTS, default="vm", help="with (vm) or without (novm) parents (vm)")
    parser.add_argument("--cutoff", type=int, default=5, help="words seen this often or less become signatures (5)")
    parser.add_argument("--smoothing", type=float, default=SMOOTHING,
                        help=f"the larger, the more a rare rule's tensor is simplified ({SMOOTHING})")


def run(args: argparse.Namespace) -> int:
    refuse_unusable_folder(args.out)
    refuse_counts(*(("--states", states, 1) for states in args.states))
    parts = split(load_treebank(args))
    pcfg = learn_pcfg(parts.train, args.variant, args.cutoff, progress)
    nodes = collect_nodes(parts.train, pcfg, args.variant, progress)
    vectors = node_vectors(nodes, pcfg, max(args.states), max(args.states), progress=progress)

    # The PCFG is run once: every latent grammar needs only what its pruning leaves.
    sentences = [tree.words() for tree in parts.test]
    read = with_retries(pcfg, sentences, lambda chart, words, n: (parse_of(chart, n).spans, Survivors.of(chart, words)))
    plain, survivors = zip(*progress(read, total=len(sentences), desc="PCFG"), strict=True)
    metrics = f1_of(parts.test, plain, model=PLAIN)
    print(table_row("", [*CURVES.values(), "not positive"]))
    print(table_row("PCFG", [metric.value for metric in metrics]))
    for m in sorted(set(args.states)):
        grammar = latent_pcfg(vectors.truncated(pcfg, m, m), pcfg, args.smoothing, progress)
        latent = list(progress(latent_charts(grammar, survivors), total=len(sentences), desc=f"{m} states"))
        found = f1_of(parts.test, [parse_of(chart, 1).spans for chart in latent], model=LATENT, size=m)
        n_negative = sum(chart.is_negative for chart in latent)
        found.append(Metric(table="latent_states", model=LATENT, size=m, metric="not_positive", value=n_negative,
                            n=len(latent), unit="count"))
        print(table_row(f"m={m}", [metric.value for metric in found]), flush=True)
        metrics += found
    storage.write_text(args.out / stage_folder.METRICS, to_csv(metrics))
    storage.write_bytes(args.out / "f1_by_states.png", f1_by_states(metrics).png)
    print(f"written to {args.out}")
    return 0


def f1_of(trees: Sequence[Tree], predicted: Sequence[list[Span]], **dimensions: Any) -> list[Metric]:
    return [score for convention in ("PB", "KIM")
            for score in span_f1(trees, predicted, convention).metrics("latent_states", **dimensions)]


def table_row(name: str, values: Sequence[float | str]) -> str:
    texts = (f"{value:>14}" if isinstance(value, str) else f"{value:>14,.2f}" for value in values)
    return f"{name:<6}" + "".join(texts)


@styled
def f1_by_states(metrics: Sequence[Metric]) -> Drawing:
    """One line per way of scoring; the dashed line of its colour is the plain PCFG."""
    value = {(m.size, m.convention, m.metric): m.value for m in metrics}  # the plain PCFG has no size
    states = sorted({m.size for m in metrics if m.size is not None})
    figure, [[axis]] = new_figure(6.4, 3.4)
    for index, (curve, label) in enumerate(CURVES.items()):
        line = colour(SERIES[index])
        axis.axhline(value[None, *curve], color=line, linestyle="--", linewidth=1.0)
        axis.plot(states, [value[m, *curve] for m in states], color=line,
                  marker=MARKERS[index], label=label)
    axis.set(xlabel="latent states of a symbol, at most", ylabel="F1 (percent)", xticks=states)
    axis.legend()
    return finish(figure, "f1_by_states", "F1 by number of latent states",
                  "Unlabelled F1 on the test sentences of the spectral latent-variable PCFG, Labelled Recall; dashed: "
                  "the plain PCFG over the same rules, which is the case of one state.")
