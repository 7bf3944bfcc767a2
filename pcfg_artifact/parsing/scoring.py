"""Unlabelled F1 under named conventions, labelled scores as evalb computes them, and which tokens are punctuation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from pcfg_artifact.errors import UsageError
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.treebank.binarise import FACTORED, is_artificial, unbinarise
from pcfg_artifact.treebank.tree import Tree

Span = tuple[int, int]
Constituent = tuple[str, int, int]

# ---- which tokens are punctuation: by the tags of the Penn Treebank, or by the form of the word in others ------------

# Tags of words; by the rule `penn` every other tag is punctuation.
WORD_TAGS = frozenset((
    "CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNS", "NNP", "NNPS", "PDT", "POS",
    "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM", "TO", "UH", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "WDT", "WP",
    "WP$", "WRB", "AFX"))
DELETED_TAGS = frozenset((",", ":", "``", "''", ".", "-NONE-"))  # by the rule `evalb`
PENN, FORM, EVALB, AUTO = "penn", "form", "evalb", "auto"
RULES = {PENN: "every tag but the Penn Treebank's tags of words", FORM: "words without a letter or a digit"}
LARGEST_SHARE = 0.3  # of tokens dropped: twice what newspapers and scientific prose have
BRACKETS = frozenset(("-LRB-", "-RRB-", "-LCB-", "-RCB-", "-LSB-", "-RSB-"))


def is_punctuation(tag: str, word: str, rule: str = PENN) -> bool:
    if rule == PENN:
        return tag not in WORD_TAGS
    if rule == EVALB:
        return tag in DELETED_TAGS
    return word in BRACKETS or not any(character.isalnum() for character in word)


def has_word_tags(trees: Sequence[Tree]) -> bool:
    """Whether any word has one of the Penn Treebank's tags of words, so that other tags are telling."""
    return any(leaf.label in WORD_TAGS for tree in trees for leaf in tree.preterminals())


def dropped_tokens(tree: Tree, rule: str) -> list[bool]:
    """Of every token whether the rule calls it punctuation."""
    return [is_punctuation(leaf.label, leaf.word or "", rule) for leaf in tree.preterminals()]


def dropped_share(trees: Sequence[Tree], rule: str) -> float:
    """The share of tokens that the rule calls punctuation."""
    found = [is_dropped for tree in trees for is_dropped in dropped_tokens(tree, rule)]
    return sum(found) / len(found) if found else 0.0


def choose_rule(trees: Sequence[Tree], rule: str = AUTO) -> tuple[str, float]:
    """The rule for a treebank and the share of its tokens that it drops; one that drops too many is refused.

    auto: by Penn's tags where they are the treebank's, which shows in how many tokens they would drop.
    """
    tried = (PENN, FORM) if rule == AUTO else (rule,)
    for name in tried:
        share = dropped_share(trees, name)
        if share <= LARGEST_SHARE:
            return name, share
    advice = "--punctuation form, which looks at words" if name == PENN else "--conventions PB PN, which drop none"
    raise UsageError(f"punctuation by the rule {name!r} ({RULES[name]}) would drop {100 * share:.1f}% of the tokens, "
                     f"expected at most {100 * LARGEST_SHARE:.0f}%: a score would say little about the rest; "
                     f"use {advice}")


# ---- unlabelled F1 ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Convention:
    """The switches that must be known to read an F1; sentences with an empty side are left out of sentence F1."""

    name: str
    keep_punctuation: bool
    binary_gold: bool
    count_sentence_span: bool = False
    count_words: bool = False

    def __str__(self) -> str:
        return (f"{self.name}: punctuation {'kept' if self.keep_punctuation else 'dropped'}, "
                f"{'left-binarised' if self.binary_gold else 'n-ary'} gold, "
                f"width 1 {'counted' if self.count_words else 'not counted'}, "
                f"whole sentence {'counted' if self.count_sentence_span else 'not counted'}, empty skipped")


CONVENTIONS = {c.name: c for c in (
    Convention("PB", keep_punctuation=True, binary_gold=True),
    Convention("PBw", keep_punctuation=True, binary_gold=True, count_sentence_span=True),
    Convention("KIM", keep_punctuation=False, binary_gold=False),
    Convention("KIMw", keep_punctuation=False, binary_gold=False, count_sentence_span=True),
    Convention("PN", keep_punctuation=True, binary_gold=False),
)}


