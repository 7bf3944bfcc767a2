"""Bracketed text to raw trees, one after another; the first thing that is no tree ends it, with where and why.

Iterative, so that depth does not matter.  Between brackets any white space separates, so a tree may span lines or share
one.  The raw tree keeps what the text says: function tags, traces, a label-less outer bracket, and a leaf of several
tokens as one word with spaces in it (`cleaning.py` decides about each of them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

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


class ScannedTree(NamedTuple):
    """A tree and the part of the text that it was read from."""

    tree: Tree
    begin: int
    end: int


class Broken(Exception):
    """Why a text is not a sequence of trees; `begin`: the tree in which it was found, None outside any tree."""

    def __init__(self, position: int, reason: str, begin: int | None = None, *, is_surplus: bool = False):
        super().__init__(reason)
        self.position, self.reason, self.begin = position, reason, begin
        self.is_surplus = is_surplus  # a closing bracket too many: one of those before it may be the wrong one


def scan(text: str, start: int, stop: int) -> Iterator[ScannedTree]:
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
            position = match.start()
        elif kind == OPEN:
            if not match[3] and stack:
                raise Broken(match.start(), "a bracket without a label inside a tree", stack[0][2])
            if len(stack) == MAX_DEPTH:
                raise Broken(stack[0][2], f"a tree deeper than {MAX_DEPTH} brackets", stack[0][2])
            stack.append((match[3], [], match.start()))
            continue
        elif kind == CLOSE:
            if not stack:
                raise Broken(match.start(), "a closing bracket that no opening one belongs to", is_surplus=True)
            label, children, position = stack.pop()
            begin = stack[0][2] if stack else position
            if not children:
                what = f"a node {label!r} without a word or children" if label else "an empty pair of brackets"
                raise Broken(position, what, begin)
            if has_loose_words and any(isinstance(child, str) for child in children):
                node = _leaf_of_tokens(label, children, position, begin)
            else:
                node = Tree(label, tuple(children))  # type: ignore[arg-type] # no word among them
        else:
            if not stack:
                raise Broken(match.start(), f"the word {match[5]!r} outside any tree")
            stack[-1][1].append(match[5])
            has_loose_words = True
            continue
        if stack:
            stack[-1][1].append(node)
        else:
            yield ScannedTree(node, position, match.end())
    if stack:
        raise Broken(stack[0][2], f"a tree that begins here is never closed ({len(stack)} closing brackets missing)",
                     stack[0][2])


def _leaf_of_tokens(label: str, children: list[Tree | str], position: int, begin: int) -> Tree:
    words = [child for child in children if isinstance(child, str)]
    if len(words) < len(children):
        raise Broken(position, f"the word {words[0]!r} beside other children of {label!r}, without a tag of its own",
                     begin)
    return Tree(label, (), " ".join(words))
