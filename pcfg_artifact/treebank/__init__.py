"""Treebanks: reading, cleaning, splits, the embedded treebank, binarisation and its inverse."""

from typing import TYPE_CHECKING

from pcfg_artifact.lazy import lazy_exports

if TYPE_CHECKING:
    from pcfg_artifact.treebank.brackets import parse_trees
    from pcfg_artifact.treebank.reading import Treebank, read_treebank
    from pcfg_artifact.treebank.splits import Split, split
    from pcfg_artifact.treebank.tree import Tree

MODULE_OF = {
    "Split": "splits",
    "Tree": "tree",
    "Treebank": "reading",
    "parse_trees": "brackets",
    "read_treebank": "reading",
    "split": "splits",
}
__all__ = ["Split", "Tree", "Treebank", "parse_trees", "read_treebank", "split"]
__getattr__, __dir__ = lazy_exports(__name__, MODULE_OF)
