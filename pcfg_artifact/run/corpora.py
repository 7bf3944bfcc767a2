"""The corpora of the probing stages, read from the folders of earlier stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pcfg_artifact.errors import StageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import cell_bounds
from pcfg_artifact.probing.corpus import Corpus, unseen
from pcfg_artifact.probing.settings import TEXTS, Text
from pcfg_artifact.probing.targets import Span
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.treebank.binarise import unbinarise
from pcfg_artifact.treebank.tree import Tree


def read_corpora(inputs: Inputs, max_length: int, n_train: int,
                 n_test: int) -> tuple[dict[str, Corpus], dict[str, dict[str, int]]]:
    """The four corpora (two where there is no treebank), and by corpus and reason how many sentences were left out.

    Sentences of more than `max_length` words, and those that `marginals` left out, are passed over; then the first
    n_train and n_test are taken.  Test sentences that a probe may have seen in training are left out of those.
    """
    grammar = inputs.pcfg()
    corpora: dict[str, Corpus] = {}
    left_out: dict[str, dict[str, int]] = {}
    texts = texts_of(inputs)
    for text in texts:
        limit = n_train if text.is_training else n_test
        scores, parses = (inputs["marginals"].ragged(f"{text.split}/{what}", memory_map=True)
                          for what in ("span_scores", "spans"))
        trees: Iterable[Tree] = inputs.trees(text.split) if not text.is_sampled \
            else map(unbinarise, inputs.sampled_trees(text.split))
        corpora[text.name], n_long = _take(trees, scores, parses, grammar, max_length, limit)
        left_out[text.name] = {"seen_in_training": 0, "too_long": n_long}
    training = [corpora[text.name].sentences for text in texts if text.is_training]
    for name in (text.name for text in texts if not text.is_training):
        kept = unseen(corpora[name].sentences, *training)
        if not len(kept) and not inputs.has_treebank:  # a language so small that every sentence is known
            continue
        left_out[name]["seen_in_training"] = len(corpora[name]) - len(kept)
        corpora[name] = corpora[name].subset(kept)
    for name, corpus in corpora.items():
        if not len(corpus):
            raise StageError(f"no sentence is left in {name!r} (up to {max_length} words, not in the probe's training "
                             f"set); raise probe.max_length or sample more sentences")
    return corpora, left_out


def texts_of(inputs: Inputs) -> list[Text]:
    return [text for text in TEXTS if text.is_sampled or inputs.has_treebank]


def unscored_corpus(grammar: PCFG, trees: Sequence[Tree]) -> Corpus:
    """Sentences whose trees are probed for, without span scores."""
    return Corpus([grammar.as_read(tree.words()) for tree in trees], trees, [None] * len(trees), [()] * len(trees))


def _take(trees: Iterable[Tree], scores: Ragged, parses: Ragged, grammar: PCFG, max_length: int, limit: int
          ) -> tuple[Corpus, int]:
    """The first `limit` sentences that are short enough and parsed, and how many before them were too long."""
    n_long = 0
    sentences: list[list[str]] = []
    kept: list[Tree] = []
    squares: list[np.ndarray | None] = []
    parsed: list[list[Span]] = []
    for s, tree in enumerate(trees):
        if len(kept) == limit:
            break
        words = tree.words()
        n_long += len(words) > max_length
        if len(words) <= max_length and len(spans := parses.row(s)):  # empty: exact inference left it out
            sentences.append(grammar.as_read(words))
            kept.append(tree)
            squares.append(_square(scores, s, len(words)))
            parsed.append([(int(i), int(j)) for i, j in spans.reshape(-1, 2)])
    return Corpus(sentences, kept, squares, parsed), n_long


def _square(scores: Ragged, s: int, length: int) -> np.ndarray | None:
    """Span scores of one sentence as (L+1, L+1); None where the grammar gives it no probability."""
    if not len(row := scores.row(s)):
        return None
    square = np.zeros((length + 1, length + 1), np.float32)
    square[cell_bounds(length)] = row
    return square if square.max() > 0 else None
