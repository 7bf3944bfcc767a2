"""The constituency tree that everything reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Tree:
    """A node: either a pre-terminal with a `word`, or an inner node with one or more `children`.

    A word that stands beside symbols in a rule of a grammar is a pre-terminal whose label is empty: written bare.
    """

    label: str
    children: tuple[Tree, ...] = ()
    word: str | None = None

    @property
    def is_preterminal(self) -> bool:
        return self.word is not None

    def preorder(self) -> Iterator[Tree]:
        """All nodes, each before its children, left to right; an explicit stack, so depth does not matter."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def rebuilt(self, make: Callable[[Tree, Sequence[Tree]], Made]) -> Made:
        """make(node, what its children became) of every node, from the words up; None leaves a node out."""
        done: list[Made] = []
        for node in reversed(list(self.preorder())):  # children come just before their parent, the leftmost last
            children = [done.pop() for _ in node.children]
            done.append(make(node, [child for child in children if child is not None]))
        return done[0]

    def preterminals(self) -> list[Tree]:
        return [node for node in self.preorder() if node.is_preterminal]

    def words(self) -> list[str]:
        return [node.word for node in self.preorder() if node.word is not None]

    def tags(self) -> list[str]:
        return [node.label for node in self.preterminals()]

    def labelled_spans(self) -> list[tuple[str, int, int]]:
        """(label, i, j) of every node, half-open fenceposts, children before parents."""
        spans: list[tuple[str, int, int]] = []
        position = 0
        # A node is entered once to note its start, and left once its children are done.
        stack: list[tuple[Tree, int | None]] = [(self, None)]
        while stack:
            node, start = stack.pop()
            if start is not None:
                spans.append((node.label, start, position))
            elif node.is_preterminal:
                position += 1
                spans.append((node.label, position - 1, position))
            else:
                stack.append((node, position))
                stack.extend((child, None) for child in reversed(node.children))
        return spans

    def spans(self) -> list[tuple[int, int]]:
        """(i, j) of every node, half-open; unary chains repeat their span."""
        return [(i, j) for _, i, j in self.labelled_spans()]

    def __str__(self) -> str:
        """One line of brackets: `(S (NP (PRP she)) (VP (VBZ runs)))`; brackets inside a word are -LRB- and -RRB-."""
        parts: list[str] = []
        stack: list[Tree | str] = [self]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                parts.append(item)
            elif item.is_preterminal:
                word = _token(item.word or "")
                parts.append(f" ({_token(item.label)} {word})" if item.label else f" {word}")
            else:
                parts.append(f" ({_token(item.label)}")
                stack.append(")")
                stack.extend(reversed(item.children))
        return "".join(parts).lstrip()


Made = TypeVar("Made", Tree, Tree | None)


def _token(text: str) -> str:
    if "(" in text or ")" in text:  # as the Penn Treebank writes them, so that every reader can read the tree
        return text.replace("(", "-LRB-").replace(")", "-RRB-")
    return text


def bracketed(words: list[str], spans: list[tuple[int, int]]) -> str:
    """The tree without labels as text; parents come before their children in `spans`."""
    opens = [sum(j - i > 1 for i, j in spans if i == t) for t in range(len(words))]
    closes = [sum(j - i > 1 for i, j in spans if j == t + 1) for t in range(len(words))]
    return " ".join("(" * a + word + ")" * b for word, a, b in zip(words, opens, closes, strict=True))
