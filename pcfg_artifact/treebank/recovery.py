"""What can be saved of a damaged text of trees: reading starts anew at the next line that opens a tree.

Such a line opens a bracket at the indentation of the text's first tree.  Where trees run over such lines as a rule,
nothing shows where the next one begins: the rest of the text is left out.  What is left out is listed; in doubt a tree
is left out, because a wrong tree is worse than a lost one.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pcfg_artifact.treebank.scanner import Broken, ScannedTree, scan
from pcfg_artifact.treebank.tree import Tree

# NUL, or a byte that is not UTF-8 (as the error handler `surrogateescape` passes it on).
UNREADABLE = re.compile("[\0\udc80-\udcff]")
LABEL = re.compile(r"\(\s*+([^\s()]*+)")
LEAST_EVIDENCE = 3  # lines that begin as trees begin, before a text of balanced brackets is called wrong


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


def unreadable(character: str) -> str:
    """What is wrong with a character that matches UNREADABLE."""
    if character == "\0":
        return "a NUL character: this is a binary file, not a text of trees"
    return f"byte 0x{ord(character) - 0xdc00:02x} is not UTF-8 text"


def first_swallowed(text: str, found: Sequence[ScannedTree]) -> Broken | None:
    """Why the brackets of a text are wrong although they balance; None where nothing says so.

    A closing bracket missing in one tree and one too many in a later one make one tree of all between them.  It shows
    where most trees end before the next line that opens a bracket at their indentation, and this one runs over lines
    that open brackets with labels of whole trees.
    """
    begins = {begin for _, begin, _ in found}
    inner = [start for start in _tree_starts(text) if start not in begins]
    if not inner:
        return None
    over = [(item, starts) for item in found if (starts := _within(inner, item.begin, item.end))]
    roots = {item.tree.label for item in found}
    suspects = [(item, starts) for item, starts in over if _begin_trees(text, starts, roots)]
    n_single, n_over = len(found) - len(over), len(over) - len(suspects)
    if not suspects or (n_over and n_over >= n_single):
        return None
    item, starts = suspects[0]
    if n_single + len(starts) < LEAST_EVIDENCE:
        return None
    line = text.count("\n", 0, starts[0]) + 1
    return Broken(item.begin, f"a tree that begins here runs over line {line}, where the layout begins another one: a "
                              f"closing bracket is missing", item.begin)


def recover(text: str, document: str, *, is_swallowed: bool) -> tuple[list[Tree], list[BadTree]]:
    """The trees of a damaged text that can be trusted, and all that is left out.

    is_swallowed: `first_swallowed` found the damage, and with it that a tree begins at every line that looks so.
    """
    newlines = [match.start() for match in re.finditer("\n", text)]
    starts = [text.rfind("\n", 0, start) + 1 for start in _tree_starts(text)]
    chunks = list(pairwise(sorted({0, *starts, len(text)})))
    if not is_swallowed and _run_over_lines(text, chunks):
        chunks = [(0, len(text))]
    trees: list[Tree] = []
    bad: list[BadTree] = []

    def lose(begin: int, end: int, position: int, reason: str) -> None:
        end = begin + len(text[begin:end].rstrip())
        first, line, last = (bisect_left(newlines, place) + 1 for place in (begin, position, end - 1))
        bad.append(BadTree(document, line, reason, min(first, line), max(last, line)))

    for start, stop in chunks:
        found: list[ScannedTree] = []
        try:
            for item in scan(text, start, stop):
                if (match := UNREADABLE.search(text, item.begin, item.end)) is None:
                    found.append(item)
                else:
                    lose(item.begin, item.end, match.start(), unreadable(match[0]))
        except Broken as broken:
            begin, reason = broken.position if broken.begin is None else broken.begin, broken.reason
            if broken.is_surplus and (untrusted := _closed_too_early(text, found, broken.position)):
                begin = untrusted[0].begin
                del found[-len(untrusted):]
            elif match := UNREADABLE.match(text, begin):
                reason = unreadable(match[0])
            lose(begin, stop, broken.position, reason)
        trees += [item.tree for item in found]
    return trees, bad


def _run_over_lines(text: str, chunks: Sequence[tuple[int, int]]) -> bool:
    """Whether trees run over lines that look as if they opened one: then chunks open and close each other's brackets.

    Single chunks do that where one tree lacks a bracket and another has one too many; as many are whole, then, with the
    label of one that opens more brackets than it closes.
    """
    depths = [text.count("(", *chunk) - text.count(")", *chunk) for chunk in chunks]
    labels = [match[1] if (match := LABEL.search(text, *chunk)) else "" for chunk in chunks]
    open_labels = {label for label, depth in zip(labels, depths, strict=True) if depth > 0}
    whole = Counter(label for label, depth in zip(labels, depths, strict=True) if depth == 0 and label in open_labels)
    n_across = min(sum(depth > 0 for depth in depths), sum(depth < 0 for depth in depths))
    return n_across > max([1, *whole.values()])


def _closed_too_early(text: str, found: Sequence[ScannedTree], position: int) -> Sequence[ScannedTree]:
    """The trees before a closing bracket too many that may be parts of one: one of their brackets may be the wrong one.

    They begin with the last tree labelled as the first is.  One tree that ended on a line before is whole.
    """
    if len(found) == 1 and "\n" in text[found[0].end:position]:
        return []
    last = max((n for n, item in enumerate(found) if item.tree.label == found[0].tree.label), default=0)
    return found[last:]


def _tree_starts(text: str) -> list[int]:
    """Positions of the brackets that open a line, indented no further than the first tree."""
    first = text.find("(")
    before = text[text.rfind("\n", 0, first) + 1:first]
    width = len(before) if not before.strip() else 0
    return [match.end() - 1 for match in re.finditer(rf"^[^\S\n]{{0,{width}}}\(", text, re.MULTILINE)]


def _begin_trees(text: str, starts: list[int], roots: set[str]) -> bool:
    """Whether most brackets at these positions have labels of whole trees; a damaged label may be among them."""
    labels = [match[1] for start in starts if (match := LABEL.match(text, start))]
    return 3 * sum(label in roots for label in labels) > 2 * len(labels)


def _within(positions: list[int], begin: int, end: int) -> list[int]:
    """The sorted `positions` in begin < position < end."""
    return positions[bisect_right(positions, begin):bisect_left(positions, end)]
