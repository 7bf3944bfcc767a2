"""A bracketed text to its raw trees, or to an error that says where and why it is not a sequence of trees."""

from __future__ import annotations

from pcfg_artifact.errors import TreebankError
from pcfg_artifact.treebank.recovery import UNREADABLE, BadTree, first_swallowed, recover, unreadable
from pcfg_artifact.treebank.scanner import MAX_DEPTH, Broken, scan
from pcfg_artifact.treebank.tree import Tree

__all__ = ["MAX_DEPTH", "BadTree", "parse_trees"]


def parse_trees(text: str, document: str, *, skip_bad_trees: bool = False) -> tuple[list[Tree], list[BadTree]]:
    """All trees of a text, and (only with `skip_bad_trees`; otherwise the first is an error) what is not a tree.

    What is kept of a damaged text is decided in `recovery.py`; a text without damage is read the same way with and
    without `skip_bad_trees`.
    """
    if "\r" in text:  # line ends of other systems: brackets do not mind, but lines are counted
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    swallowed = None
    try:
        _check_text(text)
        found = list(scan(text, 0, len(text)))
        swallowed = first_swallowed(text, found)
        if swallowed is not None:
            raise swallowed
        return [tree for tree, _, _ in found], []
    except Broken as broken:
        line = text.count("\n", 0, broken.position) + 1
        bad = BadTree(document, line, broken.reason, line, line)
        if not skip_bad_trees:
            raise TreebankError(f"{bad}; correct the file, or leave such trees out with --skip-bad-trees") from None
        if "(" not in text:
            return [], [bad._replace(first_line=1, last_line=text.rstrip("\n").count("\n") + 1)]
    return recover(text, document, is_swallowed=swallowed is not None)


def _check_text(text: str) -> None:
    if (match := UNREADABLE.search(text)) is not None:
        raise Broken(match.start(), unreadable(match[0]))
    if "(" not in text:
        raise Broken(0, "the text holds no tree" if text.strip() else "the text is empty")
