"""Parse sentences with a grammar, or score a grammar on a treebank.

One bracketed tree a line comes out, for an empty sentence an empty line.  With --json, a line of JSON for each: the
tree, the log probability of the sentence in nats (Viterbi: and of the tree), and every node's posterior probability.

With --treebank: unlabelled F1 in the named conventions, beside trees that know nothing but the length of the sentence,
and beside the latent-variable PCFG if the grammar folder holds one; --labelled adds labelled scores as evalb has them.

With --kbest K, the K most probable trees of every sentence, best first, as a table with tabs: sentence (from 1), rank,
log_prob_nats of the tree, tree.  With --entropy, what the grammar leaves open of every sentence's tree: sentence,
entropy_bits of the tree given the sentence, bits_per_word, tree (most correct spans expected).  With --json, every node
also has its entropy_bits: of its rule and split given its span's symbol, times the probability of being a node, summed
over symbols; over all spans (and the symbol on top) they add up to the entropy of the tree.

A sentence without probability is tried again with its rarer words as unknown ones, then becomes right-branching; how
often, if ever, is said on standard error, or below the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.latent import LatentPCFG
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.decoding import AT_ONCE, labelled_tree
from pcfg_artifact.parsing.engine import backends
from pcfg_artifact.parsing.latent_engine import latent_parses
from pcfg_artifact.parsing.scoring import AUTO, CONVENTIONS, RULES
from pcfg_artifact.tools import parse_scores
from pcfg_artifact.tools.arguments import (
    add_grammar_argument,
    add_treebank_arguments,
    load_grammar,
    named_path,
    refuse_counts,
    refuse_unwritable,
)
from pcfg_artifact.tools.parse_trees import (
    Scored,
    best_trees,
    engine_options,
    original_trees,
    recall_trees,
    retried,
    viterbi_trees,
)
from pcfg_artifact.tools.sentences import HELP, add_json_argument, read_sentences

EXAMPLE = "run_all.sh parse --grammar my_grammar --treebank craft_penn.zip"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_grammar_argument(parser)
    parser.add_argument("sentences", nargs="?", default="-", metavar="SENTENCES", help=f"{HELP} (-)")
    add_json_argument(parser, "--scores")
    parser.add_argument("--decode", choices=("recall", "viterbi", "latent"), default="recall",
                        help="most correct spans expected, the most probable tree, or most correct spans by the "
                             "latent-variable PCFG (recall)")
    parser.add_argument("--kbest", type=int, metavar="K", help="the K most probable trees of every sentence")
    parser.add_argument("--entropy", action="store_true", help="bits of uncertainty about the tree of every sentence")
    parser.add_argument("--unbinarise", action="store_true",
                        help="viterbi, --kbest: trees as in the treebank, or of the grammar as it was written")
    add_treebank_arguments(parser, "score on these trees instead, by most correct spans expected")
    parser.add_argument("--split", choices=("all", "train", "test"), default="test", help="of the treebank (test)")
    parser.add_argument("--max-length", type=int, metavar="L", help="leave out longer trees, and count them")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N trees only")
    parser.add_argument("--conventions", nargs="+", choices=tuple(CONVENTIONS), default=("PB", "KIM"),
                        metavar="NAME", help=f"of F1: {', '.join(CONVENTIONS)} (PB KIM)")
    parser.add_argument("--punctuation", choices=(AUTO, *RULES), default=AUTO,
                        help="what KIM drops: by Penn's tags, by the form of words, or what fits the treebank (auto)")
    parser.add_argument("--labelled", action="store_true", help="labelled scores too, of Labelled Recall and Viterbi")
    parser.add_argument("--evalb", type=named_path, metavar="DIR",
                        help="--labelled, and write gold and predicted trees there as evalb reads them")
    parser.add_argument("--backend", choices=backends(), default="auto", help="engine (auto)")
    parser.add_argument("--device", default="cpu",
                        help="cpu, or cuda: the engine gpu where it is expected to be faster (cpu)")
    parser.add_argument("--seed", type=int, default=0, help="of the random trees (0)")


def run(args: argparse.Namespace) -> int:
    if args.kbest is not None and (args.entropy or args.decode == "latent"):
        raise UsageError("--kbest lists the most probable trees of the grammar; leave out --entropy and --decode "
                         "latent")
    if args.kbest is not None and (args.device != "cpu" or args.backend not in (AUTO, "cpu")):
        raise UsageError("--kbest is for the engine cpu; leave out --backend and --device")
    if args.entropy and args.decode != "recall":
        raise UsageError("--entropy prints trees of most correct spans expected; leave out --decode")
    if args.unbinarise and args.decode != "viterbi" and args.kbest is None:
        raise UsageError("--unbinarise needs --decode viterbi or --kbest: the labels of a Labelled-Recall tree may fit "
                         "no rule")
    if args.treebank is not None and (args.decode != "recall" or args.sentences != "-" or args.kbest is not None
                                      or args.entropy):
        raise UsageError("--treebank scores trees of most correct spans expected; leave out SENTENCES, --decode, "
                         "--kbest and --entropy, which are for parsing sentences (the latent-variable PCFG is scored "
                         "where the grammar has one)")
    if args.treebank is None and (args.evalb is not None or args.labelled):
        raise UsageError("--labelled and --evalb score trees of a treebank; give it with --treebank SOURCE")
    refuse_counts(("--max-length", args.max_length, 1), ("--limit", args.limit, 1), ("--kbest", args.kbest, 1))
    if args.evalb is not None:
        args.evalb.mkdir(parents=True, exist_ok=True)  # now, not when all is scored
    grammar = load_grammar(args.grammar, weights=args.weights)
    needs_latent = args.decode == "latent" or (args.treebank is not None and LatentPCFG.is_in(args.grammar))
    latent = LatentPCFG.load(args.grammar, grammar) if needs_latent else None
    if args.treebank is not None:
        parse_scores.report(parse_scores.score(grammar, latent, args), args)
        return 0
    refuse_unwritable(grammar.nonterminals, args.grammar, "symbol")
    attempts: Counter[int] = Counter()
    sentences, number = read_sentences(args.sentences), 0
    columns = ("rank", "log_prob_nats") if args.kbest else ("entropy_bits", "bits_per_word") if args.entropy else ()
    if columns and not args.json:
        print("sentence", *columns, "tree", sep="\t")
    while block := list(islice(sentences, AT_ONCE)):
        for words, scored in zip(block, _trees(grammar, latent, block, args), strict=True):
            number += 1
            attempts[scored.n_attempts] += 1
            if args.json:
                print(json.dumps(scored.as_json(words), ensure_ascii=False, allow_nan=False))
            elif columns:
                for row in scored.rows(len(words)):
                    print(number, *row, sep="\t")
            else:
                print("" if scored.tree is None else scored.tree)
    if attempts[2] + attempts[3]:
        print(retried(attempts, "right-branching" if args.kbest is None else "no tree"), file=sys.stderr)
    return 0


def _trees(grammar: PCFG, latent: LatentPCFG | None, sentences: Sequence[list[str]], args: argparse.Namespace
           ) -> Iterator[Scored]:
    if args.kbest is not None:
        yield from best_trees(grammar, sentences, args)
    elif latent is not None:
        found = latent_parses(latent, sentences, engine_options(args, grammar, sentences))
        for words, (plain, chart) in zip(sentences, found, strict=True):
            tree = labelled_tree(grammar, chart, words)
            yield Scored(tree, 0 if tree is None else plain.n_attempts, plain.log_prob)
    elif args.unbinarise:
        yield from original_trees(grammar, sentences, args)
    elif args.decode == "viterbi":
        yield from viterbi_trees(grammar, sentences, args, with_marginals=args.json)
    else:
        yield from recall_trees(grammar, sentences, args, with_marginals=args.json, with_entropy=args.entropy)
