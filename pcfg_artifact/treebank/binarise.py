"""Treebank trees to binary trees with grammar labels, and exactly back.

The three marks a grammar label can carry (cleaned treebank labels contain none of them):
  X|<Y>   an artificial node of X that covers its children up to Y (left-factored, horizontal order 1)
  X+Y     a unary chain X over Y, collapsed into one node
  X^P     X under the parent P (variant `vm`; the root, chains and artificial nodes carry none)
"""

from collections.abc import Sequence

from pcfg_artifact.treebank.tree import Tree

FACTORED, CHAIN, PARENT = "|", "+", "^"
MARKS = FACTORED + CHAIN + PARENT
VARIANTS = ("vm", "novm")


def binarise(tree: Tree, variant: str = "vm") -> Tree:
    """The binary tree from which the grammar is read; `vm` annotates parents, `novm` does not."""
    if variant not in VARIANTS:
        raise ValueError(f"unknown grammar variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    return _binarise(tree, None, is_annotated=variant == "vm")


def _binarise(tree: Tree, parent: str | None, *, is_annotated: bool) -> Tree:
    chain, node = [tree.label], tree
    while len(node.children) == 1:
        node = node.children[0]
        chain.append(node.label)
    label = CHAIN.join(chain)
    if is_annotated and parent is not None and len(chain) == 1:
        label = f"{label}{PARENT}{parent}"
    if node.is_preterminal:
        return Tree(label, word=node.word)
    children = [_binarise(child, node.label, is_annotated=is_annotated) for child in node.children]
    left = children[0]
    for child, original in zip(children[1:-1], node.children[1:-1], strict=True):
        # The artificial node is named after the last child it covers, before that child's own chain is collapsed.
        left = Tree(f"{node.label}{FACTORED}<{original.label}>", (left, child))
    return Tree(label, (left, children[-1]))


def unbinarise(tree: Tree) -> Tree:
    """The treebank tree of a binary tree; the inverse of `binarise` for either variant."""
    return tree.rebuilt(_unbinarised)


def _unbinarised(node: Tree, below: Sequence[Tree]) -> Tree:
    children = tuple(real for child in below for real in (child.children if is_artificial(child.label) else (child,)))
    if is_artificial(node.label):  # its parent takes its children
        return Tree(node.label, children, node.word)
    return _unchain(node.label, children, node.word)


def _unchain(label: str, children: tuple[Tree, ...], word: str | None) -> Tree:
    *above, last = label.split(PARENT)[0].split(CHAIN)
    if not all((*above, last)):  # a symbol that is written with the marks but was not made by them, such as `+`
        above, last = [], label
    tree = Tree(last, children, word)
    for name in reversed(above):
        tree = Tree(name, (tree,))
    return tree


def is_artificial(label: str) -> bool:
    """Whether a grammar label belongs to a node that factoring made."""
    return FACTORED in label
