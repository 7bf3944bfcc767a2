"""Parse sentences with a grammar, or score a grammar on a treebank.

Sentences: one a line, words separated by blanks, from FILE or standard input; one bracketed tree a line comes out, for
an empty line an empty line.  With --treebank: unlabelled F1 in the named conventions, beside trees that know nothing
but the length of the sentence, and beside the latent-variable PCFG if the grammar folder holds one.  A sentence without
probability is tried again with its rarer words as unknown ones, then becomes right-branching; how often is said on
standard error, or below the table.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar import PCFG
from pcfg_artifact.grammar.latent import LatentPCFG
from pcfg_artifact.parsing import (
    BASELINES,
    CONVENTIONS,
    EngineOptions,
    LatentChart,
    Parse,
    gold_spans,
    labelled_recall,
    labelled_tree,
    latent_parses,
    parses,
    span_f1,
    viterbi_trees,
    with_retries,
)
from pcfg_artifact.parsing.decoding import RARE_BELOW, Span
from pcfg_artifact.parsing.labelling import NO_LABEL
from pcfg_artifact.parsing.registry import backends
from pcfg_artifact.progress import progress
from pcfg_artifact.seeding import stream
from pcfg_artifact.tools.arguments import (
    add_grammar_argument,
    add_treebank_arguments,
    load_grammar,
    load_treebank,
    refuse_counts,
    refuse_unwritable,
)
from pcfg_artifact.tools.sentences import HELP, read_sentences
from pcfg_artifact.treebank.binarise import unbinarise
from pcfg_artifact.treebank.splits import split
from pcfg_artifact.treebank.tree import Tree

EXAMPLE = "run_all.sh parse --grammar my_grammar --treebank craft_penn.zip"
BLOCK = 256  # lines read before their trees are printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_grammar_argument(parser)
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help=HELP)
    parser.add_argument("--decode", choices=("recall", "viterbi", "latent"), default="recall",
                        help="most correct spans expected, the most probable tree, or most correct spans by the "
                             "latent-variable PCFG (recall)")
    parser.add_argument("--unbinarise", action="store_true", help="viterbi: trees as in the treebank")
    add_treebank_arguments(parser, "score on these trees instead, by most correct spans expected")
    parser.add_argument("--split", choices=("all", "train", "test"), default="test", help="of the treebank (test)")
    parser.add_argument("--max-length", type=int, metavar="L", help="leave out longer trees, and count them")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N trees only")
    parser.add_argument("--conventions", nargs="+", choices=tuple(CONVENTIONS), default=("PB", "KIM"),
                        metavar="NAME", help=f"of F1: {', '.join(CONVENTIONS)} (PB KIM)")
    parser.add_argument("--backend", choices=backends(), default="auto", help="engine (auto)")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for the torch engine (cpu)")
    parser.add_argument("--seed", type=int, default=0, help="of the random trees (0)")


def run(args: argparse.Namespace) -> int:
    if args.unbinarise and args.decode != "viterbi":
        raise UsageError("--unbinarise needs --decode viterbi: the labels of a Labelled-Recall tree may fit no rule")
    if args.treebank is not None and (args.decode != "recall" or args.file != "-"):
        raise UsageError("--treebank scores trees of most correct spans expected; leave out FILE and --decode, which "
                         "are for parsing sentences (the latent-variable PCFG is scored where the grammar has one)")
    refuse_counts(("--max-length", args.max_length, 1), ("--limit", args.limit, 1))
    grammar, attempts = load_grammar(args.grammar), Counter[int]()
    needs_latent = args.decode == "latent" or (args.treebank is not None and LatentPCFG.is_in(args.grammar))
    latent = LatentPCFG.load(args.grammar, grammar) if needs_latent else None
    if args.treebank is not None:
        return _score(grammar, latent, args)
    refuse_unwritable(grammar.nonterminals, args.grammar, "symbol")
    for block in _blocks(read_sentences(args.file)):
        for tree, n_attempts in _trees(grammar, latent, block, args):
            attempts[n_attempts] += 1
            print("" if tree is None else tree)
    _report(attempts, sys.stderr)
    return 0


def _options(args: argparse.Namespace) -> EngineOptions:
    return EngineOptions(args.backend, args.device)


# ---- sentences in, trees out -----------------------------------------------------------------------------------------


def _blocks(lines: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    block: list[list[str]] = []
    for words in lines:
        block.append(words)
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block


def _trees(grammar: PCFG, latent: LatentPCFG | None, sentences: Sequence[list[str]], args: argparse.Namespace
           ) -> Iterator[tuple[Tree | None, int]]:
    """The tree of every sentence and the number of the attempt that gave it (0: nothing to parse)."""
    found: Iterator[tuple[Tree | None, int]]
    if latent is not None:
        found = ((labelled_tree(grammar, chart, [""] * chart.length), plain.n_attempts)
                 for plain, chart in latent_parses(latent, sentences, _options(args)))
    elif args.decode == "viterbi":
        found = _viterbi_trees(grammar, sentences, args.unbinarise, _options(args))
    else:
        found = with_retries(grammar, sentences, lambda chart, ids, n_attempts: (
            labelled_tree(grammar, chart, [""] * len(ids)), n_attempts), _options(args))
    for words, (tree, n_attempts) in zip(sentences, found, strict=True):
        yield (_with_words(tree, words), n_attempts) if tree is not None else (None, 0)


def _viterbi_trees(grammar: PCFG, sentences: Sequence[list[str]], is_unbinarised: bool, options: EngineOptions
                   ) -> Iterator[tuple[Tree | None, int]]:
    found: dict[int, tuple[Tree | None, int]] = {}
    for n_attempts, rare_below in ((1, None), (2, RARE_BELOW)):
        left = [s for s in range(len(sentences)) if s not in found]
        ids = [grammar.encode(sentences[s], rare_below=rare_below) for s in left]
        for s, (_, tree) in zip(left, viterbi_trees(grammar, ids, options), strict=True):
            if tree is not None:
                found[s] = (unbinarise(tree) if is_unbinarised else tree), n_attempts
    return (found.get(s, (_right_branching(words), 3)) for s, words in enumerate(sentences))


def _right_branching(words: Sequence[str]) -> Tree | None:
    tree = None
    for word in reversed(words):
        leaf = Tree(NO_LABEL, word=word)
        tree = leaf if tree is None else Tree(NO_LABEL, (leaf, tree))
    return tree


def _with_words(tree: Tree, words: Sequence[str]) -> Tree:
    """The same tree over the words as they were written."""
    stack: list[Tree] = []
    left = list(words)
    for node in reversed(list(tree.preorder())):  # from the right, children are complete before their parent
        if node.is_preterminal:
            stack.append(Tree(node.label, word=left.pop()))
        else:
            stack.append(Tree(node.label, tuple(stack.pop() for _ in node.children)))
    return stack[0]


def _report(attempts: Counter, file: TextIO) -> None:
    print(f"{attempts.total() - attempts[0]:,} sentences; {attempts[2] + attempts[3]:,} without probability, "
          f"{attempts[3]:,} still so with words seen {RARE_BELOW} times or less taken as unknown (right-branching)",
          file=file)


# ---- F1 --------------------------------------------------------------------------------------------------------------


def _score(grammar: PCFG, latent: LatentPCFG | None, args: argparse.Namespace) -> int:
    treebank = load_treebank(args)
    trees = treebank.trees if args.split == "all" else getattr(split(treebank), args.split)
    chosen = [tree for tree in trees if args.max_length is None or len(tree.words()) <= args.max_length][:args.limit]
    if not chosen:
        raise UsageError(f"no tree of {args.treebank} is left to score; check --split, --max-length and --limit")
    sentences = [tree.words() for tree in chosen]
    attempts: Counter = Counter()
    rows: dict[str, list[Iterable[Span]]] = {"Inside-Outside": []}
    n_not_positive = 0
    found: Iterator[tuple[Parse, LatentChart | None]]
    if latent is None:
        found = ((parse, None) for parse in parses(grammar, sentences, _options(args)))
    else:
        rows["latent PCFG"] = []
        found = latent_parses(latent, sentences, _options(args))
    for plain, chart in progress(found, total=len(sentences), desc="parsing"):
        attempts[plain.n_attempts] += 1
        rows["Inside-Outside"].append(plain.spans)
        if chart is not None:
            rows["latent PCFG"].append(labelled_recall(chart))
            n_not_positive += chart.is_negative
    rng = stream(args.seed, "random trees")
    lengths = [len(words) for words in sentences]
    rows |= {f"{name}-branching" if name in ("right", "left") else name: [parse(n, rng) for n in lengths]
             for name, parse in BASELINES.items()}
    rows["ceiling (binarised gold)"] = [gold_spans(tree, binary=True) for tree in chosen]
    _print_table(chosen, rows, args.conventions)
    _report(attempts, sys.stdout)
    if latent is not None:
        print(f"latent PCFG: the estimated probability of {n_not_positive:,} sentences is not positive; "
              f"trees rest on absolute marginals")
    if len(chosen) < len(trees):
        print(f"{len(trees) - len(chosen):,} of {len(trees):,} trees left out by --max-length or --limit")
    return 0


def _print_table(gold: Sequence[Tree], rows: dict[str, list[Iterable[Span]]], conventions: Sequence[str]) -> None:
    print("unlabelled F1 in percent, sentence / corpus")
    for name in conventions:
        print(f"  {CONVENTIONS[name]}")
    print(f"{'':<26}" + "".join(f"{name:>16}" for name in conventions))
    for name, spans in rows.items():
        scores = (span_f1(gold, spans, convention) for convention in conventions)
        print(f"{name:<26}" + "".join(f"{f'{f1.sentence:.2f} / {f1.corpus:.2f}':>16}" for f1 in scores))
