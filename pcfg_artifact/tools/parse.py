"""Parse sentences with a grammar, or score a grammar on a treebank.

Sentences: one a line, words separated by blanks, from FILE or standard input; one bracketed tree a line comes out, for
an empty line an empty line.  With --scores: a line of JSON for each, with the log probability of the sentence (Viterbi:
and of the tree) and the posterior probability of every node.

With --treebank: unlabelled F1 in the named conventions, beside trees that know nothing but the length of the sentence,
and beside the latent-variable PCFG if the grammar folder holds one; --labelled adds labelled scores as evalb has them.

A sentence without probability is tried again with its rarer words as unknown ones, then becomes right-branching; how
often, if ever, is said on standard error, or below the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TextIO

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.latent import LatentPCFG
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.baselines import BASELINES
from pcfg_artifact.parsing.decoding import AT_ONCE, RARE_BELOW, Parse, Span, labelled_recall, labelled_tree, parses
from pcfg_artifact.parsing.latent_engine import LatentChart, latent_parses
from pcfg_artifact.parsing.punctuation import AUTO, PENN, RULES, choose_rule
from pcfg_artifact.parsing.registry import backends
from pcfg_artifact.parsing.scoring import CONVENTIONS, gold_spans, span_f1
from pcfg_artifact.system.progress import progress
from pcfg_artifact.system.random_streams import stream
from pcfg_artifact.tools.arguments import (
    add_grammar_argument,
    add_treebank_arguments,
    load_grammar,
    load_treebank,
    named_path,
    refuse_counts,
    refuse_unwritable,
)
from pcfg_artifact.tools.parse_labelled import print_labelled
from pcfg_artifact.tools.parse_trees import Scored, engine_options, original_trees, recall_trees, viterbi_trees
from pcfg_artifact.tools.sentences import HELP, read_sentences
from pcfg_artifact.treebank.splits import split
from pcfg_artifact.treebank.tree import Tree

EXAMPLE = "run_all.sh parse --grammar my_grammar --treebank craft_penn.zip"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_grammar_argument(parser)
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help=HELP)
    parser.add_argument("--decode", choices=("recall", "viterbi", "latent"), default="recall",
                        help="most correct spans expected, the most probable tree, or most correct spans by the "
                             "latent-variable PCFG (recall)")
    parser.add_argument("--unbinarise", action="store_true",
                        help="viterbi: trees as in the treebank, or of the grammar as it was written")
    parser.add_argument("--scores", action="store_true",
                        help="JSON lines: every tree with its log probability and the marginal of every span")
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
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for the torch engine (cpu)")
    parser.add_argument("--seed", type=int, default=0, help="of the random trees (0)")


def run(args: argparse.Namespace) -> int:
    if args.unbinarise and args.decode != "viterbi":
        raise UsageError("--unbinarise needs --decode viterbi: the labels of a Labelled-Recall tree may fit no rule")
    if args.treebank is not None and (args.decode != "recall" or args.file != "-"):
        raise UsageError("--treebank scores trees of most correct spans expected; leave out FILE and --decode, which "
                         "are for parsing sentences (the latent-variable PCFG is scored where the grammar has one)")
    if args.scores and (args.treebank is not None or args.decode == "latent" or args.unbinarise):
        raise UsageError("--scores gives the nodes of Labelled-Recall or Viterbi trees of sentences; leave out "
                         "--treebank, --decode latent and --unbinarise")
    if args.treebank is None and (args.evalb is not None or args.labelled):
        raise UsageError("--labelled and --evalb score trees of a treebank; give it with --treebank SOURCE")
    refuse_counts(("--max-length", args.max_length, 1), ("--limit", args.limit, 1))
    if args.evalb is not None:
        args.evalb.mkdir(parents=True, exist_ok=True)  # now, not when all is scored
    grammar = load_grammar(args.grammar)
    attempts: Counter[int] = Counter()
    needs_latent = args.decode == "latent" or (args.treebank is not None and LatentPCFG.is_in(args.grammar))
    latent = LatentPCFG.load(args.grammar, grammar) if needs_latent else None
    if args.treebank is not None:
        return _score(grammar, latent, args)
    refuse_unwritable(grammar.nonterminals, args.grammar, "symbol")
    for block in _blocks(read_sentences(args.file)):
        for words, scored in zip(block, _trees(grammar, latent, block, args), strict=True):
            attempts[scored.n_attempts] += 1
            if args.scores:
                print(json.dumps(scored.as_json(words), ensure_ascii=False, allow_nan=False))
            else:
                print("" if scored.tree is None else scored.tree)
    if attempts[2] + attempts[3]:
        _report(attempts, sys.stderr)
    return 0


# ---- sentences in, trees out -----------------------------------------------------------------------------------------


def _blocks(lines: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    block: list[list[str]] = []
    for words in lines:
        block.append(words)
        if len(block) == AT_ONCE:
            yield block
            block = []
    if block:
        yield block


def _trees(grammar: PCFG, latent: LatentPCFG | None, sentences: Sequence[list[str]], args: argparse.Namespace
           ) -> Iterator[Scored]:
    if latent is not None:
        found = latent_parses(latent, sentences, engine_options(args))
        for words, (plain, chart) in zip(sentences, found, strict=True):
            tree = labelled_tree(grammar, chart, words)
            yield Scored(tree, 0 if tree is None else plain.n_attempts, plain.log_prob, None, [])
    elif args.unbinarise:
        yield from original_trees(grammar, sentences, args)
    elif args.decode == "viterbi":
        yield from viterbi_trees(grammar, sentences, args, with_marginals=args.scores)
    else:
        yield from recall_trees(grammar, sentences, args, with_marginals=args.scores)


def _report(attempts: Counter, file: TextIO) -> None:
    n = attempts.total() - attempts[0]
    print(f"{n:,} sentence{'' if n == 1 else 's'}; {attempts[2] + attempts[3]:,} without probability, "
          f"{attempts[3]:,} still so with words seen {RARE_BELOW} times or less taken as unknown (right-branching)",
          file=file)


# ---- F1 --------------------------------------------------------------------------------------------------------------


class Predicted(NamedTuple):
    """Spans of every tree by parser, how often each sentence had to be retried, and estimates that are not positive."""

    spans: Mapping[str, Sequence[Iterable[Span]]]
    attempts: Counter[int]
    n_not_positive: int


def _score(grammar: PCFG, latent: LatentPCFG | None, args: argparse.Namespace) -> int:
    treebank = load_treebank(args)
    trees = treebank.trees if args.split == "all" else getattr(split(treebank), args.split)
    chosen = [tree for tree in trees if args.max_length is None or len(tree.words()) <= args.max_length][:args.limit]
    if not chosen:
        raise UsageError(f"no tree of {args.treebank} is left to score; check --split, --max-length and --limit")
    rule, share = PENN, 0.0
    if not all(CONVENTIONS[name].keep_punctuation for name in args.conventions):
        rule, share = choose_rule(chosen, args.punctuation)
    predicted = _predict(grammar, latent, chosen, args)
    _print_table(chosen, predicted.spans, args.conventions, rule)
    if share:
        print(f"punctuation by the rule {rule} ({RULES[rule]}): {100 * share:.1f}% of the tokens")
    _report(predicted.attempts, sys.stdout)
    if latent is not None:
        print(f"latent PCFG: the estimated probability of {predicted.n_not_positive:,} sentences is not positive; "
              f"trees rest on absolute marginals")
    if args.labelled or args.evalb is not None:
        print_labelled(grammar, chosen, rule, args)
    if len(chosen) < len(trees):
        print(f"{len(trees) - len(chosen):,} of {len(trees):,} trees left out by --max-length or --limit")
    return 0


def _predict(grammar: PCFG, latent: LatentPCFG | None, gold: Sequence[Tree], args: argparse.Namespace) -> Predicted:
    """The trees of exact inference, of the trivial baselines, and of the gold trees made binary."""
    sentences = [tree.words() for tree in gold]
    found: Iterator[tuple[Parse, LatentChart | None]] = (
        ((parse, None) for parse in parses(grammar, sentences, engine_options(args))) if latent is None
        else latent_parses(latent, sentences, engine_options(args)))
    attempts: Counter[int] = Counter()
    plain_spans, latent_spans, n_not_positive = [], [], 0
    for plain, chart in progress(found, total=len(sentences), desc="parsing"):
        attempts[plain.n_attempts] += 1
        plain_spans.append(plain.spans)
        if chart is not None:
            latent_spans.append(labelled_recall(chart))
            n_not_positive += chart.is_negative
    rng = stream(args.seed, "random trees")
    spans: dict[str, Sequence[Iterable[Span]]] = {"Inside-Outside": plain_spans}
    if latent is not None:
        spans["latent PCFG"] = latent_spans
    for name, parse in BASELINES.items():
        spans[f"{name}-branching" if name in ("right", "left") else name] = [parse(len(w), rng) for w in sentences]
    spans["ceiling (binarised gold)"] = [gold_spans(tree, binary=True) for tree in gold]
    return Predicted(spans, attempts, n_not_positive)


def _print_table(gold: Sequence[Tree], rows: Mapping[str, Sequence[Iterable[Span]]], conventions: Sequence[str],
                 punctuation: str) -> None:
    print("unlabelled F1 in percent, sentence / corpus")
    for name in conventions:
        print(f"  {CONVENTIONS[name]}")
    print(f"{'':<26}" + "".join(f"{name:>16}" for name in conventions))
    for name, spans in rows.items():
        scores = (span_f1(gold, spans, convention, punctuation) for convention in conventions)
        print(f"{name:<26}" + "".join(f"{f'{f1.sentence:.2f} / {f1.corpus:.2f}':>16}" for f1 in scores))
