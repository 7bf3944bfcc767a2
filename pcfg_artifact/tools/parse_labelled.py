"""Labelled scores of a grammar on a treebank, and the trees behind them as files for evalb."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.labelled import EVALB, evalb_line, labelled_f1, treebank_tree
from pcfg_artifact.parsing.punctuation import PENN
from pcfg_artifact.system import storage
from pcfg_artifact.system.progress import progress
from pcfg_artifact.tools.parse_trees import recall_trees, viterbi_trees
from pcfg_artifact.treebank.tree import Tree


def print_labelled(grammar: PCFG, gold: Sequence[Tree], punctuation: str, args: argparse.Namespace) -> None:
    """The table of labelled scores by both ways to choose a tree; --evalb writes the trees beside it."""
    sentences = [tree.words() for tree in gold]
    ways = {"labelled_recall": recall_trees(grammar, sentences, args, with_marginals=False),
            "viterbi": viterbi_trees(grammar, sentences, args, with_marginals=False)}
    found = {name: [treebank_tree(scored.tree) for scored in progress(trees, total=len(gold), desc=name)
                    if scored.tree is not None] for name, trees in ways.items()}
    rule = EVALB if punctuation == PENN else punctuation
    print("labelled scores in percent, evalb's way: TOP not counted, ADVP = PRT, without punctuation "
          + ("(tags , : `` '' .)" if rule == EVALB else f"(by the rule {rule})"))
    print(f"{'':<26}{'precision':>12}{'recall':>12}{'F1':>12}{'complete':>12}{'tagging':>12}")
    for name, trees in found.items():
        f1 = labelled_f1(gold, trees, rule)
        print(f"{name.replace('_', ' '):<26}{f1.precision:>12.2f}{f1.recall:>12.2f}{f1.f1:>12.2f}{f1.complete:>12.2f}"
              f"{f1.tagging:>12.2f}")
    if args.evalb is not None:
        write_evalb(args.evalb, {"gold": gold, **found})


def write_evalb(folder: Path, trees: dict[str, Sequence[Tree]]) -> None:
    """One file a set of trees, one tree a line, line n of each for sentence n."""
    for name, some in trees.items():
        storage.write_text(folder / f"{name}.trees", "".join(f"{evalb_line(tree)}\n" for tree in some))
    names = [f"{folder / name}.trees" for name in trees]
    print(f"written: {', '.join(names)}; compare with `evalb -p COLLINS.prm {names[0]} {names[1]}`")
