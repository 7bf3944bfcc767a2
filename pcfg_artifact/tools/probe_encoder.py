"""Probe any encoder for parse trees: F1 of every layer on any bracketed treebank, as a table and a plot.

The encoder is a Hugging Face folder with a fast tokenizer (for example one of pretrain/ of a run, or a saved BERT or
RoBERTa).  A probe is fitted on the treebank's training trees and scored on its test trees, layer by layer; sentences
that occur in both are left out of the test.  With --grammar, words are read as the grammar reads them (rare words as
their signature), as models trained on sampled text need.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pcfg_artifact import storage
from pcfg_artifact.cells import ADJACENT_TREES, LAYER, TREES
from pcfg_artifact.encoders import load_encoder
from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.grammar import PCFG
from pcfg_artifact.probing.corpus import Corpus, unseen
from pcfg_artifact.probing.probes import PROBES, build_probes
from pcfg_artifact.probing.representations import fitting_sentences
from pcfg_artifact.probing.tasks import run_task, tree_task
from pcfg_artifact.progress import progress
from pcfg_artifact.tools.arguments import add_treebank_arguments, load_grammar, load_treebank, refuse_counts
from pcfg_artifact.treebank.splits import split
from pcfg_artifact.treebank.tree import Tree
from pcfg_artifact.workers.hidden_states import store_states, stored_layer

EXAMPLE = "run_all.sh probe --model runs/smoke/pretrain/models/A4L3 --grammar runs/smoke/grammar/vm --treebank embedded"
COLUMNS = {"accuracy": "accuracy", "sentence_f1": "PB sentence", "corpus_f1": "PB corpus",
           "sentence_f1_KIM": "KIM sentence", "corpus_f1_KIM": "KIM corpus"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, type=Path, metavar="DIR", help="a Hugging Face encoder folder")
    add_treebank_arguments(parser, required=True)
    parser.add_argument("--grammar", type=Path, metavar="DIR", help="read words as this grammar does")
    parser.add_argument("--probe", choices=tuple(PROBES), default="linear", help="the probe (linear)")
    parser.add_argument("--input", choices=(TREES, ADJACENT_TREES), default=TREES, help="what the probe reads (EOS)")
    parser.add_argument("--pooling", choices=("first", "last", "mean"), default="first",
                        help="the piece that stands for a word of several (first)")
    parser.add_argument("--train", type=int, default=2000, metavar="N", help="training sentences (2000)")
    parser.add_argument("--test", type=int, default=500, metavar="N", help="test sentences (500)")
    parser.add_argument("--epochs", type=int, default=200, help="of the 2-layer probe (200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the table there too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw sentence F1 by layer (.png, .svg or .pdf)")


def run(args: argparse.Namespace) -> int:
    refuse_counts(("--train", args.train, 1), ("--test", args.test, 1), ("--epochs", args.epochs, 1))
    if not (args.model / "config.json").is_file():
        raise UsageError(f"{args.model} has no config.json; --model is a Hugging Face encoder folder, "
                         f"e.g. runs/smoke/pretrain/models/A4L3")
    model, tokenizer = load_encoder(args.model)
    parts = split(load_treebank(args))
    corpora = {}
    grammar = None if args.grammar is None else load_grammar(args.grammar)
    for name, trees, n in (("train", parts.train, args.train), ("test", parts.test, args.test)):
        corpora[name] = read_corpus(model, tokenizer, trees[:n], grammar)
    kept = unseen(corpora["test"].sentences, corpora["train"].sentences)
    n_seen, corpora["test"] = len(corpora["test"]) - len(kept), corpora["test"].subset(kept)
    if not (len(corpora["train"]) and len(corpora["test"])):
        raise UsageError(f"{len(corpora['train'])} training and {len(corpora['test'])} test sentences are left; the "
                         f"treebank is too small, or its sentences do not fit into the model")
    print(f"{len(corpora['train'])} training sentences, {len(corpora['test'])} test sentences ({parts.how}); "
          f"{n_seen} test sentences seen in training left out")
    try:
        rows = probe_layers(args, model, tokenizer, corpora)
    except StageError as error:
        raise UsageError(str(error)) from error
    print_table(rows)
    if args.csv:
        frame = pd.DataFrame(rows, columns=list(COLUMNS)).rename_axis("layer")
        storage.write_text(args.csv, frame.to_csv(lineterminator="\n"))
    if args.plot:
        plot(rows, args)
    return 0


def read_corpus(model: Any, tokenizer: Any, trees: Sequence[Tree], grammar: PCFG | None) -> Corpus:
    """The trees whose sentence the model can read whole; with a grammar, words as it reads them."""
    sentences = [tree.words() if grammar is None else grammar.as_read(tree.words()) for tree in trees]
    corpus = Corpus(sentences, trees, [None] * len(trees), [()] * len(trees))
    return corpus.subset(fitting_sentences(model, tokenizer, sentences))


def probe_layers(args: argparse.Namespace, model: Any, tokenizer: Any, corpora: dict[str, Corpus]) -> list[list[float]]:
    """The columns of the table for every layer."""
    milestones = tuple(args.epochs * k // 4 for k in (1, 2, 3))
    options = {"epochs": args.epochs, "milestones": milestones, "batch_size": 512}  # of those probes that have them
    probe = build_probes([args.probe], options)[args.probe]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        store_states(model, tokenizer, corpora, Path(folder), precision="float32", max_tokens=8192, device=args.device,
                     progress=progress, pooling=args.pooling)
        for layer in progress(range(model.config.num_hidden_layers + 1), desc="layers"):
            layers = stored_layer(corpora, Path(folder), layer)
            result = run_task(tree_task(args.input), probe, layers["train"], {"test": layers["test"]}, (args.seed,),
                              device=args.device)
            found = {score.metric: score.value for score in result.scores}
            rows.append([found[metric] for metric in COLUMNS])
    return rows


def print_table(rows: list[list[float]]) -> None:
    print("layer" + "".join(f"{title:>14}" for title in COLUMNS.values()))
    for layer, (correct, *f1) in enumerate(rows):
        print(f"{LAYER(layer):<5}{correct:>14.3f}" + "".join(f"{value:>14.2f}" for value in f1))
    best = max(range(len(rows)), key=lambda layer: rows[layer][1])
    print(f"best layer {LAYER(best)}: {rows[best][1]:.2f} sentence F1, {rows[best][1] - rows[0][1]:+.2f} over layer 0")


def plot(rows: list[list[float]], args: argparse.Namespace) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    for column, name in enumerate(("PB", "KIM")):
        axes.plot([row[1 + 2 * column] for row in rows], marker="o", label=name)
    axes.set(xlabel="layer", ylabel="sentence F1", title=f"{args.model.name}, {args.probe} probe, {args.input}")
    axes.legend(frameon=False)
    try:
        figure.savefig(args.plot)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot draw {args.plot}: {error}; give a .png, .svg or .pdf file in a folder that "
                         f"exists") from error
    print(f"plot written to {args.plot}", file=sys.stderr)
