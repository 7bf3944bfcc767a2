"""Named spaces, head matrices, the choice of symbols and the sign rules, by hand."""

import numpy as np
import pytest
import torch

from pcfg_artifact.approximation.restriction import restrict, select_symbols
from pcfg_artifact.approximation.transforms import SIGN_RULES, rule_named, transform_of_width
from pcfg_artifact.constructions.rules import inside_matrices, left_sibling_matrices, right_sibling_matrices
from pcfg_artifact.constructions.space import Space
from pcfg_artifact.constructions.weights import HeadMatrices, telescope
from pcfg_artifact.errors import UsageError


def test_a_space_names_consecutive_coordinates_and_runs_of_blocks():
    space = Space([("a", 2), (("b", 0), 3), (("b", 1), 1)], unions={"b": (("b", 0), ("b", 1))})
    assert space.dim == 6
    assert space["b", 0] == slice(2, 5)
    assert space["b"] == slice(2, 6)
    assert space.widths == [2, 3, 1]
    with pytest.raises(ValueError, match="named twice"):
        Space([("a", 1), ("a", 2)])


def test_head_matrices_are_their_dense_form():
    rng = np.random.default_rng(0)
    dense = rng.random((3, 4, 5)) * (rng.random((3, 4, 5)) < 0.4)
    weights = rng.normal(size=(2, 3))
    matrices = HeadMatrices.from_dense(dense)
    np.testing.assert_array_equal(matrices.dense(), dense)
    np.testing.assert_array_equal(matrices.transposed().dense(), dense.transpose(0, 2, 1))
    np.testing.assert_array_equal(matrices.negated().dense(), -dense)
    np.testing.assert_allclose(matrices.mixed(weights).dense(), np.einsum("rh,hij->rij", weights, dense), atol=1e-15)


def test_roles_of_a_rule_become_head_row_and_column(tiny_grammar):
    s, vp, np_, v = (tiny_grammar.nonterminal_index[name] for name in ("S", "VP", "NP", "V"))
    everything, interminals = np.arange(4), np.arange(2)
    inside = inside_matrices(tiny_grammar, interminals, everything, everything).dense()
    assert inside[vp, v, np_] == 0.75
    assert inside[s, np_, vp] == 1.0
    assert left_sibling_matrices(tiny_grammar, everything, everything, everything).dense()[vp, vp, v] == 0.25
    assert right_sibling_matrices(tiny_grammar, everything, everything, everything).dense()[v, np_, vp] == 0.75
    assert inside_matrices(tiny_grammar, np.array([vp]), np.array([v]), np.array([np_])).dense().tolist() == [[[0.75]]]


def test_a_telescope_leaves_the_last_vector_alone():
    space = Space([("x", 2), (0, 2), (1, 2), (2, 2)], unions={"all": (0, 2)})
    vectors = [np.array([1.0, 2.0]), np.array([3.0, 0.0]), np.array([5.0, 6.0])]
    matrix = telescope(space, "all", [0, 1, 2], vectors, 3, first=0).dense()[0]
    np.testing.assert_array_equal(matrix @ [1, 0, 0], [1, 2, 0, 0, 0, 0])
    np.testing.assert_array_equal(matrix @ [1, 1, 0], [0, 0, 3, 0, 0, 0])
    np.testing.assert_array_equal(matrix @ [1, 1, 1], [0, 0, 0, 0, 5, 6])


def test_symbols_are_chosen_by_expected_counts_where_there_are_no_others(tiny_grammar):
    # a tree has one S, 4/3 VP (each VP is followed by another with probability 1/4), as many V, two NP
    interminals, preterminals = select_symbols(tiny_grammar, 1, None)
    assert [tiny_grammar.nonterminals[a] for a in interminals] == ["VP"]
    assert [tiny_grammar.nonterminals[a] for a in preterminals] == ["NP", "V"]


def test_restriction_deletes_rules_with_other_interminals_and_cuts_the_root(tiny_grammar):
    vp = tiny_grammar.nonterminal_index["VP"]
    small = restrict(tiny_grammar, np.array([vp]))
    assert [tuple(rule) for rule in small.binary] == [tuple(rule) for rule in tiny_grammar.binary if rule[0] == vp]
    assert small.root.sum() == 0
    assert not small.is_proper
    np.testing.assert_array_equal(small.lexical, tiny_grammar.lexical)


def test_sign_rules_say_where_negative_values_vanish():
    for values in (np.array([-1.0, 2.0]), torch.tensor([-1.0, 2.0])):
        found = {name: (rule.stored(values).tolist(), rule.key(values).tolist()) for name, rule in SIGN_RULES.items()}
        assert found == {"clip": ([0, 2], [0, 2]), "literal": ([-1, 2], [0, 2]), "signed": ([-1, 2], [-1, 2])}
    with pytest.raises(UsageError, match="'abs' is unknown; expected one of clip, literal, signed"):
        rule_named("abs")


def test_a_missing_width_takes_the_nearest_smaller_transform():
    transforms = {3: np.full((1, 2), 3.0), 5: np.full((1, 2), 5.0)}
    assert [transform_of_width(transforms, width)[0, 0] for width in (2, 3, 4, 5, 9)] == [3, 3, 3, 5, 5]
    with pytest.raises(UsageError, match="no transform"):
        transform_of_width({}, 2)