@dataclass(frozen=True)
class SpanF1:
    """F1 in percent under one convention, over n_sentences scored sentences.

    sentence: mean over sentences with spans on both sides; corpus: from summed counts;
    by_length: width of a span -> corpus F1 of the spans of that width.
    """

    convention: Convention
    sentence: float
    corpus: float
    n_sentences: int
    n_skipped: int
    by_length: dict[int, float] = field(default_factory=dict)

    def metrics(self, table: str, *, counts_skipped: bool = True, **dimensions: Any) -> list[Metric]:
        """Both numbers.

        n of sentence F1: the sentences with spans on both sides, over which it is a mean.  n of corpus F1: every
        sentence that was parsed, since all of them are in the summed counts.  Probes give the former for both
        (`counts_skipped=False`): they stand beside accuracies of the same sentences.
        """
        n_corpus = self.n_sentences + (self.n_skipped if counts_skipped else 0)
        return [Metric(table=table, convention=self.convention.name, metric=metric, value=value, n=n, unit="percent",
                       **dimensions)
                for metric, value, n in (("sentence_f1", self.sentence, self.n_sentences),
                                         ("corpus_f1", self.corpus, n_corpus))]


def gold_spans(tree: Tree, binary: bool) -> set[Span]:
    """Spans of a tree as a set; `binary` adds those that left-factored binarisation creates."""
    spans: set[Span] = set()
    position = 0
    stack: list[tuple[Tree, int | None, int]] = [(tree, None, 0)]  # a node, its start once entered, its parent's start
    while stack:
        node, start, parent_start = stack.pop()
        if node.is_preterminal:
            start, position = position, position + 1
        elif start is None:
            stack.append((node, position, parent_start))
            stack.extend((child, None, position) for child in reversed(node.children))
            continue
        spans.add((start, position))
        if binary:  # a node over the children of its parent up to this one
            spans.add((parent_start, position))
    return spans


def _fenceposts(dropped: Iterable[bool]) -> list[int]:
    """The fencepost that each fencepost becomes once the dropped tokens are gone."""
    return list(accumulate((not is_dropped for is_dropped in dropped), initial=0))


def _counted(spans: Iterable[Span], posts: list[int], convention: Convention) -> set[Span]:
    shortest = 1 if convention.count_words else 2
    projected = {(posts[i], posts[j]) for i, j in spans}
    return {(i, j) for i, j in projected if j - i >= shortest
            and (convention.count_sentence_span or j - i < posts[-1])}


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else float("nan")


def span_f1(gold_trees: Sequence[Tree], predicted_spans: Sequence[Iterable[Span]], convention: str = "PB",
            punctuation: str = PENN) -> SpanF1:
    """Unlabelled F1 of predicted spans (i, j) against trees with treebank labels (undo binarisation first).

    punctuation: the rule that says what a convention drops.
    """
    if convention not in CONVENTIONS:
        raise UsageError(f"convention {convention!r} is unknown; expected one of {', '.join(CONVENTIONS)}")
    if len(gold_trees) != len(predicted_spans):
        raise UsageError(f"{len(gold_trees)} gold trees but {len(predicted_spans)} predictions; they must be parallel")
    switches = CONVENTIONS[convention]
    if punctuation == PENN and not has_word_tags(gold_trees):  # of a grammar with other symbols: nothing is dropped
        switches = replace(switches, keep_punctuation=True)
    sentence_scores: list[float] = []
    hits, n_gold, n_predicted = (Counter[int]() for _ in range(3))
    for tree, spans in zip(gold_trees, predicted_spans, strict=True):
        posts = _fenceposts(is_dropped and not switches.keep_punctuation
                            for is_dropped in dropped_tokens(tree, punctuation))
        gold = _counted(gold_spans(tree, switches.binary_gold), posts, switches)
        predicted = _counted(spans, posts, switches)
        if gold and predicted:
            sentence_scores.append(_percent(2 * len(gold & predicted), len(gold) + len(predicted)))
        hits.update(j - i for i, j in gold & predicted)
        n_gold.update(j - i for i, j in gold)
        n_predicted.update(j - i for i, j in predicted)
    widths = sorted(n_gold.keys() | n_predicted.keys())
    return SpanF1(
        convention=switches,
        sentence=sum(sentence_scores) / len(sentence_scores) if sentence_scores else float("nan"),
        corpus=_percent(2 * hits.total(), n_gold.total() + n_predicted.total()),
        n_sentences=len(sentence_scores), n_skipped=len(gold_trees) - len(sentence_scores),
        by_length={w: _percent(2 * hits[w], n_gold[w] + n_predicted[w]) for w in widths})


# ---- labelled scores, with the parameters that evalb is usually run with (COLLINS.prm) -------------------------------
# A constituent is a label over the words i .. j-1; the tags of words are none.  TOP is not counted, punctuation is
# taken out of the sentence before spans are read, and ADVP and PRT are one label.  Constituents are counted as often as
# they occur, so that a unary chain X over X counts twice; one whose words are all punctuation is not counted.

TOP = "TOP"
NOT_COUNTED = frozenset((TOP, "S1", "ROOT", ""))
SAME_LABEL = {"PRT": "ADVP"}


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
    posts = _fenceposts(dropped)
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
        dropped = dropped_tokens(tree, punctuation)
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
