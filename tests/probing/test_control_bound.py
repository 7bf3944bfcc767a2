"""The bound of the control task: an additive function cannot know a pair, memory can."""

import numpy as np
import pytest

from control_bound import _one_hot, _pearson, control_reach


def test_memory_of_every_pair_is_perfect_and_of_none_is_nothing():
    train = [["a", "b"], ["c", "d"], ["a", "d"]]
    seen = control_reach(train, [["a", "b"], ["c", "d"], ["a", "d"]], 2, seed=0)
    assert (seen.share_seen, seen.n_test) == (1.0, 3)
    assert seen.memory == pytest.approx(1.0)
    assert control_reach(train, [["c", "b"], ["b", "a"]], 2, seed=0).share_seen == 0.0


def test_three_of_four_pairs_say_the_fourth_only_if_labels_were_additive():
    design = _one_hot([("a", "b"), ("a", "d"), ("z", "d")], {"a": 0}, {"b": 0, "d": 1}).toarray()
    assert design.tolist() == [[1, 1, 0], [1, 0, 1], [0, 0, 1]]
    assert _pearson(np.ones(3), np.arange(3)) == 0.0


def test_an_additive_function_reaches_little_of_independent_labels():
    rng = np.random.default_rng(0)
    words = [str(w) for w in range(30)]
    train, test = ([[words[i], words[j]] for i, j in rng.integers(0, 30, (n, 2))] for n in (600, 600))
    reach = control_reach(train, test, 2, seed=1)
    assert reach.additive < 0.4 < reach.memory
    assert reach.memory == pytest.approx(np.sqrt(reach.share_seen), abs=0.05)
