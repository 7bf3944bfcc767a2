"""Learn a PCFG from a treebank and write it as a grammar folder.

Prints what was read and kept, and the sizes of the grammar.  The folder holds grammar.json and grammar.npz, read by
`PCFG.load(DIR)`, and rules.txt, the same grammar as plain text (which --grammar of the other tools accepts too).
With --estimator spectral it also holds latent.json and latent.npz, a latent-variable PCFG over the same rules, read by
`LatentPCFG.load(DIR)`; `parse` then gives its scores beside the PCFG's.
"""

from __future__ import annotations

import argparse

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.expectation import grammar_sizes
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.rulefile import to_text
from pcfg_artifact.grammar.spectral import INTERMINAL_STATES, PRETERMINAL_STATES, SMOOTHING, learn_spectral
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

EXAMPLE = "run_all.sh learn --treebank craft_penn.zip --out my_grammar"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_treebank_arguments(parser, required=True)
    parser.add_argument("--out", required=True, type=named_path, metavar="DIR", help="the grammar folder to write")
    parser.add_argument("--split", choices=("all", "train"), default="train", help="which trees to learn from (train)")
    parser.add_argument("--variant", choices=VARIANTS, default="vm", help="with (vm) or without (novm) parents (vm)")
    parser.add_argument("--cutoff", type=int, default=5, help="words seen this often or less become signatures (5)")
    parser.add_argument("--estimator", choices=("frequency", "spectral"), default="frequency",
                        help="relative frequencies alone, or a latent-variable PCFG beside them (frequency)")
    parser.add_argument("--states", type=int, nargs=2, metavar="M", default=(INTERMINAL_STATES, PRETERMINAL_STATES),
                        help=f"spectral: the most latent states of in-terminals and of pre-terminals "
                             f"({INTERMINAL_STATES} {PRETERMINAL_STATES})")
    parser.add_argument("--smoothing", type=float, default=SMOOTHING,
                        help=f"spectral: the larger, the more a rare rule's tensor is simplified ({SMOOTHING})")


def run(args: argparse.Namespace) -> int:
    refuse_unusable_folder(args.out)
    refuse_counts(("--cutoff", args.cutoff, 0), *(("--states", states, 1) for states in args.states))
    if not 0 <= args.smoothing < float("inf"):
        raise UsageError(f"--smoothing is {args.smoothing}, expected a number of 0 or more")
    treebank = load_treebank(args)
    trees = treebank.trees if args.split == "all" else split(treebank).train
    grammar = learn_pcfg(trees, args.variant, args.cutoff, progress)
    latent = None
    if args.estimator == "spectral":
        latent = learn_spectral(trees, grammar, args.variant, args.states[0], args.states[1], args.smoothing,
                                progress=progress)
        latent.save(args.out)
    grammar.save(args.out)
    storage.write_text(args.out / "rules.txt", to_text(grammar))
    print(f"{'trees read':<24}{treebank.n_raw:>12,}")
    print(f"{'trees kept':<24}{treebank.n_trees:>12,}")
    print(f"{'trees learned from':<24}{len(trees):>12,}")
    for size in grammar_sizes(grammar, [len(tree.words()) for tree in trees]):
        name = size.metric.replace("_", " ") + (f" of top{size.size}" if size.size else "")
        print(f"{name:<24}{size.value:>12,.0f}" if size.unit == "count" else
              f"{name:<24}{size.value:>12,.6f} {size.unit}")
    if latent is not None:
        for name, states in (("interminal states", latent.n_states[:grammar.n_interminals]),
                             ("preterminal states", latent.n_states[grammar.n_interminals:])):
            print(f"{name:<24}{states.sum():>12,} (at most {states.max(initial=0)} a symbol)")
        print(f"{'tensor values':<24}{latent.tensors.size:>12,}")
    print(f"written to {args.out}")
    return 0
