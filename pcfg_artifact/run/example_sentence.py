"""The sentences that the report shows one by one, the same in every stage."""

from __future__ import annotations

import numpy as np

from pcfg_artifact.errors import StageError
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.treebank.tree import Tree

WORDS = range(8, 13)  # long enough to be a tree, short enough to be drawn
LONGEST = 31  # words of an example from a given grammar
N_EXPLORED = 4  # sentences to look into; the first is drawn as well


def example_trees(inputs: Inputs) -> list[Tree]:
    """The first test trees of 8 to 12 words whose sentences differ and have probability; of a given grammar, those that
    are nearest to this length."""
    grammar, trees, lengths = inputs.pcfg(), inputs.trees("test"), WORDS
    if not inputs.has_treebank:
        trees = sorted(trees, key=lambda tree: max(WORDS[0] - len(tree.words()), 0, len(tree.words()) - WORDS[-1]))
        lengths = range(2, LONGEST)
    found: list[Tree] = []
    for tree in trees:
        if len(words := tree.words()) in lengths and words not in [other.words() for other in found] \
                and inside_outside(grammar, [words])[0].log_prob > -np.inf:
            found.append(tree)
            if len(found) == N_EXPLORED:
                break
    if found:
        return found
    raise StageError(f"no test sentence of {WORDS[0]} to {WORDS[-1]} words has probability; the treebank is too small "
                     f"for an example")
