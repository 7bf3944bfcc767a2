"""Build a transformer whose weights are read off a grammar, and run it on sentences.

Prints its size, the largest error of its charts against Inside-Outside, the probability of a sentence and the tree
that the transformer finds.  Models: 3.1 (hard attention), 3.2 (relative positions), few (few non-terminals), low-rank
(the same through transforms learned from sentences that the grammar generates), merged
(symbols joined into classes, which needs a grammar learned from trees).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from pcfg_artifact.approximation.merging import choose_classes, merge_symbols
from pcfg_artifact.constructions.agreement import approximate_errors, entry_errors, linear
from pcfg_artifact.constructions.approximate_relative import ApproximateInsideOutside, MergedInsideOutside
from pcfg_artifact.constructions.constructed_model import ConstructedModel
from pcfg_artifact.constructions.hard import HardAttentionInsideOutside
from pcfg_artifact.constructions.relative import RelativeInsideOutside
from pcfg_artifact.constructions.transformer import ConstructedTransformer, example, sizes
from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import single_thread
from pcfg_artifact.tools.arguments import (
    add_grammar_argument,
    add_text_arguments,
    load_grammar,
    named_path,
    read_sentences,
    refuse_unusable_folder,
)
from pcfg_artifact.treebank.tree import bracketed

EXAMPLE = 'run_all.sh construct --grammar my_grammar "the cell divides ." --show-layer 2'
MODELS = ("3.1", "3.2", "few", "low-rank", "merged")
SMOOTHING = 1e-4  # share of the back-off in a merged grammar, as in the profiles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_grammar_argument(parser)
    add_text_arguments(parser)
    parser.add_argument("--model", choices=MODELS, default="3.2", help="which construction (3.2)")
    parser.add_argument("--max-length", type=int, metavar="L", help="longest sentence it takes (the longest of these)")
    parser.add_argument("--interminals", type=int, default=20, metavar="N",
                        help="in-terminals of the models with few symbols (20)")
    parser.add_argument("--preterminals", type=int, default=45, metavar="N", help="their pre-terminals (45)")
    parser.add_argument("--rank", type=int, default=15, metavar="K", help="low-rank: of the transforms (15)")
    parser.add_argument("--heads", type=int, metavar="H", help="merged: at most so many a layer, in more layers")
    parser.add_argument("--backend", choices=("auto", "dense", "structured"), default="auto", help="(auto)")
    parser.add_argument("--show-layer", type=int, metavar="LAYER", help="print the spans that a layer fills (from 1)")
    parser.add_argument("--save", type=named_path, metavar="DIR",
                        help="keep the model there as a Hugging Face checkpoint, for AutoModel.from_pretrained")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the chart being filled, as .png or .svg")


def run(args: argparse.Namespace) -> int:
    sentences = list(read_sentences(args.sentences))
    if not sentences or not all(sentences):
        raise UsageError("the sentence is empty; give words separated by blanks")
    if args.plot is not None and args.plot.suffix not in (".png", ".svg"):
        raise UsageError(f"--plot {args.plot} ends in {args.plot.suffix!r}; expected .png or .svg")
    if args.plot is not None and len(sentences) > 1:
        raise UsageError(f"--plot draws one sentence, {args.sentences} has {len(sentences):,}; give one")
    grammar = load_grammar(args.grammar, weights=args.weights)
    model = build(grammar, args.max_length or max(map(len, sentences)), args)
    if args.show_layer is not None and not 1 <= args.show_layer <= model.n_layers:
        raise UsageError(f"--show-layer {args.show_layer} is not a layer; this model has layers 1 to {model.n_layers}")
    if not args.json:
        print("  ".join(f"{name} {value:,}" for name, value in sizes(model).items())
              + f"  ({model.backend})")
    for words in sentences:
        with single_thread():
            traced = example(model, words)
        found = compare(grammar, model, words, traced)
        layer = None if args.show_layer is None else traced["layers"][args.show_layer - 1]
        if args.json:
            print(json.dumps({**found, "model": {**sizes(model), "backend": model.backend},
                              **({} if layer is None else {"layer": layer})}, ensure_ascii=False, default=float))
        else:
            print_comparison(found)
            if layer is not None:
                show_layer(words, layer)
    if args.save is not None:
        refuse_unusable_folder(args.save, "--save")
        ConstructedModel.of(model).save_pretrained(args.save)
        print(f"kept in {args.save}", file=sys.stderr)
    if args.plot is not None:
        from pcfg_artifact.judge.figures import filling  # here, because it brings matplotlib

        drawing = filling(traced)
        storage.write_bytes(args.plot, drawing.png if args.plot.suffix == ".png" else drawing.svg.encode())
        print(f"drawn in {args.plot}", file=sys.stderr)
    return 0


def build(grammar: PCFG, max_length: int, args: argparse.Namespace) -> ConstructedTransformer:
    if args.model == "3.1":
        return HardAttentionInsideOutside(grammar, max_length, backend=args.backend)
    if args.model == "3.2":
        return RelativeInsideOutside(grammar, max_length, backend=args.backend)
    if args.model == "merged":
        classes = choose_classes(grammar, min(args.interminals, grammar.n_interminals),
                                 min(args.preterminals, grammar.n_preterminals))
        return MergedInsideOutside(merge_symbols(grammar, classes, SMOOTHING), max_length, args.heads,
                                   backend=args.backend)
    rank = min(args.rank, args.interminals, grammar.n_interminals) if args.model == "low-rank" else None
    return ApproximateInsideOutside(grammar, max_length, args.interminals, args.preterminals, rank,
                                    backend=args.backend)


def compare(grammar: PCFG, model: ConstructedTransformer, words: list[str], traced: dict[str, Any]) -> dict[str, Any]:
    """The charts of one sentence beside those that they should be: what a line of JSON holds."""
    charts = model.read_charts(model(words))
    if isinstance(model, ApproximateInsideOutside):
        errors, against = list(approximate_errors(model, words, charts)), "the approximate recursion"
    else:
        engine = inside_outside(model.grammar, [words], outside="full")[0]
        errors = list(map(entry_errors, charts, linear(engine)))
        against = "Inside-Outside" if model.grammar is grammar else "Inside-Outside of the merged grammar"
    probability = float(charts[0][0, -1] @ charts[1][0, -1])
    is_possible = probability > 0
    return {"words": words, "against": against, "largest_relative_error": dict(zip(
                ("inside", "outside"), (float(error.max()) for error in errors), strict=True)),
            "log_prob": math.log(probability) if is_possible else None,
            "tree": bracketed(words, [tuple(span) for span in traced["spans"]]) if is_possible else None}


def print_comparison(found: dict[str, Any]) -> None:
    errors = found["largest_relative_error"]
    print(f"largest relative error against {found['against']}: inside {errors['inside']:.1e}, outside "
          f"{errors['outside']:.1e}")
    if found["tree"] is None:
        print("the model gives this sentence no probability, so there is no tree")
    else:
        print(f"log probability {found['log_prob']:.4f} nats")
        print(found["tree"])


def show_layer(words: list[str], layer: dict) -> None:
    print(f"layer {layer['layer']}: {layer['phase']}, spans of {layer['width']} words")
    for i, j, largest in layer["cells"]:
        print(f"  {i:>3} {j:>3}  {largest:10.3e}  {' '.join(words[i:j])}")
    if not layer["cells"]:
        print("  none: the sentence is shorter")
