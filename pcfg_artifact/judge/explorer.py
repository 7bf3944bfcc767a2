"""Sentences to look into: what stages kept of each, put together for the page and its script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pcfg_artifact.treebank.tree import bracketed


def explored_sentences(constructed: Sequence[Mapping[str, Any]], probed: Mapping[str, Any] | None,
                       attended: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Every sentence of the stage `construct` with what the probes and the attention of the base model say of it.

    Other stages that show other sentences are left out: they belong to another run.
    """
    sentences = []
    for s, found in enumerate(constructed):
        sentence = {**found, "probe": None, "attention": None}
        if probed is not None and probed["words"][s:s + 1] == [found["words"]]:
            sentence["probe"] = {"model": probed["model"], "best": probed["best"],
                                 "layers": [layer[s] for layer in probed["layers"]]}
        if attended is not None and attended["words"][s:s + 1] == [found["words"]]:
            sentence["attention"] = {"model": attended["model"], "layers": attended["layers"][s]}
        sentences.append(sentence)
    return sentences


def trees_of(sentence: Mapping[str, Any]) -> dict[str, str]:
    """The trees side by side as text, for readers without script."""
    trees = {"Inside-Outside": sentence["parse"]}
    if sentence["probe"] is not None:
        probe = sentence["probe"]
        trees[f"probe of {probe['model']}, layer {probe['best']}"] = probe["layers"][probe["best"]]
    trees["treebank"] = sentence["gold"]
    return {name: bracketed(sentence["words"], sorted(map(tuple, spans), key=lambda span: (span[0], -span[1])))
            for name, spans in trees.items()}


def likely_spans(sentence: Mapping[str, Any], n: int = 8) -> list[tuple[str, str, float]]:
    """The spans of more than one word that are most likely: words, label, marginal."""
    inner = [cell for cell in sentence["cells"] if 1 < cell[1] - cell[0] < len(sentence["words"])]
    return [(" ".join(sentence["words"][i:j]), label, marginal)
            for i, j, label, _, _, marginal in sorted(inner, key=lambda cell: -cell[-1])[:n]]
