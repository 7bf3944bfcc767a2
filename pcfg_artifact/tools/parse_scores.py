"""Scores of a grammar on a treebank for `parse --treebank`: unlabelled F1 beside trivial trees, and labelled scores."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.latent import LatentPCFG
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.decoding import BASELINES, Parse, Span, labelled_recall, parses
from pcfg_artifact.parsing.latent_engine import LatentChart, latent_parses
from pcfg_artifact.parsing.scoring import (
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
from pcfg_artifact.tools.arguments import json_rows, load_treebank
from pcfg_artifact.tools.parse_trees import engine_options, recall_trees, retried, viterbi_trees
from pcfg_artifact.treebank.splits import split
from pcfg_artifact.treebank.tree import Tree

LABELLED = ("precision", "recall", "f1", "complete", "tagging")


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


# ---- computed --------------------------------------------------------------------------------------------------------


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


# ---- printed ---------------------------------------------------------------------------------------------------------


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
