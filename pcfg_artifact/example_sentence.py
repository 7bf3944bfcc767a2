"""The one sentence that every figure of a single sentence shows, so that its panels stand beside each other."""

from __future__ import annotations

import numpy as np

from pcfg_artifact.errors import StageError
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.parsing import inside_outside
from pcfg_artifact.treebank.tree import Tree

WORDS = range(8, 13)  # long enough to be a tree, short enough to be drawn


def example_tree(inputs: Inputs) -> Tree:
    """The first test tree of 8 to 12 words whose sentence has probability, whatever else a stage makes of the tests."""
    grammar = inputs.pcfg()
    for tree in inputs.trees("test"):
        if len(words := tree.words()) in WORDS and inside_outside(grammar, [words])[0].log_prob > -np.inf:
            return tree
    raise StageError(f"no test sentence of {WORDS[0]} to {WORDS[-1]} words has probability; the treebank is too small "
                     f"for an example")
