"""Raw trees to the trees a grammar is read from; every kind of change is counted.

What happens to a tree, in this order at each node, children first:
- leaves and nodes that hold no words (`ID`, `CODE`), traces (`-NONE-`, and in historical corpora other empty words)
  and nodes left without words are removed;
- where leaves hold lemmas, they are cut off (`leaf_formats.py` says which documents have what);
- a leaf of several tokens is one word, its tokens joined by `_`: the annotators gave it one tag;
- of a label with alternatives (`ADVP|PRT`) the first is taken; function tags and indices (`NP-SBJ-1`, `NP=2`) are cut;
  bracket tags such as `-LRB-` and labels of punctuation alone, such as `--`, are kept whole;
- `+ | ^ < >` that are still in a label are spelled out (`_PLUS_`), because binarisation uses them as marks of its own;
- a node whose only child has its label (X -> X) is replaced by that child;
- an outer bracket without a label, or labelled TOP, ROOT or S1, is dropped.  With several children it is kept, as TOP
  if it has no label, since the sentence would otherwise fall apart.
A tree in which nothing is left is None.
"""

from __future__ import annotations

import re
from collections import Counter

from pcfg_artifact.treebank.leaf_formats import NON_WORDS, Leaves
from pcfg_artifact.treebank.tree import Tree

TRACE = "-NONE-"
OUTER_LABELS = frozenset({"", "TOP", "ROOT", "S1"})
BRACKET_TAG = re.compile(r"-[^-]+-")
MARKS = {"+": "_PLUS_", "|": "_BAR_", "^": "_HAT_", "<": "_LT_", ">": "_GT_"}


class Cleaner:
    """Cleans trees one after another; `counts` says how often each kind of change was made."""

    def __init__(self) -> None:
        self.counts = Counter(dict.fromkeys(COUNTED, 0))
        self._labels: dict[str, tuple[str, str | None]] = {}
        self._leaves = Leaves()

    def clean(self, tree: Tree, leaves: Leaves | None = None) -> Tree | None:
        """The cleaned tree, or None when no word is left; leaves: how its document writes words (plain)."""
        self._leaves = leaves or Leaves()
        # In reversed preorder the children of a node are done just before it, the leftmost last.
        done: list[Tree | None] = []
        for node in reversed(list(tree.preorder())):
            if node.word is not None:
                done.append(self._leaf(node))
                continue
            children = []
            for _ in node.children:
                child = done.pop()
                if child is not None:
                    children.append(child)
            done.append(self._inner(node.label, children))
        cleaned = done.pop()
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
        if self._leaves.has_lemmas and (without := self._leaves.word_of(word)) != word:
            self.counts["lemmas"] += 1
            word = without
        label = self._label(leaf.label)
        if " " in word:
            self.counts["joined_leaves"] += 1
            word = word.replace(" ", "_")
        return leaf if label == leaf.label and word == leaf.word else Tree(label, (), word)

    def _inner(self, label: str, children: list[Tree]) -> Tree | None:
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
