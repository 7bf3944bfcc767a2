"""Irregularities of a tree: each kind alone, on a tree small enough to see what must come out."""

from dataclasses import replace

import numpy as np
import pytest

from embedded_treebank.annotation_noise import Irregularities, make_irregular
from pcfg_artifact.treebank.brackets import parse_trees
from pcfg_artifact.treebank.tree import Tree

NEVER = Irregularities(renamed=0.0, adopted=0.0, grouped=0.0, taken_for={"ADJP": "NP", "QP": "NP"},
                       frequent=["S", "VP"], group_labels=["NP"])
TEXT = "(S (PRP It) (VP (VBZ is) (ADJP (RB very) (JJ new))) (. .))"


def tree(text: str) -> Tree:
    return parse_trees(text, "here")[0][0]


def irregular(kinds: Irregularities, text: str = TEXT, seed: int = 0) -> str:
    return str(make_irregular(tree(text), kinds, np.random.default_rng(seed)))


def test_without_any_chance_the_tree_stays() -> None:
    assert irregular(NEVER) == TEXT


def test_a_rare_category_is_taken_for_a_frequent_one() -> None:
    assert irregular(replace(NEVER, renamed=1.0)) == TEXT.replace("ADJP", "NP")


def test_a_node_adopts_the_category_of_its_parent_after_the_parent_has_its_own() -> None:
    assert irregular(replace(NEVER, adopted=1.0)) == TEXT.replace("VP", "S").replace("ADJP", "S")


def test_only_frequent_categories_are_adopted() -> None:
    assert irregular(replace(NEVER, adopted=1.0), "(PP (IN in) (NP (NN town)))") == "(PP (IN in) (NP (NN town)))"


def test_two_neighbours_are_grouped_where_there_are_three_children() -> None:
    found = {irregular(replace(NEVER, grouped=1.0), seed=seed) for seed in range(40)}
    inner = "(VP (VBZ is) (ADJP (RB very) (JJ new)))"
    assert found == {text for label in ("NP", "S") for text in (
        f"(S ({label} (PRP It) {inner}) (. .))", f"(S (PRP It) ({label} {inner} (. .)))")}


def test_a_category_never_stands_over_itself_alone() -> None:
    assert irregular(replace(NEVER, renamed=1.0), "(S (NP (QP (IN over) (CD ten))))") == "(S (NP (IN over) (CD ten)))"


@pytest.mark.parametrize("seed", range(20))
def test_words_and_tags_are_never_touched(seed: int) -> None:
    kinds = replace(NEVER, renamed=0.5, adopted=0.5, grouped=0.5)
    found = make_irregular(tree(TEXT), kinds, np.random.default_rng(seed))
    assert (found.words(), found.tags()) == (tree(TEXT).words(), tree(TEXT).tags())
