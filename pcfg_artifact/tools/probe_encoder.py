"""Probe any encoder for parse trees: F1 of every layer on any bracketed treebank, as a table and a plot.

The encoder is a Hugging Face folder with a fast tokenizer (for example one of pretrain/ of a run, or a saved BERT or
RoBERTa).  A probe is fitted on the treebank's training trees and scored on its test trees, layer by layer; sentences
that occur in both are left out of the test.  With --grammar, words are read as the grammar reads them (rare words as
their signature), as models trained on sampled text need.

--save keeps the fitted probes; --load applies them, unchanged, to the test trees of another treebank, or with --text to
sentences without trees, whose trees without labels come out, one a line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.schema import Metric, to_csv
from pcfg_artifact.mlm.encoders import load_encoder
from pcfg_artifact.probing.corpus import Corpus, Layer, unseen
from pcfg_artifact.probing.probe_scores import decode_all
from pcfg_artifact.probing.probes import PROBES, FittedProbe, build_probes, probe_of, tensors_of
from pcfg_artifact.probing.representations import fitting_sentences
from pcfg_artifact.probing.settings import EOS
from pcfg_artifact.probing.tasks import ROWS, Task, tree_task
from pcfg_artifact.system import storage
from pcfg_artifact.system.progress import progress
from pcfg_artifact.tools.arguments import (
    HELP,
    add_json_argument,
    add_treebank_arguments,
    json_rows,
    load_grammar,
    load_treebank,
    named_path,
    read_sentences,
    refuse_counts,
)
from pcfg_artifact.tools.parse_trees import right_branching_tree
from pcfg_artifact.treebank.splits import split
from pcfg_artifact.treebank.tree import Tree, bracketed
from pcfg_artifact.workers.hidden_states import store_states, stored_layer

EXAMPLE = "run_all.sh probe --model runs/smoke/pretrain/models/A4L3 --grammar runs/smoke/grammar/vm --treebank embedded"
COLUMNS = {("", "accuracy"): "accuracy", ("PB", "sentence_f1"): "PB sentence", ("PB", "corpus_f1"): "PB corpus",
           ("KIM", "sentence_f1"): "KIM sentence", ("KIM", "corpus_f1"): "KIM corpus"}
WEIGHTS, ABOUT = "probes.safetensors", "probes.json"  # of a folder of kept probes
FORMAT, VERSION = "pcfg_artifact probes", 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, type=Path, metavar="DIR", help="a Hugging Face encoder folder")
    add_treebank_arguments(parser)
    parser.add_argument("--grammar", type=Path, metavar="SOURCE", help="read words as this grammar does")
    parser.add_argument("--probe", choices=tuple(PROBES), default="linear", help="the probe (linear)")
    parser.add_argument("--input", choices=tuple(ROWS), default=EOS, help="what the probe reads (EOS)")
    parser.add_argument("--pooling", choices=("first", "last", "mean"), default="first",
                        help="the piece that stands for a word of several (first)")
    parser.add_argument("--train", type=int, default=2000, metavar="N", help="training sentences (2000)")
    parser.add_argument("--test", type=int, default=500, metavar="N", help="test sentences (500)")
    parser.add_argument("--epochs", type=int, default=200, help="of the 2-layer probe (200)")
    parser.add_argument("--seed", type=int, default=0, help="of the probe (0)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--save", type=named_path, metavar="DIR", help="keep the fitted probes there")
    parser.add_argument("--load", type=named_path, metavar="DIR", help="apply kept probes in place of fitting new ones")
    parser.add_argument("--text", metavar="SENTENCES", help=f"with --load: print trees of these: {HELP}")
    parser.add_argument("--layer", type=int, metavar="N", help="with --text: the layer that is read (the last)")
    add_json_argument(parser)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the scores there too, as in metrics.csv")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw sentence F1 by layer (.png, .svg or .pdf)")


def run(args: argparse.Namespace) -> int:
    refuse_counts(("--train", args.train, 1), ("--test", args.test, 1), ("--epochs", args.epochs, 1))
    if not (args.model / "config.json").is_file():
        raise UsageError(f"{args.model} has no config.json; --model is a Hugging Face encoder folder, "
                         f"e.g. runs/smoke/pretrain/models/A4L3")
    if (args.treebank is None) == (args.text is None) or (args.text is not None and args.load is None):
        raise UsageError("give --treebank SOURCE to score probes, or --load DIR --text SENTENCES to parse with kept "
                         "ones")
    if args.save is not None and args.load is not None:
        raise UsageError("--save keeps probes that are fitted, --load fits none; give one of them")
    encoder = Encoder(*load_encoder(args.model), None if args.grammar is None else load_grammar(args.grammar), args)
    kept = None
    if args.load is not None:
        kept = load_probes(args.load, encoder)
        args.probe, args.input, args.pooling = (kept[0][name] for name in ("probe", "input", "pooling"))
    if args.text is not None and kept is not None:
        print_trees(encoder, kept[1])
        return 0
    found = fit_and_score(encoder) if kept is None else score_kept(encoder, *kept)
    report(found, args)
    if args.save is not None:
        save_probes(found.probes, encoder)
        print(f"probes kept in {args.save}", file=sys.stderr)
    return 0


class Encoder(NamedTuple):
    """A model with its tokenizer, and the grammar that says how it reads words, if one does."""

    model: Any
    tokenizer: Any
    grammar: PCFG | None
    args: argparse.Namespace

    @property
    def n_layers(self) -> int:
        """With the embeddings as layer 0."""
        return self.model.config.num_hidden_layers + 1

    @property
    def width(self) -> int:
        return self.model.config.hidden_size

    def corpus(self, trees: Sequence[Tree]) -> Corpus:
        """The trees whose sentence the model can read whole."""
        sentences = [tree.words() if self.grammar is None else self.grammar.as_read(tree.words()) for tree in trees]
        corpus = Corpus(sentences, trees, [None] * len(trees), [()] * len(trees))
        return corpus.subset(fitting_sentences(self.model, self.tokenizer, sentences))

    def each_layer(self, corpora: dict[str, Corpus], work: Callable[[int, dict[str, Layer]], Any]) -> list[Any]:
        """work(layer, the corpora as it sees them) for every layer."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                store_states(self.model, self.tokenizer, corpora, Path(folder), precision="float32", max_tokens=8192,
                             device=self.args.device, progress=progress, pooling=self.args.pooling)
                return [work(layer, stored_layer(corpora, Path(folder), layer))
                        for layer in progress(range(self.n_layers), desc="layers")]
        except StageError as error:
            raise UsageError(str(error)) from error


