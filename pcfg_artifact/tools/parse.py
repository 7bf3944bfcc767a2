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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.latent import LatentPCFG
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.decoding import AT_ONCE, BASELINES, Parse, Span, labelled_recall, labelled_tree, parses
from pcfg_artifact.parsing.engine import backends
from pcfg_artifact.parsing.latent_engine import LatentChart, latent_parses
from pcfg_artifact.parsing.scoring import (
    AUTO,
    CONVENTIONS,
    EVALB,
    PENN,
    RULES,
    choose_rule,
    evalb_line,
    gold_spans,
    labelled_f1,
    span_f1,
    treebank_tree,
)
from pcfg_artifact.system import storage
from pcfg_artifact.system.progress import progress
from pcfg_artifact.system.random_streams import stream
from pcfg_artifact.tools.arguments import (
    HELP,
    add_grammar_argument,
    add_json_argument,
    add_treebank_arguments,
    json_rows,
    load_grammar,
    load_treebank,
    named_path,
    read_sentences,
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
from pcfg_artifact.treebank.splits import split
from pcfg_artifact.treebank.tree import Tree

EXAMPLE = "run_all.sh parse --grammar my_grammar --treebank craft_penn.zip"
LABELLED = ("precision", "recall", "f1", "complete", "tagging")


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
        report(score(grammar, latent, args), args)
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


# ---- scores on a treebank --------------------------------------------------------------------------------------------


@dataclass
class TreebankScores:
    """Percentages as frames: parser, convention, sentence_f1, corpus_f1; and decode with the columns of LABELLED."""

    unlabelled: pd.DataFrame
    attempts: Counter[int]
    punctuation: str  # the rule of KIM
    punctuation_share: float  # of the tokens
    n_left_out: int
    n_trees: int
    n_not_positive: int | None = None  # sentences, by the latent PCFG
    labelled: pd.DataFrame | None = None
    trees: dict[str, Sequence[Tree]] = field(default_factory=dict)  # gold, and predicted with labels

    @property
    def labelled_punctuation(self) -> str:
        return EVALB if self.punctuation == PENN else self.punctuation


def score(grammar: PCFG, latent: LatentPCFG | None, args: argparse.Namespace) -> TreebankScores:
    treebank = load_treebank(args)
    trees = treebank.trees if args.split == "all" else getattr(split(treebank), args.split)
    gold = [tree for tree in trees if args.max_length is None or len(tree.words()) <= args.max_length][:args.limit]
    if not gold:
        raise UsageError(f"no tree of {args.treebank} is left to score; check --split, --max-length and --limit")
    rule, share = PENN, 0.0
    if not all(CONVENTIONS[name].keep_punctuation for name in args.conventions):
        rule, share = choose_rule(gold, args.punctuation)
    spans, attempts, n_not_positive = predicted_spans(grammar, latent, gold, args)
    rows = [(name, convention, f1.sentence, f1.corpus) for name, some in spans.items()
            for convention in args.conventions for f1 in [span_f1(gold, some, convention, rule)]]
    unlabelled = pd.DataFrame(rows, columns=["parser", "convention", "sentence_f1", "corpus_f1"])
    found = TreebankScores(unlabelled, attempts, rule, share, len(trees) - len(gold), len(trees), n_not_positive)
    if args.labelled or args.evalb is not None:
        predicted = labelled_trees(grammar, gold, args)
        found.trees = {"gold": gold, **predicted}
        f1s = {name: labelled_f1(gold, some, found.labelled_punctuation) for name, some in predicted.items()}
        found.labelled = pd.DataFrame([{"decode": name, **asdict(f1)} for name, f1 in f1s.items()])
    return found


def predicted_spans(grammar: PCFG, latent: LatentPCFG | None, gold: Sequence[Tree], args: argparse.Namespace
                    ) -> tuple[dict[str, Sequence[Iterable[Span]]], Counter[int], int | None]:
    """Spans of every tree by parser, how often each sentence was tried, and latent estimates that are not positive."""
    sentences = [tree.words() for tree in gold]
    options = engine_options(args, grammar, sentences)
    found: Iterator[tuple[Parse, LatentChart | None]] = (
        ((parse, None) for parse in parses(grammar, sentences, options)) if latent is None
        else latent_parses(latent, sentences, options))
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
    return spans, attempts, None if latent is None else n_not_positive


def labelled_trees(grammar: PCFG, gold: Sequence[Tree], args: argparse.Namespace) -> dict[str, list[Tree]]:
    """Predicted trees with treebank labels, by how they were chosen."""
    sentences = [tree.words() for tree in gold]
    by_choice = {"labelled_recall": recall_trees(grammar, sentences, args, with_marginals=False),
                 "viterbi": viterbi_trees(grammar, sentences, args, with_marginals=False)}
    return {name: [treebank_tree(scored.tree) for scored in progress(trees, total=len(gold), desc=name)
                   if scored.tree is not None] for name, trees in by_choice.items()}


def report(found: TreebankScores, args: argparse.Namespace) -> None:
    """Tables, or with --json one line; --evalb writes the trees."""
    if args.evalb is not None:
        for name, trees in found.trees.items():
            storage.write_text(args.evalb / f"{name}.trees", "".join(f"{evalb_line(tree)}\n" for tree in trees))
    if args.json:
        print(json.dumps(as_json(found), allow_nan=False))
        return
    print_unlabelled(found.unlabelled)
    if found.punctuation_share:
        print(f"punctuation by the rule {found.punctuation} ({RULES[found.punctuation]}): "
              f"{100 * found.punctuation_share:.1f}% of the tokens")
    print(retried(found.attempts))
    if found.n_not_positive is not None:
        print(f"latent PCFG: the estimated probability of {found.n_not_positive:,} sentences is not positive; "
              f"trees rest on absolute marginals")
    if found.labelled is not None:
        print_labelled(found.labelled, found.labelled_punctuation)
    if args.evalb is not None:
        print_written(args.evalb, list(found.trees))
    if found.n_left_out:
        print(f"{found.n_left_out:,} of {found.n_trees:,} trees left out by --max-length or --limit")


def as_json(found: TreebankScores) -> dict[str, Any]:
    """Every number of the tables; percentages are named so."""
    return {"unit": "percent", "unlabelled": json_rows(found.unlabelled),
            **({} if found.labelled is None else {"labelled": json_rows(found.labelled)}),
            "punctuation": found.punctuation, "punctuation_share": 100 * found.punctuation_share,
            "sentences": found.attempts.total(), "right_branching": found.attempts[3], "left_out": found.n_left_out,
            **({} if found.n_not_positive is None else {"not_positive": found.n_not_positive})}


def print_unlabelled(scores: pd.DataFrame) -> None:
    conventions = list(scores["convention"].unique())
    print("unlabelled F1 in percent, sentence / corpus")
    for name in conventions:
        print(f"  {CONVENTIONS[name]}")
    print(f"{'':<26}" + "".join(f"{name:>16}" for name in conventions))
    for name in scores["parser"].unique():
        rows = scores[scores["parser"] == name].itertuples()
        print(f"{name:<26}" + "".join(f"{f'{row.sentence_f1:.2f} / {row.corpus_f1:.2f}':>16}" for row in rows))


def print_labelled(scores: pd.DataFrame, punctuation: str) -> None:
    print("labelled scores in percent, evalb's way: TOP not counted, ADVP = PRT, without punctuation "
          + ("(tags , : `` '' .)" if punctuation == EVALB else f"(by the rule {punctuation})"))
    print(f"{'':<26}" + "".join(f"{'F1' if name == 'f1' else name:>12}" for name in LABELLED))
    for row in scores.to_dict("records"):
        print(f"{row['decode'].replace('_', ' '):<26}" + "".join(f"{row[name]:>12.2f}" for name in LABELLED))


def print_written(folder: Path, names: Sequence[str]) -> None:
    paths = [f"{folder / name}.trees" for name in names]
    print(f"written: {', '.join(paths)}; compare with `evalb -p COLLINS.prm {paths[0]} {paths[1]}`")
