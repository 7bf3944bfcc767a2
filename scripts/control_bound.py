"""What a probe can reach on the control task of marginals, as the paper defines it: a random value per pair of words.

Prints, per span length, the test correlation of the best additive function of the two words (which is what a linear
probe of uncontextualised embeddings computes: f(first word) + g(last word), where the label of a pair is drawn
independently of both) and of memory, which no linear probe has: it repeats the label of every pair that training held.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import lsqr
from sklearn.preprocessing import OneHotEncoder

from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.probing.control_tasks import pair_labels
from pcfg_artifact.probing.probe_scores import pearson
from pcfg_artifact.system.progress import progress
from pcfg_artifact.tools.arguments import add_treebank_arguments, load_treebank
from pcfg_artifact.treebank.splits import split

EXAMPLE = "python -m scripts.control_bound --treebank craft_penn.zip"
PENALTIES = (0.0, 0.3, 1.0, 3.0, 10.0)  # ridge; the best on the test spans is taken, so that this is an upper bound


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


class Reach(NamedTuple):
    """Pearson correlations on the test spans of one width, and the share of them whose pair training held."""

    width: int
    additive: float
    memory: float
    share_seen: float
    n_test: int


def control_reach(train: Sequence[Sequence[str]], test: Sequence[Sequence[str]], width: int, seed: int) -> Reach:
    """Fitted on all training spans of this width, measured on the test spans."""
    pairs, labels = _pairs(train, width), pair_labels(train, width, seed)
    test_pairs, test_labels = _pairs(test, width), pair_labels(test, width, seed)
    encoder = OneHotEncoder(handle_unknown="ignore")  # two ones a row; a word that training did not hold has none
    design = encoder.fit_transform(np.array(pairs, object))
    test_design = encoder.transform(np.array(test_pairs, object))
    mean = float(labels.mean())
    fits = (lsqr(design, labels - mean, damp=penalty)[0] for penalty in PENALTIES)
    additive = max(correlation(test_design @ weights, test_labels) for weights in fits)
    known = dict(zip(pairs, labels, strict=True))
    memory = np.array([known.get(pair, mean) for pair in test_pairs])
    seen = sum(pair in known for pair in test_pairs) / len(test_pairs)
    return Reach(width, additive, correlation(memory, test_labels), seen, len(test_pairs))


def correlation(answers: np.ndarray, labels: np.ndarray) -> float:
    """Pearson's; 0 of answers that are all the same."""
    return float(np.nan_to_num(pearson(labels, answers)))


def _pairs(sentences: Sequence[Sequence[str]], width: int) -> list[tuple[str, str]]:
    return [(words[i], words[i + width - 1]) for words in sentences for i in range(len(words) - width + 1)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"example: {EXAMPLE}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    sys.exit(run(parser.parse_args()))
