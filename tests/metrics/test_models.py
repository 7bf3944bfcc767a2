"""Names of models are read in one place, and say which roles they play."""

import pytest

from pcfg_artifact.metrics.models import (
    CONTROL_TEXTS,
    is_trained,
    masked_counterpart,
    middle_layer,
    roles_of,
    shape_of,
    trained_on,
    untrained,
)


def test_roles_are_those_of_the_paper_and_other_names_are_passed_over():
    roles = roles_of(["A12L12", "A12L1", "A12L3", "A3L12", "A24L12", "A12L12-random", "A12L12-bigram", "unigram"])
    assert (roles.base, roles.fewest_layers, roles.fewest_heads) == ("A12L12", "A12L1", "A3L12")
    assert roles.models == ("A3L12", "A12L1", "A12L3", "A12L12", "A24L12")
    assert roles.by_layers == ("A12L1", "A12L3", "A12L12")
    assert roles.by_heads == ("A3L12", "A12L12", "A24L12")
    assert roles.deeper == ("A12L3", "A12L12")
    assert roles_of(["x"]).base is None


def test_causal_models_play_a_role_of_their_own_alone():
    roles = roles_of(["A4L3", "A4L1", "C4L12", "C4L3"])
    assert roles.models == ("A4L1", "A4L3")
    assert roles.causal == ("C4L3", "C4L12")
    assert roles.followed == ("A4L3", "C4L3")
    assert masked_counterpart("C4L12") == "A4L12"


def test_a_name_says_heads_layers_and_kind():
    assert shape_of("C4L12") == ("C", 4, 12, "")
    assert shape_of(untrained("A4L3")) == ("A", 4, 3, "random")
    assert is_trained("A4L3", "A")
    assert not is_trained("A4L3-random", "A")
    assert shape_of(trained_on("A4L3", "bigram")) == ("A", 4, 3, "bigram")
    assert not any(is_trained(trained_on("A4L3", text), "A") for text in CONTROL_TEXTS)
    assert not is_trained("C4L3", "A")
    for name in ("A0L3", "A4L0", "A4", "B4L3", "A4L3x", "A4L3-trigram", ""):
        assert shape_of(name) is None
    with pytest.raises(ValueError, match="no model of the form"):
        masked_counterpart("exact")


@pytest.mark.parametrize(("n_layers", "middle"), [(1, 1), (3, 2), (6, 3), (12, 6)])
def test_half_of_the_layers_have_run_at_the_middle_layer(n_layers, middle):
    assert middle_layer(n_layers) == middle
