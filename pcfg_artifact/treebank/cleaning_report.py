"""What reading a treebank left out or changed, in words: nothing is dropped without a count."""

from __future__ import annotations

from collections.abc import Iterator

from pcfg_artifact.treebank.leaf_formats import AUTO, NON_WORDS
from pcfg_artifact.treebank.reading import Treebank

REMOVED = {"non_words": f"leaves and nodes that hold no words ({', '.join(sorted(NON_WORDS))})",
           "traces": "traces and empty words", "empty_trees": "trees without a word",
           "emptied_nodes": "nodes left without a word", "function_tags": "function tags and indices of labels",
           "alternative_labels": "alternatives of labels, all but the first",
           "same_label_unaries": "nodes over one node of the same label", "outer_brackets": "outer brackets"}


def losses(treebank: Treebank, leaf_format: str | None = None) -> Iterator[str]:
    """A line for each kind of thing, for a person to read; `leaf_format`: the one that was asked for,
    None where it cannot be chosen."""
    yield from (f"left out: {bad}" for bad in treebank.bad_trees)
    if treebank.bad_trees:
        yield f"{len(treebank.bad_trees):,} places left out, {treebank.n_raw:,} trees read"
    yield from (f"removed: {n:,} {what}" for count, what in REMOVED.items() if (n := treebank.cleaning.get(count)))
    if n := treebank.cleaning.get("lemmas"):
        why = {None: "detected", AUTO: "detected; --leaf-format plain keeps them"}.get(leaf_format,
                                                                                       "as --leaf-format says")
        yield f"leaves are word-lemma: {n:,} lemmas cut off ({why})"
    yield from (f"passed over: {name} does not begin with a bracket" for name in treebank.passed_over)
    yield from (f"renamed: {renamed}" for renamed in treebank.renamed)
