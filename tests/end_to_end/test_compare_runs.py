"""`compare` on runs that the pipeline made: the same seed twice, and another seed."""

import pandas as pd
import pytest

from pcfg_artifact.cli import main

SIZES = {"sample.n_pretraining": 10, "sample.n_validation": 12, "sample.n_probe_train": 8, "sample.n_probe_test": 8}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("compare")
    noun_phrases = ["(NP (DT the) (NN dog))", "(NP (NNS cats))", "(NP (DT a) (NN dog) (PP (IN in) (NP (NNS parks))))"]
    trees = [f"(S {subject} (VP (VBP see) {thing}) (. .))" for subject in noun_phrases for thing in noun_phrases] * 10
    (root / "trees.mrg").write_text("\n".join(trees))
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        assert main(["--treebank", str(root / "trees.mrg"), "--out", str(root / name), "--to", "sample",
                     *(f"--set={key}={value}" for key, value in {**SIZES, "seed": seed}.items())]) == 0
    return root


def test_two_runs_of_one_seed_are_equal(runs, capsys):
    assert main(["compare", str(runs / "first"), str(runs / "again")]) == 0
    assert "no difference" in capsys.readouterr().out


def test_two_seeds_differ_where_sampling_does_and_sizes_decide_the_order(runs, tmp_path, capsys):
    assert main(["compare", str(runs / "first"), str(runs / "other"), "--out", str(tmp_path / "out.csv")]) == 1
    found = pd.read_csv(tmp_path / "out.csv")
    assert len(found)
    assert set(found["table"]) == {"sample"}
    assert found["difference"].is_monotonic_decreasing
    assert (found["difference"] == (found["a"] - found["b"]).abs() / found[["a", "b"]].abs().max(axis=1)).all()
    assert f"{len(found)} numbers differ" in capsys.readouterr().out
