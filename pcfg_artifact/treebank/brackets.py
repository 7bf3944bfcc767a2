"""Bracketed text to raw trees: an iterative scanner that says where and why a text is not a sequence of trees.

Between brackets any white space separates, so a tree may span lines or share one.  The raw tree keeps what the text
says: function tags, traces, a label-less outer bracket, and a leaf of several tokens as one word with spaces in it
(`cleaning.py` decides about each of them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from pcfg_artifact.errors import TreebankError
from pcfg_artifact.treebank.tree import Tree

# Deeper than any real tree (CRAFT: 29), and shallow enough that comparing or hashing two trees, which Python does by
# recursion, stays within its default recursion limit.
MAX_DEPTH = 200

# Possessive quantifiers (`++`): no backtracking, so every text is scanned in linear time.
TOKEN = re.compile(
    r"\(\s*+([^\s()]++)\s++([^\s()]++)\s*+\)"  # 1, 2: a whole leaf, label and word
    r"|\(\s*+([^\s()]*+)"  # 3: an opening bracket and its label, perhaps empty
    r"|(\))"  # 4: a closing bracket
    r"|([^\s()]++)"  # 5: a word that is not alone in a leaf
)
LEAF, OPEN, CLOSE = 2, 3, 4  # values of `lastindex`


class BadTree(NamedTuple):
    """Something that is not a tree: where it was found, and what is wrong with it."""

    document: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.document}, line {self.line}: {self.reason}"


class _Broken(Exception):
    def __init__(self, position: int, reason: str):
        super().__init__(reason)
        self.position, self.reason = position, reason


class _Unusable(_Broken):
    """Nothing in the text can be a tree."""


class _Surplus(_Broken):
    """A closing bracket too many: one of those before it may be the wrong one, so what they closed is not trusted."""


def parse_trees(text: str, document: str, *, skip_bad_trees: bool = False) -> tuple[list[Tree], list[BadTree]]:
    """All trees of a text, and (only with `skip_bad_trees`; otherwise the first is an error) what is not a tree.

    After something broken, a tree is taken to start wherever a line opens a bracket at the same indentation as the
    first tree of the text; a text without anything broken is read the same way with and without `skip_bad_trees`.
    """
    try:
        _check_text(text)
        return list(_scan(text, 0, len(text))), []
    except _Broken as broken:
        bad = BadTree(document, text.count("\n", 0, broken.position) + 1, broken.reason)
        if not skip_bad_trees:
            raise TreebankError(f"{bad}; correct the file, or leave such trees out with --skip-bad-trees") from None
        return ([], [bad]) if isinstance(broken, _Unusable) else _parse_chunks(text, document)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise _Unusable(text.index("\0"), "a NUL character: this is a binary file, not a text of trees")
    if "(" not in text:
        raise _Unusable(0, "the text holds no tree" if text.strip() else "the text is empty")


def _parse_chunks(text: str, document: str) -> tuple[list[Tree], list[BadTree]]:
    trees: list[Tree] = []
    bad: list[BadTree] = []
    line = 1  # where the chunk begins
    for start, stop in _chunks(text):
        n_before = len(trees)
        try:
            for tree in _scan(text, start, stop):
                trees.append(tree)
        except _Broken as broken:
            bad.append(BadTree(document, line + text.count("\n", start, broken.position), broken.reason))
            if isinstance(broken, _Surplus):
                del trees[n_before:]
        line += text.count("\n", start, stop)
    return trees, bad


def _chunks(text: str) -> Iterator[tuple[int, int]]:
    """Pieces of the text that each begin where a tree plausibly begins."""
    first = text.index("(")
    indent = text[text.rfind("\n", 0, first) + 1 : first]
    indent = indent if not indent.strip() else ""
    starts = [match.start() for match in re.finditer(rf"^{re.escape(indent)}\(", text, re.MULTILINE)]
    bounds = sorted({0, *starts, len(text)})
    yield from pairwise(bounds)


def _scan(text: str, start: int, stop: int) -> Iterator[Tree]:
    """The trees of text[start:stop], each as soon as its last bracket closes."""
    stack: list[tuple[str, list[Tree | str], int]] = []  # label, children so far, position of the opening bracket
    has_loose_words = False
    leaves: dict[tuple[str | None, ...], Tree] = {}  # equal leaves are one object: less memory, less time
    for match in TOKEN.finditer(text, start, stop):
        kind = match.lastindex
        if kind == LEAF:
            key = match.group(1, 2)
            node = leaves.get(key)
            if node is None:
                node = leaves[key] = Tree(key[0], (), key[1])
        elif kind == OPEN:
            if not match[3] and stack:
                raise _Broken(match.start(), "a bracket without a label inside a tree")
            if len(stack) == MAX_DEPTH:
                raise _Broken(stack[0][2], f"a tree deeper than {MAX_DEPTH} brackets")
            stack.append((match[3], [], match.start()))
            continue
        elif kind == CLOSE:
            if not stack:
                raise _Surplus(match.start(), "a closing bracket that no opening one belongs to")
            label, children, position = stack.pop()
            if not children:
                what = f"a node {label!r} without a word or children" if label else "an empty pair of brackets"
                raise _Broken(position, what)
            if has_loose_words and any(isinstance(child, str) for child in children):
                node = _leaf_of_tokens(label, children, position)
            else:
                node = Tree(label, tuple(children))
        else:
            if not stack:
                raise _Broken(match.start(), f"the word {match[5]!r} outside any tree")
            stack[-1][1].append(match[5])
            has_loose_words = True
            continue
        if stack:
            stack[-1][1].append(node)
        else:
            yield node
    if stack:
        raise _Broken(stack[0][2], f"a tree that begins here is never closed ({len(stack)} closing brackets missing)")


def _leaf_of_tokens(label: str, children: list[Tree | str], position: int) -> Tree:
    words = [child for child in children if isinstance(child, str)]
    if len(words) < len(children):
        raise _Broken(position, f"the word {words[0]!r} beside other children of {label!r}, without a tag of its own")
    return Tree(label, (), " ".join(words))
