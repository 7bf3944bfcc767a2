"""Draw sentences, or trees, from a grammar.

Without --out, one sentence (or with --trees one bracketed tree) a line on standard output.  With --out, shards of
flat arrays: sentence s of a shard is tokens.values[tokens.offsets[s]:tokens.offsets[s + 1]], word ids of the grammar;
--trees adds the rules of each tree in preorder.  Sentence s of a seed is always the same tree, so trees can also be
drawn again later; the number of workers changes nothing.  An interrupted call continues at the shard it was writing.
"""

from __future__ import annotations

import argparse
import sys

from pcfg_artifact.grammar.sampling import Sampler
from pcfg_artifact.run import stage_folder
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import available_cores
from pcfg_artifact.tools.arguments import (
    add_grammar_argument,
    load_grammar,
    named_path,
    refuse_counts,
    refuse_unusable_folder,
    refuse_unwritable,
)
from pcfg_artifact.workers.shards import BLOCK, write_shard

EXAMPLE = "run_all.sh sample --grammar my_grammar -n 5 --trees"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_grammar_argument(parser)
    parser.add_argument("-n", type=int, required=True, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="random seed (0)")
    parser.add_argument("--trees", action="store_true", help="trees, not only sentences")
    parser.add_argument("--max-length", type=int, metavar="L", help="draw longer sentences again, and count them")
    parser.add_argument("--out", type=named_path, metavar="DIR", help="write shards of arrays here")
    parser.add_argument("--shard-size", type=int, default=1_000_000, help="sentences a shard (1,000,000)")
    parser.add_argument("--workers", type=int, help="threads (all cores)")


def run(args: argparse.Namespace) -> int:
    refuse_counts(("-n", args.n, 0), ("--shard-size", args.shard_size, 1), ("--workers", args.workers, 1),
                  ("--max-length", args.max_length, 1))
    grammar = load_grammar(args.grammar, weights=args.weights)
    sampler = Sampler(grammar, args.seed, args.max_length)
    if args.out is None:
        refuse_unwritable(grammar.words, args.grammar, "word")
        if args.trees:
            refuse_unwritable(grammar.nonterminals, args.grammar, "symbol")
        _print(sampler, args.n, args.trees)
    else:
        refuse_unusable_folder(args.out)
        _write(sampler, args)
    return 0


def _print(sampler: Sampler, n: int, with_trees: bool) -> None:
    n_rejected = 0
    for first in range(0, n, BLOCK):
        block = sampler.draw(first, min(BLOCK, n - first))
        n_rejected += block.n_rejected
        for tree in block:
            print(tree if with_trees else " ".join(tree.words()))
    if sampler.max_length is not None:
        print(f"{n_rejected} longer draws rejected", file=sys.stderr)


def _write(sampler: Sampler, args: argparse.Namespace) -> None:
    grammar = sampler.grammar
    with stage_folder.lock(args.out):
        description = {"seed": args.seed, "max_length": args.max_length, "n": args.n, "shard_size": args.shard_size,
                       "trees": args.trees, "n_words": grammar.n_words, "n_binary_rules": len(grammar.binary),
                       "grammar": storage.fingerprint([grammar.words, grammar.binary_prob.tolist(),
                                                         grammar.lexical_prob.tolist()])}
        folder = stage_folder.begin(args.out, storage.fingerprint(description))
        n_rejected = 0
        for shard, first in enumerate(range(0, args.n, args.shard_size)):
            name = f"shard-{shard:05d}"
            if not folder.has(f"{name}/drawn.json"):
                drawn = write_shard(folder.path(name), sampler, first, min(args.shard_size, args.n - first),
                                    with_rules=args.trees,
                                    n_workers=args.workers or available_cores())
                folder.write_json(f"{name}/drawn", drawn.as_json())
            n_rejected += folder.json(f"{name}/drawn")["n_rejected"]
        folder.write_json("sample", {**description, "n_rejected": n_rejected})
    print(f"{args.n:,} sentences written to {args.out}; {n_rejected:,} longer draws rejected", file=sys.stderr)
