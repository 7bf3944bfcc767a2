"""Ambiguous tags: labels that stand over a word in one tree and over a phrase in another.

In Chomsky normal form no symbol is both an in-terminal and a pre-terminal.  In a treebank a word may have no tag of its
own, as in `(NP she)` beside `(NP (DT the) (NN cat))`.  Its label is renamed, here to NP_TAG, so that no span, no word
and no tree is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pcfg_artifact.treebank.tree import Tree

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
        cleaned = {name: [_with_renamed_tags(tree, tags) for tree in trees] for name, trees in cleaned.items()}
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


def _with_renamed_tags(tree: Tree, tags: set[str]) -> Tree:
    done: list[Tree] = []
    for node in reversed(list(tree.preorder())):  # from the right, children are done before their parent
        if node.word is not None:
            done.append(Tree(node.label + SUFFIX, (), node.word) if node.label in tags else node)
        else:
            children = tuple(done.pop() for _ in node.children)
            is_same = all(new is old for new, old in zip(children, node.children, strict=True))
            done.append(node if is_same else Tree(node.label, children))
    return done[0]
