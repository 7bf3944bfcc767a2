"""What can be saved of a damaged text of trees: every tree that the damage does not touch, and a list of the rest.

Once brackets are missing, nobody can know where the next tree begins.  It is taken to begin where a line opens a
bracket at the indentation of the text's first tree; a chunk runs from one such line to the next.  A tree may run over
several chunks where the text is laid out that way: whether it is, most trees of the text decide.  In doubt a tree is
left out and listed, because a wrong tree is worse than a lost one.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from pcfg_artifact.treebank.scanner import Broken, ScannedTree, scan
from pcfg_artifact.treebank.tree import Tree

# NUL, or a byte that is not UTF-8 (as the error handler `surrogateescape` passes it on).
UNREADABLE = re.compile("[\0\udc80-\udcff]")
BRACKET = re.compile(r"[()]")
LABEL = re.compile(r"\(\s*+([^\s()]*+)")
LEAST_EVIDENCE = 3  # lines that begin as trees begin, before a text of balanced brackets is called wrong
LONE_CLOSING = re.compile(r"^[^\S\n]*\)[)\s]*?$", re.MULTILINE)


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


class Loss(NamedTuple):
    """A part of the text that is left out, and why (not the exception itself: it would keep its frames alive)."""

    position: int
    reason: str
    is_surplus: bool
    begin: int
    end: int

    @classmethod
    def of(cls, broken: Broken, begin: int, end: int) -> Loss:
        return cls(broken.position, broken.reason, broken.is_surplus, begin, end)


class Piece(NamedTuple):
    """What one chunk, or several joined, hold; is_balanced: every bracket has its partner within the piece."""

    found: list[ScannedTree]
    lost: list[Loss]
    is_balanced: bool


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


def recover(text: str, document: str) -> tuple[list[Tree], list[BadTree]]:
    """The trees of a text with at least one opening bracket that can be trusted, and all that is left out."""
    found, lost = _Recovery(text).run()
    newlines = [match.start() for match in re.finditer("\n", text)]
    bad = []
    for loss in lost:
        end = loss.begin + len(text[loss.begin:loss.end].rstrip())
        first, line, last = (bisect_left(newlines, position) + 1 for position in (loss.begin, loss.position, end - 1))
        bad.append(BadTree(document, line, loss.reason, min(first, line), max(last, line)))
    return [tree for tree, _, _ in found], bad


class _Recovery:
    """One damaged text, cut into chunks."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.unreadable = [match.start() for match in UNREADABLE.finditer(text)]
        starts = [text.rfind("\n", 0, start) + 1 for start in _tree_starts(text)]
        self.chunks = list(pairwise(sorted({0, *starts, len(text)})))
        self.ends = self._closing_chunks()
        self.joined: dict[int, Piece | None] = {}
        # Characters that are read a second time in search of trees over several chunks: where thousands of brackets
        # are missing, joining would take time that grows with the square of the text.
        self.patience = 50 * len(text)
        # Where trees close on a line of their own, such a line does not show that the tree before it was complete.
        self.closes_alone = 2 * len(LONE_CLOSING.findall(text)) > len(self.chunks)

    def run(self) -> tuple[list[ScannedTree], list[Loss]]:
        pieces = [self._read(start, stop) for start, stop in self.chunks]
        units: list[tuple[Piece, bool]] = []  # what is read by itself or joined, and which of the two
        joined: list[int] = []
        c = 0
        while c < len(pieces):
            whole = self._join(c)
            is_joined = whole is not None and whole.is_balanced and not whole.lost
            units.append((whole, True) if whole is not None and is_joined else (pieces[c], False))
            joined += [c] if is_joined else []
            c = self.ends[c] + 1 if is_joined else c + 1
        roots = _roots([piece for piece, _ in units])
        # Parts of one damaged tree may be many, but they are short and seldom labelled as whole trees are.
        label = _label_of_most_text([piece for piece, _ in units])
        n_single = sum(item.tree.label == label for piece, is_joined in units if not is_joined and not piece.lost
                       for item in piece.found)
        n_joined = sum(self._begins_with(c, label) and not self._looks_swallowed(c, roots) for c in joined)
        choose = self._choose_loose if n_joined and n_joined >= n_single else self._choose
        return choose(pieces, roots)

    def _choose(self, pieces: list[Piece], roots: set[str]) -> tuple[list[ScannedTree], list[Loss]]:
        """What is kept and lost where a tree is a chunk as a rule; roots: labels of such trees."""
        found: list[ScannedTree] = []
        lost: list[Loss] = []
        c = 0
        while c < len(pieces):
            piece, last = pieces[c], c
            whole = self._join(c)
            if whole is not None and whole.is_balanced and not self._looks_swallowed(c, roots):
                piece, last = whole, self.ends[c]
            found += piece.found
            lost += piece.lost
            c = last + 1
        return found, lost

    def _choose_loose(self, pieces: list[Piece], roots: set[str]) -> tuple[list[ScannedTree], list[Loss]]:
        """The same where trees run over chunks as a rule; after damage only such trees, labelled as others are."""
        found: list[ScannedTree] = []
        lost: list[Loss] = []
        n_before, c = 0, 0  # trees found before the last unit
        is_after_damage = False
        while c < len(pieces):
            whole = self._join(c)
            piece, last = (pieces[c], c) if whole is None else (whole, self.ends[c])
            is_part = is_after_damage and piece.found and (whole is None or piece.found[0].tree.label not in roots)
            if is_part:  # of the damaged tree
                lost[-1] = lost[-1]._replace(end=self.chunks[last][1])
            if whole is None and piece.lost and piece.lost[0].is_surplus and n_before < len(found):
                # The tree before it may have been closed too early.
                lost.append(piece.lost[0]._replace(begin=found[n_before].begin))
                del found[n_before:]
            else:
                lost += piece.lost
            n_before = len(found)
            if not is_part:
                found += piece.found
                if piece.found or piece.lost:
                    is_after_damage = bool(piece.lost)
            c = last + 1
        return found, lost

    def _begins_with(self, c: int, label: str | None) -> bool:
        """Whether the trees that begin in chunk c, and run over others, begin with one of this label."""
        whole = self._join(c)
        return whole is not None and bool(whole.found) and whole.found[0].tree.label == label

    def _looks_swallowed(self, c: int, roots: set[str]) -> bool:
        below = [self.text.find("(", *self.chunks[d]) for d in range(c + 1, self.ends[c] + 1)]
        return _begin_trees(self.text, below, roots)

    def _join(self, c: int) -> Piece | None:
        """The chunks from c to the one that closes its brackets, if it needs others and there is such a one."""
        if c not in self.joined:
            start, stop = self.chunks[c][0], self.chunks[self.ends[c]][1]
            self.patience -= stop - start
            self.joined[c] = self._read(start, stop) if self.ends[c] > c and self.patience > 0 else None
        return self.joined[c]

    def _closing_chunks(self) -> list[int]:
        """For every chunk, the first one at whose end no more brackets are open than before it; itself: none is."""
        depths = list(accumulate((self.text.count("(", *chunk) - self.text.count(")", *chunk) for chunk in self.chunks),
                                 initial=0))
        ends = list(range(len(self.chunks)))
        waiting: list[int] = []
        for c in range(len(self.chunks)):
            waiting.append(c)
            while waiting and depths[c + 1] <= depths[waiting[-1]]:
                ends[waiting.pop()] = c
        return ends

    def _read(self, start: int, stop: int) -> Piece:
        """What text[start:stop] holds by itself; a tree that is wrong inside its brackets costs that tree alone."""
        piece, position = Piece([], [], True), start
        while True:
            try:
                for item in scan(self.text, position, stop):
                    at = _within(self.unreadable, item.begin, item.end)
                    if at:
                        piece.lost.append(Loss(at[0], unreadable(self.text[at[0]]), False, item.begin, item.end))
                    else:
                        piece.found.append(item)
                return piece
            except Broken as broken:
                end = None if broken.begin is None else _closing(self.text, broken.begin, stop)
                if broken.begin is not None and end is not None:
                    piece.lost.append(Loss.of(broken, broken.begin, end))
                    position = end
                    continue
                if broken.is_surplus:
                    return self._without_surplus(piece, broken, start, stop)
                begin = broken.position if broken.begin is None else broken.begin
                if UNREADABLE.match(self.text, begin):
                    broken = Broken(begin, unreadable(self.text[begin]))
                piece.lost.append(Loss.of(broken, begin, stop))
                n_open = self.text.count("(", begin, stop) - self.text.count(")", begin, stop)
                return piece._replace(is_balanced=broken.begin is None and n_open == 0)

    def _without_surplus(self, piece: Piece, broken: Broken, start: int, stop: int) -> Piece:
        """A closing bracket too many: one of those before it may be the wrong one, so what they closed is not trusted.

        Trusted are trees before one that is known to be wrong, and those of a line that ended before the bracket.
        """
        found, lost = piece.found, piece.lost
        if lost:
            found = [item for item in found if item.end <= lost[-1].begin]
            lost = [*lost[:-1], lost[-1]._replace(end=stop)]
        elif found and not self.closes_alone and "\n" in self.text[found[-1].end:broken.position] \
                and "\n" not in self.text[found[0].begin:found[-1].begin]:
            lost = [Loss.of(broken, broken.position, stop)]
        else:
            lost = [Loss.of(broken, found[0].begin if found else broken.position, stop)]
            found = []
        return Piece(found, lost, False)


def _label_of_most_text(pieces: list[Piece]) -> str | None:
    """The label whose trees, in pieces without damage, cover most of the text; None where there is no such piece."""
    covered: Counter[str] = Counter()
    for piece in pieces:
        if not piece.lost:
            for item in piece.found:
                covered[item.tree.label] += item.end - item.begin
    return covered.most_common(1)[0][0] if covered else None


def _roots(pieces: list[Piece]) -> set[str]:
    """Labels of whole trees: the most frequent one, and those that do not follow damage, whose parts may look whole."""
    labels = Counter(piece.found[0].tree.label for piece in pieces if piece.found and not piece.lost)
    roots = {label for label, _ in labels.most_common(1)}
    is_after_damage = False
    for piece in pieces:
        if piece.lost:
            is_after_damage = True
        elif piece.found and (not is_after_damage or piece.found[0].tree.label in roots):
            is_after_damage = False
            roots.update(item.tree.label for item in piece.found)
    return roots


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


def _closing(text: str, begin: int, stop: int) -> int | None:
    """Where the bracket at `begin` is closed again (the position after it); None: nowhere before `stop`."""
    depth = 0
    for match in BRACKET.finditer(text, begin, stop):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.end()
    return None