# ---- computed --------------------------------------------------------------------------------------------------------


class LayerScores(NamedTuple):
    """The scores of every layer, the probes behind them, and what they were fitted and tested on."""

    layers: list[list[Metric]]
    probes: list[FittedProbe]
    about: str

    @property
    def frame(self) -> pd.DataFrame:
        """One row a layer, the columns of COLUMNS."""
        values = ({(metric.convention, metric.metric): metric.value for metric in metrics} for metrics in self.layers)
        return pd.DataFrame([{"layer": layer, **{title: of_layer[key] for key, title in COLUMNS.items()}}
                             for layer, of_layer in enumerate(values)])


def fit_and_score(encoder: Encoder) -> LayerScores:
    """Probes fitted on the training trees of a treebank, scored on its test trees."""
    args = encoder.args
    parts = split(load_treebank(args))
    corpora = {"train": encoder.corpus(parts.train[:args.train]), "test": encoder.corpus(parts.test[:args.test])}
    new = unseen(corpora["test"].sentences, corpora["train"].sentences)
    n_seen, corpora["test"] = len(corpora["test"]) - len(new), corpora["test"].subset(new)
    n_train, n_test = len(corpora["train"]), len(corpora["test"])
    if not (n_train and n_test):
        raise UsageError(f"{n_train} training and {n_test} test sentences are left; the treebank is too small, or its "
                         f"sentences do not fit into the model")
    options = {"epochs": args.epochs, "milestones": tuple(args.epochs * k // 4 for k in (1, 2, 3)), "batch_size": 512}
    probe = build_probes([args.probe], options)[args.probe]  # options are of those probes that have them
    task, probes = tree_task(args.input), []

    def work(layer: int, layers: dict[str, Layer]) -> list[Metric]:
        x, targets = task.examples(layers["train"])
        if not len(targets):
            raise UsageError("the training trees have one word each, and teach a probe nothing; give others")
        probes.append(probe.fit(x, targets, (args.seed,), device=args.device if probe.uses_gpu else "cpu",
                                overwrite_x=True))
        return scores_of(encoder, layer, task, probes[-1], layers["test"])

    layers = encoder.each_layer(corpora, work)
    about = (f"{n_train} training sentences, {n_test} test sentences ({parts.how}); {n_seen} test sentences seen in "
             f"training left out")
    return LayerScores(layers, probes, about)


def score_kept(encoder: Encoder, about: dict[str, Any], probes: list[FittedProbe]) -> LayerScores:
    """Probes that were fitted elsewhere, scored on the test trees of a treebank."""
    args = encoder.args
    corpora = {"test": encoder.corpus(split(load_treebank(args)).test[:args.test])}
    if not len(corpora["test"]):
        raise UsageError(f"no test sentence of {args.treebank} is left; they do not fit into the model")
    task = tree_task(args.input)
    layers = encoder.each_layer(
        corpora, lambda layer, layers: scores_of(encoder, layer, task, probes[layer], layers["test"]))
    return LayerScores(layers, probes,
                  f"{len(corpora['test'])} test sentences; probes fitted on {about['treebank']} (at most "
                  f"{about['training_sentences']} sentences)")


def scores_of(encoder: Encoder, layer: int, task: Task, fitted: FittedProbe, test: Layer) -> list[Metric]:
    args = encoder.args
    x, targets = task.examples(test)
    return [score.at(model=args.model.name, layer=layer, probe=args.probe, input=args.input, seed=args.seed)
            for score in task.score(test.corpus, targets, fitted.predict(x)[0])]


def trees_of(encoder: Encoder, layer: int, probe: FittedProbe, sentences: Sequence[list[str]]) -> list[str]:
    """A tree without labels of every sentence, empty for an empty one."""
    shapes = [right_branching_tree(words) for words in sentences if words]  # any tree: only its length is read
    corpus = encoder.corpus(shapes) if shapes else None
    if corpus is None or len(corpus) < len(shapes):
        raise UsageError(f"{len(shapes) - (0 if corpus is None else len(corpus))} of {len(shapes)} sentences of "
                         f"{encoder.args.text} do not fit into the model, or there is none; leave out longer ones")
    task = tree_task(encoder.args.input)

    def work(number: int, layers: dict[str, Layer]) -> Any:
        return probe.predict(task.examples(layers["text"])[0])[0] if number == layer else None

    spans = iter(decode_all(corpus, encoder.each_layer({"text": corpus}, work)[layer]))
    return [bracketed(words, sorted(next(spans), key=lambda span: (span[0], -span[1]))) if words else ""
            for words in sentences]


# ---- printed ---------------------------------------------------------------------------------------------------------


def print_trees(encoder: Encoder, probes: list[FittedProbe]) -> None:
    args = encoder.args
    layer = len(probes) - 1 if args.layer is None else args.layer
    if not 0 <= layer < len(probes):
        raise UsageError(f"--layer {layer} is no layer; this model has layers 0 to {len(probes) - 1}")
    sentences = list(read_sentences(args.text))
    for words, tree in zip(sentences, trees_of(encoder, layer, probes[layer], sentences), strict=True):
        print(json.dumps({"words": words, "tree": tree or None}, ensure_ascii=False) if args.json else tree)


def report(found: LayerScores, args: argparse.Namespace) -> None:
    rows = found.frame
    if args.json:
        print(json.dumps({"about": found.about, "units": {"accuracy": "fraction", "F1": "percent"},
                          "layers": json_rows(rows)}))
    else:
        print(found.about)
        print_table(rows)
    if args.csv:
        storage.write_text(args.csv, to_csv(metric for metrics in found.layers for metric in metrics))
    if args.plot:
        plot(rows, args)


def print_table(rows: pd.DataFrame) -> None:
    print("accuracy of relative depths as a fraction, F1 in percent")
    print("layer" + "".join(f"{title:>14}" for title in COLUMNS.values()))
    for layer, correct, *f1 in rows.itertuples(index=False):
        print(f"{f'L{layer}':<5}{correct:>14.3f}" + "".join(f"{value:>14.2f}" for value in f1))
    f1 = rows["PB sentence"].tolist()
    best = f1.index(max(f1))
    print(f"best layer L{best}: {f1[best]:.2f} sentence F1, {f1[best] - f1[0]:+.2f} over layer 0")


def plot(rows: pd.DataFrame, args: argparse.Namespace) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    for name in ("PB", "KIM"):
        axes.plot(rows[f"{name} sentence"], marker="o", label=name)
    axes.set(xlabel="layer", ylabel="sentence F1", title=f"{args.model.name}, {args.probe} probe, {args.input}")
    axes.legend(frameon=False)
    try:
        figure.savefig(args.plot)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot draw {args.plot}: {error}; give a .png, .svg or .pdf file in a folder that "
                         f"exists") from error
    print(f"plot written to {args.plot}", file=sys.stderr)


# ---- kept probes -----------------------------------------------------------------------------------------------------


def save_probes(probes: list[FittedProbe], encoder: Encoder) -> None:
    """One probe a layer, with what it reads."""
    args = encoder.args
    tensors: dict[str, torch.Tensor] = {}
    scalars: dict[str, Any] = {}
    for layer, fitted in enumerate(probes):
        some_tensors, some_scalars = tensors_of(fitted, f"{layer}.")
        tensors |= some_tensors
        scalars |= some_scalars
    storage.write_bytes(args.save / WEIGHTS, save(tensors, metadata={"format": "pt"}))
    storage.write_json(args.save / ABOUT, {
        "format": FORMAT, "version": VERSION, "probe": args.probe, "input": args.input, "pooling": args.pooling,
        "layers": len(probes), "hidden_size": encoder.width, "model": args.model.name, "treebank": str(args.treebank),
        "training_sentences": args.train, "numbers": scalars})


def load_probes(folder: Path, encoder: Encoder) -> tuple[dict[str, Any], list[FittedProbe]]:
    """What save_probes wrote, for a model of this size: what it says, and a probe a layer."""
    if not (folder / ABOUT).is_file():
        raise UsageError(f"{folder / ABOUT} not found; --load is a folder that `probe --save DIR` wrote")
    about = storage.read_json(folder / ABOUT)
    if not isinstance(about, dict) or about.get("format") != FORMAT or about.get("version") != VERSION \
            or about.get("probe") not in PROBES:
        raise UsageError(f"{folder / ABOUT} does not describe probes of this release; keep them again with --save")
    try:
        if (about["layers"], about["hidden_size"]) != (encoder.n_layers, encoder.width):
            raise UsageError(f"the probes in {folder} read {about['layers']} layers of {about['hidden_size']} "
                             f"dimensions (of {about['model']}); the model has {encoder.n_layers} of {encoder.width}: "
                             f"give the model they were fitted to")
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        return about, [probe_of(about["probe"], tensors, about["numbers"], f"{layer}.")
                       for layer in range(encoder.n_layers)]
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise UsageError(f"the probes in {folder} are damaged ({error}); keep them again with --save") from error
