"""Treebanks: reading, cleaning, splits, the embedded treebank, binarisation and its inverse."""

from pcfg_artifact import exports

__getattr__, __dir__ = exports(__name__)
