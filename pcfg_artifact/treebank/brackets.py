"""A bracketed text to its raw trees, or to an error that says where and why it is not a sequence of trees.

Scanning is iterative, so that depth does not matter.  Between brackets any white space separates, so a tree may span
lines or share one.  The raw tree keeps what the text says: function tags, traces, an outer bracket without a label, and
a leaf of several tokens as one word with spaces in it (`cleaning.py` decides about each of them).

After damage, reading starts again at the next line that opens a tree, and what is left out is listed.  In doubt a tree
is left out, because a wrong tree is worse than a lost one.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
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
# NUL, or a byte that is not UTF-8 (as the error handler `surrogateescape` passes it on).
UNREADABLE = re.compile("[\0\udc80-\udcff]")
LABEL = re.compile(r"\(\s*+([^\s()]*+)")


class BadTree(NamedTuple):
    """Something that is not a tree: where it was found, what is wrong with it, and the lines left out because of it."""

    document: str
    line: int
    reason: str
    first_line: int
    last_line: int

    def __str__(self) -> str:
        text = f"{self.document}, line {self.line}: {self.reason}"
        is_one_line = self.first_line == self.line == self.last_line
        return text if is_one_line else f"{text} (lines {self.first_line} to {self.last_line})"


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


def parse_trees(text: str, document: str, *, skip_bad_trees: bool = False) -> tuple[list[Tree], list[BadTree]]:
    """All trees of a text, and (only with `skip_bad_trees`; otherwise the first is an error) what is not a tree.

    A text without damage is read the same way with and without `skip_bad_trees`.
    """
    if "\r" in text:  # line ends of other systems: brackets do not mind, but lines are counted
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        if (match := UNREADABLE.search(text)) is not None:
            raise Broken(match.start(), _unreadable(match[0]))
        if "(" not in text:
            raise Broken(0, "the text holds no tree" if text.strip() else "the text is empty")
        found = list(_scan(text, 0, len(text)))
        _refuse_swallowed(text, found)
        return [tree for tree, _, _ in found], []
    except Broken as broken:
        line = text.count("\n", 0, broken.position) + 1
        bad = BadTree(document, line, broken.reason, line, line)
        if not skip_bad_trees:
            raise TreebankError(f"{bad}; correct the file, or leave such trees out with --skip-bad-trees") from None
        if "(" not in text:
            return [], [bad._replace(first_line=1, last_line=text.rstrip("\n").count("\n") + 1)]
    return _recover(text, document)


def _refuse_swallowed(text: str, found: Sequence[ScannedTree]) -> None:
    """Refuse a tree that runs over lines which open other trees.

    If one tree lacks a closing bracket and a later one has one too many, they and all between them parse as one tree.
    """
    starts = [start for start, _ in _parts(text)]
    roots = {item.tree.label for item in found}
    for item in found:
        inner = starts[bisect_right(starts, item.begin):bisect_left(starts, item.end)]
        labels = [_first_label(text, start, item.end) for start in inner]
        # Most of them, since a damaged label may be among them; and in a text of two or three lines nothing is clear.
        if 3 * sum(label in roots for label in labels) > 2 * len(labels) and len(found) + len(inner) > 3:
            line = text.count("\n", 0, inner[0]) + 1
            raise Broken(item.begin, f"a tree that begins here runs over line {line}, where the layout begins another "
                                     f"one: a closing bracket is missing", item.begin)


def _recover(text: str, document: str) -> tuple[list[Tree], list[BadTree]]:
    """The trees of a damaged text that can be trusted, and all that is left out."""
    newlines = [match.start() for match in re.finditer("\n", text)]
    trees: list[Tree] = []
    bad: list[BadTree] = []

    def lose(begin: int, end: int, position: int, reason: str) -> None:
        end = begin + len(text[begin:end].rstrip())
        first, line, last = (bisect_left(newlines, place) + 1 for place in (begin, position, end - 1))
        bad.append(BadTree(document, line, reason, min(first, line), max(last, line)))

    for start, stop in _parts(text):
        found: list[ScannedTree] = []
        try:
            for item in _scan(text, start, stop):
                if (match := UNREADABLE.search(text, item.begin, item.end)) is None:
                    found.append(item)
                else:
                    lose(item.begin, item.end, match.start(), _unreadable(match[0]))
        except Broken as broken:
            begin, reason = broken.position if broken.begin is None else broken.begin, broken.reason
            if broken.is_surplus and (untrusted := _closed_too_early(text, found, broken.position)):
                begin = untrusted[0].begin
                del found[-len(untrusted):]
            elif match := UNREADABLE.match(text, begin):
                reason = _unreadable(match[0])
            lose(begin, stop, broken.position, reason)
        trees += [item.tree for item in found]
    return trees, bad


def _parts(text: str) -> list[tuple[int, int]]:
    """Begin and end of the parts of a text that hold whole trees: from one line that opens a tree to the next.

    Such a line opens a bracket at the indentation of the first tree, or further left.  Where trees run over such lines
    as a rule, nothing shows where the next one begins, and the only part is the text.  This is so if more parts open
    and close each other's brackets than there are whole ones with the label of a tree: one damaged tree has both kinds.
    """
    first = text.find("(")
    before = text[text.rfind("\n", 0, first) + 1:first]
    width = len(before) if not before.strip() else 0
    starts = [match.start() for match in re.finditer(rf"^[^\S\n]{{0,{width}}}\(", text, re.MULTILINE)]
    parts = list(pairwise(sorted({0, *starts, len(text)})))
    missing = [text.count("(", *part) - text.count(")", *part) for part in parts]
    labels = [_first_label(text, *part) for part in parts]
    n_across = min(sum(n > 0 for n in missing), sum(n < 0 for n in missing))
    roots = {labels[0], *(label for label, n in zip(labels, missing, strict=True) if n > 0)}
    whole = Counter(label for label, n in zip(labels, missing, strict=True) if n == 0 and label in roots)
    return parts if n_across <= max([1, *whole.values()]) else [(0, len(text))]


def _first_label(text: str, begin: int, end: int) -> str:
    match = LABEL.search(text, begin, end)
    return match[1] if match else ""


def _scan(text: str, start: int, stop: int) -> Iterator[ScannedTree]:
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


def _closed_too_early(text: str, found: Sequence[ScannedTree], position: int) -> Sequence[ScannedTree]:
    """The trees before a closing bracket too many that may be parts of one: one of their brackets may be the wrong one.

    They begin with the last tree labelled as the first is.  One tree that ended on a line before is whole.
    """
    if len(found) == 1 and "\n" in text[found[0].end:position]:
        return []
    last = max((n for n, item in enumerate(found) if item.tree.label == found[0].tree.label), default=0)
    return found[last:]


def _unreadable(character: str) -> str:
    """What is wrong with a character that matches UNREADABLE."""
    if character == "\0":
        return "a NUL character: this is a binary file, not a text of trees"
    return f"byte 0x{ord(character) - 0xdc00:02x} is not UTF-8 text"
