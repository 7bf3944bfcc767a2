from pcfg_artifact.treebank.reading import Treebank, read_treebank
from pcfg_artifact.treebank.splits import Split, split
from pcfg_artifact.treebank.tree import Tree

__all__ = ["Split", "Tree", "Treebank", "read_treebank", "split"]
