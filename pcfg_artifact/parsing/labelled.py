"""Labelled precision, recall and F1 of trees, with the parameters that evalb is usually run with (COLLINS.prm).

A constituent is a label over the words i .. j-1; the tags of words are none.  TOP is not counted, punctuation is taken
out of the sentence before spans are read, and ADVP and PRT are one label.  Constituents are counted as often as they
occur, so that a unary chain X over X counts twice; one whose words are all punctuation is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pcfg_artifact.errors import UsageError
from pcfg_artifact.parsing.punctuation import is_punctuation
from pcfg_artifact.treebank.binarise import FACTORED, is_artificial, unbinarise
from pcfg_artifact.treebank.tree import Tree

TOP = "TOP"
NOT_COUNTED = frozenset((TOP, "S1", "ROOT", ""))
SAME_LABEL = {"PRT": "ADVP"}
DELETED_TAGS = frozenset((",", ":", "``", "''", ".", "-NONE-"))
EVALB = "evalb"  # the rule of DELETED_TAGS; `form` and `penn` are those of punctuation.py

Constituent = tuple[str, int, int]


@dataclass(frozen=True)
class LabelledF1:
    """In percent, from counts summed over all sentences; complete: sentences whose constituents all agree."""

    precision: float
    recall: float
    f1: float
    complete: float
    tagging: float  # words, punctuation among them not counted, that have the right tag
    n_sentences: int


def constituents(tree: Tree, dropped: Sequence[bool]) -> Counter[Constituent]:
    """The counted constituents of a tree; dropped: for every token whether it is taken out of the sentence."""
    posts = [0]
    for is_dropped in dropped:
        posts.append(posts[-1] + (not is_dropped))
    tags = Counter((tag, i, i + 1) for i, tag in enumerate(tree.tags()))
    found: Counter[Constituent] = Counter()
    for (label, i, j), n in (Counter(tree.labelled_spans()) - tags).items():
        if label not in NOT_COUNTED and posts[i] < posts[j]:
            found[SAME_LABEL.get(label, label), posts[i], posts[j]] += n
    return found


def labelled_f1(gold: Sequence[Tree], predicted: Sequence[Tree], punctuation: str = EVALB) -> LabelledF1:
    """Labelled scores of predicted trees with treebank labels; what is punctuation, the gold tree decides."""
    if len(gold) != len(predicted):
        raise UsageError(f"{len(gold)} gold trees but {len(predicted)} predictions; they must be parallel")
    n_right = n_gold = n_predicted = n_complete = n_tags = n_words = 0
    for number, (tree, guess) in enumerate(zip(gold, predicted, strict=True), start=1):
        leaves, guessed = tree.preterminals(), guess.preterminals()
        if len(leaves) != len(guessed):
            raise UsageError(f"prediction {number:,} has {len(guessed)} words, its gold tree {len(leaves)}; they must "
                             f"be trees of the same sentence")
        dropped = [leaf.label in DELETED_TAGS if punctuation == EVALB
                   else is_punctuation(leaf.label, leaf.word or "", punctuation) for leaf in leaves]
        right, wrong = constituents(tree, dropped), constituents(guess, dropped)
        n_right += (right & wrong).total()
        n_gold += right.total()
        n_predicted += wrong.total()
        n_complete += right == wrong
        kept = [(a.label, b.label) for a, b, out in zip(leaves, guessed, dropped, strict=True) if not out]
        n_words += len(kept)
        n_tags += sum(a == b for a, b in kept)
    precision, recall = _percent(n_right, n_predicted), _percent(n_right, n_gold)
    return LabelledF1(precision, recall, _percent(2 * n_right, n_gold + n_predicted), _percent(n_complete, len(gold)),
                      _percent(n_tags, n_words), len(gold))


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else float("nan")


def treebank_tree(tree: Tree) -> Tree:
    """The tree with treebank labels of a binary tree with grammar labels, of Viterbi or of Labelled Recall.

    The labels of a Labelled-Recall tree may fit no rule, so that an artificial node can be at the root: it is its X.
    """
    plain = unbinarise(tree)
    if is_artificial(plain.label):
        plain = Tree(plain.label.split(FACTORED)[0], plain.children, plain.word)
    return plain


def evalb_line(tree: Tree) -> str:
    """The tree as evalb reads it: one line, with an outer TOP."""
    return str(tree if tree.label == TOP else Tree(TOP, (tree,)))
