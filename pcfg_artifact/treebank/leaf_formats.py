"""What stands at the leaves of a treebank: words, words with their lemmas, and marks that are no words.

Penn-style historical corpora (files `.psd`: IcePaHC, FarPaHC, the Penn Parsed Corpora of Historical English) write a
reference `(ID 1150.TEXT.NAR-REL,.1)` beside each sentence, page marks and notes as `(CODE <P_3>)`, empty categories
under any label, `(NP-SBJ *con*)` or `(C 0)`, and some of them every word with its lemma, `(N-N maður-maður)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pcfg_artifact.errors import UsageError
from pcfg_artifact.treebank.tree import Tree

AUTO, PLAIN, WORD_LEMMA = "auto", "plain", "word-lemma"
LEAF_FORMATS = (AUTO, PLAIN, WORD_LEMMA)
REFERENCE = "ID"
NON_WORDS = frozenset((REFERENCE, "CODE", "METADATA"))  # labels of leaves, and of whole nodes, that hold no words
LEAST_SHARE = 0.5  # of leaves with a lemma: some words have none, but where lemmas are written most have one
_LEMMA = re.compile(r"([^ ]+)-([^ ]+)")  # greedy: the lemma is what follows the last hyphen
_EMPTY = re.compile(r"\*([^*\s]+\*)?(-\d+)?|0")  # *con*, *T*-1, *, 0


@dataclass(frozen=True)
class Leaves:
    """How the leaves of one document are read; a Penn Treebank's are plain, and none of its words is empty."""

    has_lemmas: bool = False
    has_empty_words: bool = False

    def is_empty(self, word: str) -> bool:
        return self.has_empty_words and _EMPTY.fullmatch(word) is not None

    def word_of(self, leaf: str) -> str:
        """The word of a leaf; one without a lemma is its word, and of several tokens each may have its own."""
        if not self.has_lemmas:
            return leaf
        return " ".join(match[1] if (match := _LEMMA.fullmatch(token)) else token for token in leaf.split(" "))


def leaves_of(trees: Iterable[Tree], leaf_format: str = AUTO) -> Leaves:
    """How to read the leaves of a document.

    References mark a historical corpus; its leaves hold lemmas if most of them have one, or if `leaf_format` says so.
    """
    if leaf_format not in LEAF_FORMATS:
        raise UsageError(f"leaf format {leaf_format!r} is unknown; expected one of {', '.join(LEAF_FORMATS)}")
    has_references, n_words, n_lemmas = False, 0, 0
    for tree in trees:
        for leaf in tree.preterminals():
            if leaf.label in NON_WORDS:
                has_references |= leaf.label == REFERENCE
            elif leaf.word is not None and not _EMPTY.fullmatch(leaf.word):
                n_words += 1
                n_lemmas += _LEMMA.fullmatch(leaf.word) is not None
    is_detected = has_references and n_lemmas > LEAST_SHARE * n_words
    return Leaves(leaf_format == WORD_LEMMA or (leaf_format == AUTO and is_detected), has_references)
