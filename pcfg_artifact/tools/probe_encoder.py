"""Probe any encoder for parse trees: F1 of every layer on any bracketed treebank, as a table and a plot.

The encoder is a Hugging Face folder with a fast tokenizer (for example one of pretrain/ of a run, or a saved BERT or
RoBERTa).  A probe is fitted on the treebank's training trees and scored on its test trees, layer by layer; sentences
that occur in both are left out of the test.  With --grammar, words are read as the grammar reads them (rare words as
their signature), as models trained on sampled text need.

--save keeps the fitted probes; --load applies them, unchanged, to the test trees of another treebank, or with --text to
sentences without trees, one a line, whose trees without labels come out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.schema import Metric, to_csv
from pcfg_artifact.mlm.encoders import load_encoder
from pcfg_artifact.probing.corpus import Corpus, Layer, unseen
from pcfg_artifact.probing.probes import PROBES, FittedProbe, Probe, build_probes
from pcfg_artifact.probing.representations import fitting_sentences
from pcfg_artifact.probing.settings import ADJACENT, EOS
from pcfg_artifact.probing.tasks import Task, decode_all, tree_task
from pcfg_artifact.system import storage
from pcfg_artifact.system.progress import progress
from pcfg_artifact.tools.arguments import (
    add_treebank_arguments,
    load_grammar,
    load_treebank,
    named_path,
    refuse_counts,
)
from pcfg_artifact.tools.parse_trees import right_branching_tree
from pcfg_artifact.tools.probe_kept import load_probes, save_probes
from pcfg_artifact.tools.sentences import HELP, read_sentences
from pcfg_artifact.treebank.splits import split
from pcfg_artifact.treebank.tree import Tree, bracketed
from pcfg_artifact.workers.hidden_states import store_states, stored_layer

EXAMPLE = "run_all.sh probe --model runs/smoke/pretrain/models/A4L3 --grammar runs/smoke/grammar/vm --treebank embedded"
COLUMNS = {("", "accuracy"): "accuracy", ("PB", "sentence_f1"): "PB sentence", ("PB", "corpus_f1"): "PB corpus",
           ("KIM", "sentence_f1"): "KIM sentence", ("KIM", "corpus_f1"): "KIM corpus"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, type=Path, metavar="DIR", help="a Hugging Face encoder folder")
    add_treebank_arguments(parser)
    parser.add_argument("--grammar", type=Path, metavar="DIR", help="read words as this grammar does")
    parser.add_argument("--probe", choices=tuple(PROBES), default="linear", help="the probe (linear)")
    parser.add_argument("--input", choices=(EOS, ADJACENT), default=EOS, help="what the probe reads (EOS)")
    parser.add_argument("--pooling", choices=("first", "last", "mean"), default="first",
                        help="the piece that stands for a word of several (first)")
    parser.add_argument("--train", type=int, default=2000, metavar="N", help="training sentences (2000)")
    parser.add_argument("--test", type=int, default=500, metavar="N", help="test sentences (500)")
    parser.add_argument("--epochs", type=int, default=200, help="of the 2-layer probe (200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--save", type=named_path, metavar="DIR", help="keep the fitted probes there")
    parser.add_argument("--load", type=named_path, metavar="DIR", help="apply kept probes in place of fitting new ones")
    parser.add_argument("--text", metavar="FILE", help=f"with --load: the trees of these {HELP}")
    parser.add_argument("--layer", type=int, metavar="N", help="with --text: the layer that is read (the last)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the scores there too, as in metrics.csv")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw sentence F1 by layer (.png, .svg or .pdf)")


def run(args: argparse.Namespace) -> int:
    refuse_counts(("--train", args.train, 1), ("--test", args.test, 1), ("--epochs", args.epochs, 1))
    if not (args.model / "config.json").is_file():
        raise UsageError(f"{args.model} has no config.json; --model is a Hugging Face encoder folder, "
                         f"e.g. runs/smoke/pretrain/models/A4L3")
    if (args.treebank is None) == (args.text is None) or (args.text is not None and args.load is None):
        raise UsageError("give --treebank SOURCE to score probes, or --load DIR --text FILE to parse with kept ones")
    if args.save is not None and args.load is not None:
        raise UsageError("--save keeps probes that are fitted, --load fits none; give one of them")
    model, tokenizer = load_encoder(args.model)
    grammar = None if args.grammar is None else load_grammar(args.grammar)
    kept = None
    if args.load is not None:
        kept = load_probes(args.load, model.config.num_hidden_layers + 1, model.config.hidden_size)
        args.probe, args.input, args.pooling = (kept[0][name] for name in ("probe", "input", "pooling"))
    if args.text is not None and kept is not None:
        return print_trees(args, model, tokenizer, grammar, kept[1])
    parts = split(load_treebank(args))
    corpora = {}
    for name, trees, n in (("train", parts.train, args.train), ("test", parts.test, args.test)):
        if name == "test" or kept is None:
            corpora[name] = read_corpus(model, tokenizer, trees[:n], grammar)
    if kept is not None:
        return score_kept(args, model, tokenizer, corpora, kept)
    new = unseen(corpora["test"].sentences, corpora["train"].sentences)
    n_seen, corpora["test"] = len(corpora["test"]) - len(new), corpora["test"].subset(new)
    if not (len(corpora["train"]) and len(corpora["test"])):
        raise UsageError(f"{len(corpora['train'])} training and {len(corpora['test'])} test sentences are left; the "
                         f"treebank is too small, or its sentences do not fit into the model")
    print(f"{len(corpora['train'])} training sentences, {len(corpora['test'])} test sentences ({parts.how}); "
          f"{n_seen} test sentences seen in training left out")
    probe = wanted_probe(args)
    task, fitted = tree_task(args.input), []

    def score(layer: int, layers: dict[str, Layer]) -> list[Metric]:
        x, targets = task.examples(layers["train"])
        if not len(targets):
            raise UsageError("the training trees have one word each, and teach a probe nothing; give others")
        fitted.append(probe.fit(x, targets, (args.seed,), device=args.device if probe.uses_gpu else "cpu",
                                overwrite_x=True))
        return scores_of(task, fitted[-1], layers["test"])

    report(each_layer(args, model, tokenizer, corpora, score), args)
    if args.save is not None:
        save_probes(args.save, fitted, args, model.config.hidden_size)
        print(f"probes kept in {args.save}", file=sys.stderr)
    return 0


def score_kept(args: argparse.Namespace, model: Any, tokenizer: Any, corpora: dict[str, Corpus],
               kept: tuple[dict[str, Any], list[FittedProbe]]) -> int:
    """The table of probes that were fitted elsewhere."""
    about, probes = kept
    if not len(corpora["test"]):
        raise UsageError(f"no test sentence of {args.treebank} is left; they do not fit into the model")
    print(f"{len(corpora['test'])} test sentences; probes fitted on {about['treebank']} "
          f"(at most {about['training_sentences']} sentences)")
    task = tree_task(args.input)
    report(each_layer(args, model, tokenizer, corpora,
                      lambda layer, layers: scores_of(task, probes[layer], layers["test"])), args)
    return 0


def print_trees(args: argparse.Namespace, model: Any, tokenizer: Any, grammar: PCFG | None,
                probes: list[FittedProbe]) -> int:
    """A tree without labels for each sentence, one a line; an empty line for an empty one."""
    layer = len(probes) - 1 if args.layer is None else args.layer
    if not 0 <= layer < len(probes):
        raise UsageError(f"--layer {layer} is no layer; this model has layers 0 to {len(probes) - 1}")
    sentences = list(read_sentences(args.text))
    shapes = [right_branching_tree(words) for words in sentences if words]  # any tree: only its length is read
    corpus = read_corpus(model, tokenizer, shapes, grammar) if shapes else None
    if corpus is None or len(corpus) < len(shapes):
        raise UsageError(f"{len(shapes) - (0 if corpus is None else len(corpus))} of {len(shapes)} sentences of "
                         f"{args.text} do not fit into the model, or there is none; leave out longer ones")
    task, found = tree_task(args.input), []

    def read(number: int, layers: dict[str, Layer]) -> list[Metric]:
        if number == layer:
            found.append(probes[layer].predict(task.examples(layers["text"])[0])[0])
        return []

    each_layer(args, model, tokenizer, {"text": corpus}, read)
    trees = iter(decode_all(corpus, found[0]))
    for words in sentences:
        print(bracketed(words, sorted(next(trees), key=lambda span: (span[0], -span[1]))) if words else "")
    return 0


def report(layers: list[list[Metric]], args: argparse.Namespace) -> None:
    by_layer = [{(score.convention, score.metric): score.value for score in scores} for scores in layers]
    table = [[values[column] for column in COLUMNS] for values in by_layer]
    print_table(table)
    if args.csv:
        storage.write_text(args.csv, to_csv(
            score.at(model=args.model.name, layer=layer, probe=args.probe, input=args.input, seed=args.seed)
            for layer, scores in enumerate(layers) for score in scores))
    if args.plot:
        plot(table, args)


def read_corpus(model: Any, tokenizer: Any, trees: Sequence[Tree], grammar: PCFG | None) -> Corpus:
    """The trees whose sentence the model can read whole; with a grammar, words as it reads them."""
    sentences = [tree.words() if grammar is None else grammar.as_read(tree.words()) for tree in trees]
    corpus = Corpus(sentences, trees, [None] * len(trees), [()] * len(trees))
    return corpus.subset(fitting_sentences(model, tokenizer, sentences))


def wanted_probe(args: argparse.Namespace) -> Probe:
    milestones = tuple(args.epochs * k // 4 for k in (1, 2, 3))
    options = {"epochs": args.epochs, "milestones": milestones, "batch_size": 512}  # of those probes that have them
    return build_probes([args.probe], options)[args.probe]


def scores_of(task: Task, fitted: FittedProbe, test: Layer) -> list[Metric]:
    x, wanted = task.examples(test)
    return task.score(test.corpus, wanted, fitted.predict(x)[0])


def each_layer(args: argparse.Namespace, model: Any, tokenizer: Any, corpora: dict[str, Corpus],
               work: Callable[[int, dict[str, Layer]], list[Metric]]) -> list[list[Metric]]:
    """work(layer, the corpora as it sees them) for every layer."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            store_states(model, tokenizer, corpora, Path(folder), precision="float32", max_tokens=8192,
                         device=args.device, progress=progress, pooling=args.pooling)
            return [work(layer, stored_layer(corpora, Path(folder), layer))
                    for layer in progress(range(model.config.num_hidden_layers + 1), desc="layers")]
    except StageError as error:
        raise UsageError(str(error)) from error


def print_table(rows: list[list[float]]) -> None:
    print("layer" + "".join(f"{title:>14}" for title in COLUMNS.values()))
    for layer, (correct, *f1) in enumerate(rows):
        print(f"{f'L{layer}':<5}{correct:>14.3f}" + "".join(f"{value:>14.2f}" for value in f1))
    best = max(range(len(rows)), key=lambda layer: rows[layer][1])
    print(f"best layer L{best}: {rows[best][1]:.2f} sentence F1, {rows[best][1] - rows[0][1]:+.2f} over layer 0")


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
