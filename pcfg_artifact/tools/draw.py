"""Draw sentences, or trees, from a grammar.

--length 20 or --length 20:30 draws from the exact distribution of sentences with so many words; --max-length from that
of sentences with at most so many, by drawing longer ones again.  --given draws trees of a sentence (or of every line of
a file, or of -) by their probability given its words, -n for each, one a line.

Without --out, one sentence (or with --trees one bracketed tree) a line on standard output.  With --out, shards of
flat arrays: sentence s of a shard is tokens.values[tokens.offsets[s]:tokens.offsets[s + 1]], word ids of the grammar;
--trees adds the rules of each tree in preorder.  Sentence s of a seed is always the same tree, so trees can also be
drawn again later; the number of workers changes nothing.  An interrupted call continues at the shard it was writing.
"""

from __future__ import annotations

import argparse
import sys

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import Sampler, TreeSampler
from pcfg_artifact.parsing.tree_draws import LengthSampler, SentenceSampler
from pcfg_artifact.run import stage_folder
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import available_cores
from pcfg_artifact.tools.arguments import (
    HELP,
    LARGEST,
    add_grammar_argument,
    load_grammar,
    named_path,
    read_sentences,
    refuse_counts,
    refuse_unusable_folder,
    refuse_unwritable,
)
from pcfg_artifact.tools.parse_trees import with_words
from pcfg_artifact.workers.shards import BLOCK, write_shard

EXAMPLE = "run_all.sh sample --grammar my_grammar -n 5 --trees --length 20:30"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_grammar_argument(parser)
    parser.add_argument("-n", type=int, required=True, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="random seed (0)")
    parser.add_argument("--trees", action="store_true", help="trees, not only sentences")
    parser.add_argument("--max-length", type=int, metavar="L", help="draw longer sentences again, and count them")
    parser.add_argument("--length", type=word_range, metavar="N or LOW:HIGH",
                        help="sentences of exactly so many words, or of LOW to HIGH words, both included")
    parser.add_argument("--given", metavar="SENTENCES", help=f"trees of these words: {HELP}")
    parser.add_argument("--out", type=named_path, metavar="DIR", help="write shards of arrays here")
    parser.add_argument("--shard-size", type=int, default=1_000_000, help="sentences a shard (1,000,000)")
    parser.add_argument("--workers", type=int, help="threads (all cores)")


def run(args: argparse.Namespace) -> int:
    refuse_counts(("-n", args.n, 0), ("--shard-size", args.shard_size, 1), ("--workers", args.workers, 1),
                  ("--max-length", args.max_length, 1))
    if sum(limit is not None for limit in (args.max_length, args.length, args.given)) > 1:
        raise UsageError("--max-length, --length and --given each say what is drawn; choose one")
    if args.given is not None and args.out is not None:
        raise UsageError("--given prints trees; leave out --out")
    grammar = load_grammar(args.grammar, weights=args.weights)
    if args.out is None:
        refuse_unwritable(grammar.words, args.grammar, "word")
        if args.trees or args.given is not None:
            refuse_unwritable(grammar.nonterminals, args.grammar, "symbol")
    if args.given is not None:
        for words in read_sentences(args.given):
            sampler = SentenceSampler(grammar, words, args.seed)
            for first in range(0, args.n, BLOCK):
                for tree in sampler.draw(first, min(BLOCK, args.n - first)):
                    print(with_words(tree, words))
        return 0
    draws = _sampler(grammar, args)
    if args.out is None:
        _print(draws, args.n, args.trees)
    else:
        refuse_unusable_folder(args.out)
        _write(draws, args)
    return 0


def word_range(text: str) -> tuple[int, int]:
    """The type of --length: 20, or 20:30."""
    try:
        low, high = (int(part) for part in text.split(":")) if ":" in text else (int(text),) * 2
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no length; give 20, or 20:30") from None
    if not 1 <= low <= high <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers from 1 to {LARGEST:,}, the smaller one first")
    return low, high


def _sampler(grammar: PCFG, args: argparse.Namespace) -> TreeSampler:
    if args.length is not None:
        low, high = args.length
        return LengthSampler(grammar, low, high, args.seed)
    return Sampler(grammar, args.seed, args.max_length)


def _print(sampler: TreeSampler, n: int, with_trees: bool) -> None:
    n_rejected = 0
    for first in range(0, n, BLOCK):
        block = sampler.draw(first, min(BLOCK, n - first))
        n_rejected += block.n_rejected
        for tree in block:
            print(tree if with_trees else " ".join(tree.words()))
    if sampler.max_length is not None:
        print(f"{n_rejected} longer draws rejected", file=sys.stderr)


def _write(sampler: TreeSampler, args: argparse.Namespace) -> None:
    grammar = sampler.grammar
    with stage_folder.lock(args.out):
        description = {"seed": args.seed, "max_length": args.max_length, "n": args.n, "shard_size": args.shard_size,
                       **({} if args.length is None else {"length": args.length}), "trees": args.trees,
                       "n_words": grammar.n_words, "n_binary_rules": len(grammar.binary),
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
                folder.write_json(f"{name}/drawn", vars(drawn))
            n_rejected += folder.json(f"{name}/drawn")["n_rejected"]
        folder.write_json("sample", {**description, "n_rejected": n_rejected})
    print(f"{args.n:,} sentences written to {args.out}; {n_rejected:,} longer draws rejected", file=sys.stderr)
