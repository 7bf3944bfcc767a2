"""What may be asked of a tree word by word: its spans, its open constituents, and how they change with each word.

All three follow from the spans, so an expected tree has them as well as a real one.  Word t is the word before
fencepost t; a constituent has two words or more; the whole sentence is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.leaves import Sentence, word_ids
from pcfg_artifact.parsing.prefix.left_to_right import Prefix

SURE = 0.95  # a span is settled when its posterior is this much or more


@dataclass(frozen=True)
class TreeFacts:
    """Of a sentence of L words; numbers in a tree, expectations where the tree is not known.

    spans (L+1, L+1): whether (i, j) is a span.  n_open (L,): constituents that hold word t and word t + 1, by t - 1;
    none after the last word.  relative_depth (L,): constituents that begin with word t less those that end with it,
    which is what n_open changes by; the paper's are these, one less at the first word, without the last.
    """

    spans: np.ndarray
    n_open: np.ndarray
    relative_depth: np.ndarray


def facts_of_tree(spans: Iterable[tuple[int, int]], length: int) -> TreeFacts:
    """Of a known tree."""
    found = np.zeros((length + 1, length + 1))
    for i, j in spans:
        found[i, j] = 1.0
    return facts_of_spans(found)


def facts_of_spans(spans: np.ndarray) -> TreeFacts:
    """spans (L+1, L+1): the probability of every span, by one distribution over whole trees."""
    constituents = np.triu(spans, 2)
    relative_depth = constituents.sum(axis=1)[:-1] - constituents.sum(axis=0)[1:]
    return TreeFacts(spans, np.cumsum(relative_depth), relative_depth)


@dataclass(frozen=True)
class IncrementalFacts:
    """What exact inference knows of a sentence's tree, as it is read.

    now: spans[i, j], n_open and relative_depth of word t given the words up to j, up to t.  whole: given the sentence.
    later (K+1, L+1, L+1): spans[i, j] given the words up to j + k, for k = 0 .. K; given the end too where j + k > L.
    """

    now: TreeFacts
    whole: TreeFacts
    later: np.ndarray


def facts_so_far(grammar: PCFG, sentence: Sentence) -> TreeFacts:
    """Expectations at each word given the words up to it: the best that a reader from left to right can do."""
    return _read(grammar, word_ids(grammar, sentence))[0]


def incremental_facts(grammar: PCFG, sentence: Sentence, delays: int) -> IncrementalFacts:
    """The same, what is known `delays` words later at most, and what the whole sentence says."""
    now, prefix = _read(grammar, word_ids(grammar, sentence))
    whole = prefix.posteriors(has_ended=True).spans
    later = np.repeat(whole[None], delays + 1, axis=0)
    later[0] = now.spans
    for t in range(1, prefix.length + 1) if delays else ():
        spans = prefix.posteriors(t).spans
        for k in range(1, min(delays, t - 1) + 1):
            later[k, :, t - k] = 0.0
            later[k, :t + 1, t - k] = spans[:, t - k]
    return IncrementalFacts(now, facts_of_spans(whole), later)


def _read(grammar: PCFG, ids: np.ndarray) -> tuple[TreeFacts, Prefix]:
    prefix = Prefix(grammar, longest=max(len(ids), 1))
    spans = np.zeros((len(ids) + 1, len(ids) + 1))
    n_open, relative_depth = np.zeros(len(ids)), np.zeros(len(ids))
    for t, w in enumerate(ids, start=1):
        prefix.extend(int(w))
        spans[:t, t] = prefix.ending_spans()
        n_open[t - 1] = prefix.n_open
        relative_depth[t - 1] = prefix.n_begun() - spans[:t - 1, t].sum()
    return TreeFacts(spans, n_open, relative_depth), prefix


# ---- how soon spans are settled --------------------------------------------------------------------------------------


class Settling(NamedTuple):
    """Of constituents; n of them in the trees, in n_words words.

    probability: mean posterior of those in the trees.  share: of those in the trees, settled.  bits: uncertainty
    whether each span is in the tree, summed over all spans, per word.
    """

    probability: float
    share: float
    bits: float
    n: int
    n_words: int


def settling(trees: Sequence[TreeFacts], facts: Sequence[IncrementalFacts]) -> Iterator[Settling]:
    """At the end of each span, 1, 2, ... words later, and last at the end of the sentence: all spans every time.

    No span is chosen by what comes after it, so that more evidence never loses in expectation.
    """
    delays = len(facts[0].later) - 1
    chosen = [np.triu(np.ones(fact.now.spans.shape, bool), 2) for fact in facts]
    truth = np.concatenate([tree.spans[mask] for tree, mask in zip(trees, chosen, strict=True)]) > 0
    n_words = sum(len(fact.now.n_open) for fact in facts)
    for when in range(delays + 2):
        posterior = np.concatenate([(fact.whole.spans if when > delays else fact.later[when])[mask]
                                    for fact, mask in zip(facts, chosen, strict=True)])
        yield Settling(float(posterior[truth].mean()), float((posterior[truth] >= SURE).mean()),
                       float(_binary_entropy(posterior).sum() / n_words), int(truth.sum()), n_words)


def _binary_entropy(p: np.ndarray) -> np.ndarray:
    p = np.clip(p, 0.0, 1.0)
    sides = np.stack([p, 1.0 - p])
    return -(sides * np.log2(np.where(sides > 0, sides, 1.0))).sum(axis=0)
