"""The sentences of a probing experiment: words as the model reads them, gold trees, and exact span scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pcfg_artifact.probing.targets import Span, relative_depths, span_targets
from pcfg_artifact.treebank.binarise import binarise
from pcfg_artifact.treebank.brackets import parse_trees
from pcfg_artifact.treebank.tree import Tree


@dataclass(frozen=True)
class Corpus:
    """n sentences.  trees: gold, with treebank labels.  scores: (L+1, L+1) s(i, j) = max_A mu(A, i, j), or None where
    the grammar gives no probability.  parses: spans of the exact parser's tree.
    """

    sentences: Sequence[Sequence[str]]
    trees: Sequence[Tree]
    scores: Sequence[np.ndarray | None]
    parses: Sequence[Sequence[Span]]

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(words) for words in self.sentences], dtype=np.int64)

    def subset(self, chosen: Sequence[int] | np.ndarray) -> Corpus:
        return Corpus([self.sentences[s] for s in chosen], [self.trees[s] for s in chosen],
                      [self.scores[s] for s in chosen], [self.parses[s] for s in chosen])

    @cached_property
    def binary_depths(self) -> np.ndarray:
        """Relative depths of the binarised trees: every word but the last of each sentence, one after another."""
        return np.concatenate([np.zeros(0, np.int64), *(relative_depths(binarise(tree)) for tree in self.trees)])

    @cached_property
    def nary_depths(self) -> np.ndarray:
        """The same of the treebank's own trees."""
        return np.concatenate([np.zeros(0, np.int64), *map(relative_depths, self.trees)])

    def span_targets(self, width: int) -> np.ndarray:
        """Normalised scores of every span of this width, by sentence and start; NaN where a sentence has no scores."""
        found = [np.full(max(len(words) - width + 1, 0), np.nan) if scores is None else span_targets(scores, width)
                 for words, scores in zip(self.sentences, self.scores, strict=True)]
        return np.concatenate([np.zeros(0), *found])

    # Trees travel to worker processes as text: pickling follows the nesting, and a long sentence is too deep for it.
    def __getstate__(self) -> dict[str, Any]:
        parts = {"sentences": self.sentences, "scores": self.scores, "parses": self.parses}
        return parts | {"trees": "\n".join(map(str, self.trees))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        trees = parse_trees(state["trees"], "a probing corpus")[0] if state["trees"] else []
        for name, value in (state | {"trees": trees}).items():
            object.__setattr__(self, name, value)


class Layer(NamedTuple):
    """A corpus as one layer of a model sees it: the layer's rows (representations.py) for BOS, words and EOS."""

    corpus: Corpus
    states: np.ndarray


def unseen(test: Sequence[Sequence[str]], *training: Sequence[Sequence[str]]) -> np.ndarray:
    """Indices of the test sentences that occur in none of the training sets."""
    seen = {tuple(words) for sentences in training for words in sentences}
    return np.array([s for s, words in enumerate(test) if tuple(words) not in seen], dtype=np.int64)
