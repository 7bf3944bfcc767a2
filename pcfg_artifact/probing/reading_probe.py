"""What a model knows of the tree at each word, while it reads: linear probes on the state of that word alone.

A question has a number at every word: whether a span of some width ended there, how many constituents are open, how
that number changed.  A probe's score is the share of the variance that it explains, so that of the exact expectation,
given the words up to there, is the most that a reader from left to right can have, whatever it computes.

A question may also have a vector at every word: what may come next, as exact inference believes it.  Its score is the
share of the variance of all its numbers together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LinearRegression

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.parsing.prefix.tree_facts import TreeFacts
from pcfg_artifact.probing.standardisation import Standardisation


@dataclass(frozen=True)
class WordQuestion:
    """What is asked at every word, as dimensions of a metric; index: words since the span of this width ended."""

    group: str
    width: int | None = None
    index: int | None = None


OF_TREE, OF_POSTERIOR, OF_BELIEF = "tree", "posterior", "belief"  # settings: what a probe is fitted to and scored on
OPEN, RELATIVE_DEPTH = WordQuestion("open constituents"), WordQuestion("relative depth")
NEXT_CONSTITUENTS, NEXT_TAG, NEXT_WORD = (WordQuestion(group) for group in ("next constituents", "next tag",
                                                                          "next word"))
# (n,) one number for each word of each sentence, or (n, m) some; NaN: not asked there.
Questions = dict[WordQuestion, np.ndarray]


def questions_of(facts: Sequence[TreeFacts], widths: Sequence[int]) -> Questions:
    """Everything that is asked at a word about what lies up to it."""
    return {**late_questions([[fact.spans for fact in facts]], widths, first=0),
            OPEN: np.concatenate([fact.n_open for fact in facts]),
            RELATIVE_DEPTH: np.concatenate([fact.relative_depth for fact in facts])}


def belief_questions(grammar: PCFG, beliefs: Sequence[np.ndarray]) -> Questions:
    """What may come after each word: constituents that begin, the pre-terminal of the next word, the next word.

    beliefs: for each sentence (L, N) the forward vector after every word.  The end is one more tag and one more word.
    """
    forward = np.concatenate(beliefs).astype(np.float32)
    constituents, tags = np.split(forward, [grammar.n_interminals], axis=1)
    end = 1.0 - tags.sum(axis=1, keepdims=True)
    return {NEXT_CONSTITUENTS: constituents, NEXT_TAG: np.hstack([tags, end]),
            NEXT_WORD: np.hstack([tags @ word_coordinates(grammar), end])}


def word_coordinates(grammar: PCFG) -> np.ndarray:
    """(P, r <= P) M with M M' = E E', where E holds the words of every pre-terminal, (P, V).

    Next-word distributions are tags @ E.  Least squares of tags @ E are those of tags, times E; so tags @ M stands for
    them: any two have the same distance, and the share that is explained is that of all words of the vocabulary.
    """
    head, word = grammar.lexical.T
    words = csr_matrix((grammar.lexical_prob, (head - grammar.n_interminals, word)),
                       shape=(grammar.n_preterminals, grammar.n_words)).toarray()
    words /= np.maximum(words.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    squares, vectors = np.linalg.eigh(words @ words.T)
    kept = squares > squares.max() * np.finfo(np.float64).eps * len(squares)
    found: np.ndarray = (vectors[:, kept] * np.sqrt(squares[kept])).astype(np.float32)
    return found


def late_questions(spans: Sequence[Sequence[np.ndarray]], widths: Sequence[int], first: int = 1) -> Questions:
    """What is asked at a word about a span that ended k = first, ... words before it; spans[k - first]: by sentence."""
    return {WordQuestion("span end", width, k): spans_at_words(some, width, k)
            for k, some in enumerate(spans, start=first) for width in widths}


def spans_at_words(spans: Sequence[np.ndarray], width: int, delay: int) -> np.ndarray:
    """(n,) at word t the number of the span of this width that ends `delay` words before; spans: (L+1, L+1) each."""
    found = []
    for one in spans:
        at_words = np.full(len(one) - 1, np.nan)
        asked = np.diagonal(one, offset=width)[:len(one) - width - delay]  # by start
        at_words[width + delay - 1:] = asked
        found.append(at_words)
    return np.concatenate(found)


def probe_words(x: np.ndarray, targets: Questions, x_test: np.ndarray) -> Questions:
    """Answers at the test words by least squares on all questions at once; where one is not asked, it is no.

    x (n, D), x_test (m, D): the state of each word.
    """
    standardise = Standardisation.of(x)
    columns = np.column_stack([np.nan_to_num(values, nan=0.0) for values in targets.values()]).astype(np.float32)
    fitted = LinearRegression().fit(standardise(x), columns)
    ends = np.cumsum([1 if values.ndim == 1 else values.shape[1] for values in targets.values()])
    answers = np.split(fitted.predict(standardise(x_test)), ends[:-1], axis=1)
    return {question: answer[:, 0] if values.ndim == 1 else answer
            for (question, values), answer in zip(targets.items(), answers, strict=True)}


def explained(targets: np.ndarray, answers: np.ndarray, **dimensions: Any) -> Metric:
    """Share of the variance of the targets that the answers explain; NaN: of no target, or of constant ones."""
    is_asked = ~np.isnan(targets).reshape(len(targets), -1).any(axis=1)
    truth, answers = targets[is_asked].astype(np.float64), answers[is_asked].astype(np.float64)
    variance = np.square(truth - truth.mean(axis=0)).sum() if len(truth) else 0.0
    share = 1.0 - np.square(truth - answers).sum() / variance if variance > 0 else np.nan
    return Metric(table="incremental", metric="explained", value=float(share), n=len(truth), unit="fraction",
                  **dimensions)
