"""Sampled rules to bracketed treebank trees as text, without building a tree: millions of them are exported."""

from __future__ import annotations

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.treebank.binarise import is_artificial, unbinarise
from pcfg_artifact.treebank.tree import Tree


class Bracketing:
    """rules of a tree in preorder -> the text of its treebank tree: what str(unbinarise(tree_of_rules(..))) is."""

    def __init__(self, grammar: PCFG) -> None:
        names = grammar.nonterminals
        self._n_binary = len(grammar.binary)
        # A node that factoring made leaves its children to its parent: no brackets of its own.
        self._around = [("", "") if is_artificial(names[a]) else _brackets(names[a]) for a in grammar.binary[:, 0]]
        self._leaf = [str(unbinarise(Tree(names[a], word=grammar.words[word]))) for a, word in grammar.lexical]

    def __call__(self, rules: np.ndarray) -> str:
        """The tree of one preorder rule sequence, whose root is a symbol of the treebank."""
        stack: list[str] = []
        for rule in rules[::-1].tolist():  # from the right, children are complete before their parent
            if rule >= self._n_binary:
                stack.append(self._leaf[rule - self._n_binary])
            else:
                before, after = self._around[rule]
                stack.append(f"{before}{stack.pop()} {stack.pop()}{after}")
        return stack[0]


def _brackets(label: str) -> tuple[str, str]:
    """What stands before and after the children of a node; a collapsed unary chain is several nodes."""
    before, after = str(unbinarise(Tree(label, word="\0"))).split("\0")
    return before, after
