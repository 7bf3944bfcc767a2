"""What a probe can reach on the control task of marginals, as the paper defines it: a random value per pair of words.

Prints, per span length, the test correlation of the best additive function of the two words (which is what a linear
probe of uncontextualised embeddings computes) and of pure memory of the training pairs.
"""

from __future__ import annotations

import argparse
import sys

from pcfg_artifact.grammar import learn_pcfg
from pcfg_artifact.probing.additive import control_reach
from pcfg_artifact.progress import progress
from pcfg_artifact.tools.arguments import add_treebank_arguments, load_treebank
from pcfg_artifact.treebank.splits import split

EXAMPLE = "python -m pcfg_artifact.tools.control_bound --treebank craft_penn.zip"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_treebank_arguments(parser, required=True)
    parser.add_argument("-n", type=int, default=10_000, help="training sentences (10000, the paper's)")
    parser.add_argument("--widths", type=int, nargs="+", default=[2, 3, 4, 5, 10], help="span lengths (2 3 4 5 10)")
    parser.add_argument("--cutoff", type=int, default=5, help="words seen this often or less become signatures (5)")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> int:
    parts = split(load_treebank(args))
    grammar = learn_pcfg(parts.train, "vm", args.cutoff, progress)
    train = [grammar.as_read(tree.words()) for tree in parts.train[:args.n]]
    seen = {tuple(words) for words in train}
    test = [words for tree in parts.test if tuple(words := grammar.as_read(tree.words())) not in seen]
    print(f"{len(train):,} training and {len(test):,} test sentences")
    print(f"{'length':<8}{'additive':>10}{'memory':>10}{'pairs seen':>12}{'test spans':>12}")
    for width in args.widths:
        reach = control_reach(train, test, width, args.seed)
        print(f"{'l=' + str(width):<8}{reach.additive:>10.3f}{reach.memory:>10.3f}{reach.share_seen:>12.3f}"
              f"{reach.n_test:>12,}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"example: {EXAMPLE}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    sys.exit(run(parser.parse_args()))
