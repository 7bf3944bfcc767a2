"""Raw trees to the trees a grammar is read from; every kind of change is counted.

What happens to a tree, in this order at each node, children first:
- leaves and nodes that hold no words (`ID`, `CODE`), traces (`-NONE-`, and in historical corpora other empty words)
  and nodes left without words are removed;
- where leaves hold lemmas, they are cut off;
- a leaf of several tokens is one word, its tokens joined by `_`: the annotators gave it one tag;
- of a label with alternatives (`ADVP|PRT`) the first is taken; function tags and indices (`NP-SBJ-1`, `NP=2`) are cut;
  bracket tags such as `-LRB-` and labels of punctuation alone, such as `--`, are kept whole;
- `+ | ^ < >` that are still in a label are spelled out (`_PLUS_`), because binarisation uses them as marks of its own;
- a node whose only child has its label (X -> X) is replaced by that child;
- an outer bracket without a label, or labelled TOP, ROOT or S1, is dropped.  With several children it is kept, as TOP
  if it has no label, since the sentence would otherwise fall apart.
A tree in which nothing is left is None.

Penn-style historical corpora (files `.psd`: IcePaHC, FarPaHC, the Penn Parsed Corpora of Historical English) write a
reference `(ID 1150.TEXT.NAR-REL,.1)` beside each sentence, page marks and notes as `(CODE <P_3>)`, empty categories
under any label, `(NP-SBJ *con*)` or `(C 0)`, and some of them every word with its lemma, `(N-N maður-maður)`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pcfg_artifact.errors import UsageError
from pcfg_artifact.treebank.tree import Tree

AUTO, PLAIN, WORD_LEMMA = "auto", "plain", "word-lemma"
LEAF_FORMATS = (AUTO, PLAIN, WORD_LEMMA)
REFERENCE = "ID"
NON_WORDS = frozenset((REFERENCE, "CODE", "METADATA"))  # labels of leaves, and of whole nodes, that hold no words
LEAST_SHARE = 0.5  # of leaves with a lemma: some words have none, but where lemmas are written most have one
_LEMMA = re.compile(r"([^ ]+)-([^ ]+)")  # greedy: the lemma is what follows the last hyphen
_EMPTY = re.compile(r"\*([^*\s]+\*)?(-\d+)?|0")  # *con*, *T*-1, *, 0
TRACE = "-NONE-"
OUTER_LABELS = frozenset({"", "TOP", "ROOT", "S1"})
BRACKET_TAG = re.compile(r"-[^-]+-")
MARKS = {"+": "_PLUS_", "|": "_BAR_", "^": "_HAT_", "<": "_LT_", ">": "_GT_"}


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


class Cleaner:
    """Cleans trees one after another; `counts` says how often each kind of change was made."""

    def __init__(self) -> None:
        self.counts = Counter(dict.fromkeys(COUNTED, 0))
        self._labels: dict[str, tuple[str, str | None]] = {}
        self._leaves = Leaves()

    def clean(self, tree: Tree, leaves: Leaves | None = None) -> Tree | None:
        """The cleaned tree, or None when no word is left; leaves: how its document writes words (plain)."""
        self._leaves = leaves or Leaves()
        cleaned = tree.rebuilt(lambda node, children: self._leaf(node) if node.is_preterminal
                               else self._inner(node.label, children))
        if cleaned is not None:
            cleaned = self._without_outer_bracket(cleaned)
        self.counts["empty_trees"] += cleaned is None
        return cleaned

    def _leaf(self, leaf: Tree) -> Tree | None:
        if leaf.label == TRACE:
            self.counts["traces"] += 1
            return None
        if leaf.label in NON_WORDS:
            self.counts["non_words"] += 1
            return None
        word = leaf.word or ""
        if self._leaves.is_empty(word):
            self.counts["traces"] += 1
            return None
        if (without := self._leaves.word_of(word)) != word:
            self.counts["lemmas"] += 1
            word = without
        label = self._label(leaf.label)
        if " " in word:
            self.counts["joined_leaves"] += 1
            word = word.replace(" ", "_")
        return leaf if label == leaf.label and word == leaf.word else Tree(label, (), word)

    def _inner(self, label: str, children: Sequence[Tree]) -> Tree | None:
        if not children:
            self.counts["emptied_nodes"] += 1
            return None
        if label in NON_WORDS:
            self.counts["non_words"] += 1
            return None
        label = self._label(label)
        if len(children) == 1 and children[0].label == label:
            self.counts["same_label_unaries"] += 1
            return children[0]
        return Tree(label, tuple(children))

    def _without_outer_bracket(self, tree: Tree) -> Tree:
        while tree.label in OUTER_LABELS and len(tree.children) == 1:
            self.counts["outer_brackets"] += 1
            tree = tree.children[0]
        if tree.label == "":
            self.counts["outer_brackets_kept"] += 1
            tree = Tree("TOP", tree.children)
        return tree

    def _label(self, label: str) -> str:
        known = self._labels.get(label)
        if known is None:
            known = self._labels[label] = clean_label(label)
        clean, change = known
        if change is not None:
            self.counts[change] += 1
        return clean


def clean_label(label: str) -> tuple[str, str | None]:
    """The cleaned label and the name of the change made to it, if any."""
    clean, change = label, None
    if not BRACKET_TAG.fullmatch(label) and any(c.isalnum() or c in MARKS for c in label):
        # The first character stays: a label that begins with a mark is odd, but it is not an empty label.
        clean = label[0] + re.split(r"[-=|]", label[1:], maxsplit=1)[0]
        if clean != label:
            change = "alternative_labels" if "|" in label[1:] else "function_tags"
    safe = "".join(MARKS.get(c, c) for c in clean)
    return (clean, change) if safe == clean else (safe, "escaped_labels")


# Always listed; `non_words`, `lemmas` and `renamed_tags` are listed only where there are any.
COUNTED = (
    "traces", "emptied_nodes", "joined_leaves", "function_tags", "alternative_labels", "escaped_labels",
    "same_label_unaries", "outer_brackets", "outer_brackets_kept", "empty_trees",
)


# ---- ambiguous tags --------------------------------------------------------------------------------------------------
# In Chomsky normal form no symbol is both an in-terminal and a pre-terminal.  In a treebank a word may have no tag of
# its own, as in `(NP she)` beside `(NP (DT the) (NN cat))`.  Its label is renamed, here to NP_TAG, so that no span, no
# word and no tree is lost.

SUFFIX = "_TAG"


class Renamed(NamedTuple):
    """How many words had the ambiguous tag `label`, and the first of them."""

    label: str
    n_words: int
    document: str
    tree: int  # counted from 1 in the document, trees left out not counted
    word: str

    def __str__(self) -> str:
        return (f"{self.n_words:,} words tagged {self.label}, which heads phrases too, are tagged {self.label}{SUFFIX} "
                f"(first: {self.word!r} in tree {self.tree:,} of {self.document})")


def rename_ambiguous_tags(documents: Mapping[str, Sequence[Tree]]) -> tuple[dict[str, Sequence[Tree]], list[Renamed]]:
    """The same trees with every tag renamed that, after unary chains are collapsed, heads phrases too."""
    cleaned: dict[str, Sequence[Tree]] = dict(documents)
    renamed: list[Renamed] = []
    while tags := _ambiguous_tags(cleaned):  # again, where the new name is a phrase's too
        found: dict[str, Renamed] = {}
        for name, trees in cleaned.items():
            for number, tree in enumerate(trees, start=1):
                for leaf in tree.preterminals():
                    if leaf.label in tags:
                        first = found.get(leaf.label) or Renamed(leaf.label, 0, name, number, leaf.word or "")
                        found[leaf.label] = first._replace(n_words=first.n_words + 1)
        renaming = partial(_with_renamed_tag, tags)
        cleaned = {name: [tree.rebuilt(renaming) for tree in trees] for name, trees in cleaned.items()}
        renamed += found.values()
    return cleaned, renamed


def _ambiguous_tags(documents: Mapping[str, Sequence[Tree]]) -> set[str]:
    trees = [tree for some in documents.values() for tree in some]
    over_words: set[str] = set()
    over_phrases: set[str] = set()
    for tree in trees:
        for node in tree.preorder():
            if len(node.children) != 1:
                (over_phrases if node.children else over_words).add(node.label)
    if over_words.isdisjoint(over_phrases):
        return set()
    chains = [_chains(trees, over_words=over) for over in (True, False)]
    return {chain[-1] for chain in chains[0] & chains[1]}


def _chains(trees: Iterable[Tree], *, over_words: bool) -> set[tuple[str, ...]]:
    """Labels of the unary chains that end over a word (or over several children); each chain becomes one symbol."""
    found: set[tuple[str, ...]] = set()
    for tree in trees:
        tops = [tree]
        while tops:
            node = tops.pop()
            chain = [node.label]
            while len(node.children) == 1:
                node = node.children[0]
                chain.append(node.label)
            if node.is_preterminal == over_words:
                found.add(tuple(chain))
            tops.extend(node.children)
    return found


def _with_renamed_tag(tags: set[str], node: Tree, children: Sequence[Tree]) -> Tree:
    return Tree(node.label + SUFFIX if node.is_preterminal and node.label in tags else node.label, tuple(children),
                node.word)
