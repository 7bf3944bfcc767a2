"""The bound of the control task: an additive function cannot know a pair, memory can."""

import numpy as np
import pytest

from control_bound import control_reach


def test_memory_of_every_pair_is_perfect_and_of_none_is_nothing():
    train = [["a", "b"], ["c", "d"], ["a", "d"]]
    seen = control_reach(train, [["a", "b"], ["c", "d"], ["a", "d"]], 2, seed=0)
    assert (seen.share_seen, seen.n_test) == (1.0, 3)
    assert seen.memory == pytest.approx(1.0)
    new = control_reach(train, [["c", "b"], ["z", "y"]], 2, seed=0)
    assert (new.share_seen, new.memory) == (0.0, 0.0)
    assert control_reach(train, [["z", "y"], ["y", "z"]], 2, seed=0).additive == 0.0  # no word is known


def test_an_additive_function_reaches_little_of_independent_labels():
    rng = np.random.default_rng(0)
    words = [str(w) for w in range(30)]
    train, test = ([[words[i], words[j]] for i, j in rng.integers(0, 30, (n, 2))] for n in (600, 600))
    reach = control_reach(train, test, 2, seed=1)
    assert reach.additive < 0.4 < reach.memory
    assert reach.memory == pytest.approx(np.sqrt(reach.share_seen), abs=0.05)
