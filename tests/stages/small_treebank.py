"""A treebank drawn from a written grammar whose prepositional phrases attach to nouns and to verbs."""

from pathlib import Path

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees

SOURCE = PCFG.from_rules(
    root={"S": 1.0},
    binary=[("S", "NP", "VP", 1.0), ("VP", "VBD", "NP", 0.6), ("VP", "VP", "PP", 0.4), ("PP", "IN", "NP", 1.0),
            ("NP", "DT", "NN", 0.7), ("NP", "NP", "PP", 0.3)],
    lexical=[("VBD", "saw", 0.5), ("VBD", "ate", 0.5), ("IN", "with", 0.5), ("IN", "in", 0.5), ("DT", "the", 0.6),
             ("DT", "a", 0.4), ("NN", "dog", 0.4), ("NN", "cat", 0.3), ("NN", "park", 0.3)])


def write_treebank(folder: Path, n: int) -> str:
    """The path of a file of n trees."""
    path = folder / "treebank.trees"
    path.write_text("".join(f"{tree}\n" for tree in sample_trees(SOURCE, n, 1, max_length=20)))
    return str(path)
