"""Unlabelled F1 under named conventions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pcfg_artifact.errors import UsageError
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.punctuation import PENN, WORD_TAGS, has_word_tags, is_punctuation
from pcfg_artifact.treebank.tree import Tree

__all__ = ["CONVENTIONS", "WORD_TAGS", "Convention", "SpanF1", "gold_spans", "span_f1"]

Span = tuple[int, int]

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
    stack: list[tuple[Tree, list[int] | None]] = [(tree, None)]
    ends: list[list[int]] = []  # of every open node: start, then the end of each finished child
    while stack:
        node, mark = stack.pop()
        if mark is not None:  # all children done: (c1 .. ck) for every k, the last k being the node itself
            start, *child_ends = ends.pop()
            spans.update((start, end) for end in (child_ends if binary else child_ends[-1:]))
        elif node.is_preterminal:
            position += 1
            spans.add((position - 1, position))
        else:
            ends.append([position])
            stack.append((node, ends[-1]))
            stack.extend((child, None) for child in reversed(node.children))
            continue
        if ends:
            ends[-1].append(position)
    return spans


def _kept_fenceposts(tree: Tree, convention: Convention, punctuation: str) -> list[int]:
    """The fencepost that each fencepost becomes once the dropped tokens are gone."""
    posts = [0]
    for leaf in tree.preterminals():
        is_kept = convention.keep_punctuation or not is_punctuation(leaf.label, leaf.word or "", punctuation)
        posts.append(posts[-1] + is_kept)
    return posts


def _counted(spans: Iterable[Span], posts: list[int], convention: Convention) -> set[Span]:
    shortest = 1 if convention.count_words else 2
    projected = {(posts[i], posts[j]) for i, j in spans}
    return {(i, j) for i, j in projected if j - i >= shortest
            and (convention.count_sentence_span or j - i < posts[-1])}


def _f1(true_positives: int, n_gold: int, n_predicted: int) -> float:
    total = n_gold + n_predicted
    return 200.0 * true_positives / total if total else float("nan")


def span_f1(gold_trees: Sequence[Tree], predicted_spans: Sequence[Iterable[Span]], convention: str = "PB",
            punctuation: str = PENN) -> SpanF1:
    """Unlabelled F1 of predicted spans (i, j) against trees with treebank labels (undo binarisation first).

    punctuation: the rule that says what a convention drops (punctuation.py).
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
        posts = _kept_fenceposts(tree, switches, punctuation)
        gold = _counted(gold_spans(tree, switches.binary_gold), posts, switches)
        predicted = _counted(spans, posts, switches)
        if gold and predicted:
            sentence_scores.append(_f1(len(gold & predicted), len(gold), len(predicted)))
        hits.update(j - i for i, j in gold & predicted)
        n_gold.update(j - i for i, j in gold)
        n_predicted.update(j - i for i, j in predicted)
    widths = sorted(n_gold.keys() | n_predicted.keys())
    return SpanF1(
        convention=switches,
        sentence=sum(sentence_scores) / len(sentence_scores) if sentence_scores else float("nan"),
        corpus=_f1(hits.total(), n_gold.total(), n_predicted.total()),
        n_sentences=len(sentence_scores), n_skipped=len(gold_trees) - len(sentence_scores),
        by_length={w: _f1(hits[w], n_gold[w], n_predicted[w]) for w in widths})
