"""`compare`: what differs between two runs, in which order, and what the exit code says."""

import csv
import math

import pandas as pd
import pytest

from pcfg_artifact import storage
from pcfg_artifact.artifacts import Manifest, Metric, StageDir
from pcfg_artifact.cli import main
from pcfg_artifact.tools import compare

NUMBERS = {("table1", "exact", "corpus_f1", "percent"): 80.0, ("table3", "A4L3", "perplexity", "perplexity"): 50.0,
           ("table7", "linear", "pearson", "fraction"): 0.5, ("sizes", "heads", "built", "count"): 40.0,
           ("agreement", "few", "inside", "relative_error"): 3e-15, ("table7", "linear", "spearman", "fraction"): 0.4}
UNJUDGED = {("table7", "linear", "spearman")}


def write_run(root, changes=(), seed=0, *, is_judged=True, claim="match"):
    """A run of one measuring stage and a verify that judged all but UNJUDGED; changes: cell -> value (None: absent)."""
    values = NUMBERS | dict(changes)
    folder = StageDir(root / "probe")
    folder.write_metrics(Metric(*cell[:3], seed, value, 10, cell[3]) for cell, value in values.items()
                         if value is not None)
    measured = Manifest("probe", "f", {}, {}, {"metrics.csv": storage.sha256(folder.path("metrics.csv"))})
    measured.write(folder.root)
    if is_judged:
        judge = StageDir(root / "verify")
        lines = [["against", "name", "verdict", "measured", "expected", "where", "reason", "paper", "claim"],
                 ["relation", "a-claim", claim, "1", "2", "", "", "", "things are so"]]
        lines += [["record", " / ".join(cell[:3]), "not applicable" if cell[:3] in UNJUDGED else "match", "", "", "",
                   "", "", ""] for cell, value in values.items() if value is not None]
        judge.path("").mkdir(parents=True)
        with open(judge.path("verdicts.csv"), "w", newline="") as file:
            csv.writer(file).writerows(lines)
        Manifest("verify", "f", {}, {"probe": measured.output_hash},
                 {"verdicts.csv": storage.sha256(judge.path("verdicts.csv"))}).write(judge.root)
    return root


def compared(capsys, *arguments):
    code = main(["compare", *map(str, arguments)])
    return code, capsys.readouterr()


def cell(name):
    return next(key for key in NUMBERS if key[2] == name)


def test_equal_runs_are_said_to_be_equal(tmp_path, capsys):
    code, said = compared(capsys, write_run(tmp_path / "a", {cell("pearson"): math.nan}),
                          write_run(tmp_path / "b", {cell("pearson"): math.nan}))
    assert code == 0
    assert "no difference: both runs have the same numbers" in said.out


def test_differences_are_listed_largest_first_whatever_their_unit(tmp_path, capsys):
    # Shares: 0.02 of 100 percent; 0.5 of the larger perplexity; 0.1 as it is; one of 41; 1e-15 as it is.
    b = write_run(tmp_path / "b", {cell("corpus_f1"): 78.0, cell("perplexity"): 100.0, cell("pearson"): 0.6,
                                   cell("built"): 41.0, cell("inside"): 4e-15}, seed=1)
    code, said = compared(capsys, write_run(tmp_path / "a"), b, "--out", tmp_path / "out.csv")
    assert code == 1
    assert "5 numbers differ, 5 of them judged" in said.out
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table["column"]) == ["perplexity", "pearson", "built", "corpus_f1", "inside"]
    assert table["size"].tolist() == pytest.approx([0.5, 0.1, 1 / 41, 0.02, 1e-15])
    places = [said.out.index(name) for name in table["column"]]
    assert places == sorted(places)


def test_a_number_that_is_undefined_in_one_run_comes_first(tmp_path, capsys):
    b = write_run(tmp_path / "b", {cell("pearson"): math.nan, cell("perplexity"): 500.0})
    assert compared(capsys, write_run(tmp_path / "a"), b, "--out", tmp_path / "out.csv")[0] == 1
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table["column"]) == ["pearson", "perplexity"]
    assert math.isinf(table["size"][0])


def test_a_difference_that_nobody_judges_is_listed_and_exits_0(tmp_path, capsys):
    code, said = compared(capsys, write_run(tmp_path / "a"), write_run(tmp_path / "b", {cell("spearman"): 0.1}))
    assert code == 0
    assert "1 numbers differ, 0 of them judged" in said.out
    code, said = compared(capsys, write_run(tmp_path / "c", is_judged=False),
                          write_run(tmp_path / "d", {cell("pearson"): 0.1}, is_judged=False))
    assert code == 0
    assert "none judged (run the stage verify" in said.out
    # Judged by one of the two is judged; but a run without verdicts does not contradict the other's claims.
    code, said = compared(capsys, tmp_path / "a", tmp_path / "d")
    assert code == 1
    assert "claims" not in said.out
    assert compared(capsys, tmp_path / "a", tmp_path / "c")[0] == 0


def test_a_judged_run_to_which_nothing_applies_is_not_sent_to_the_judge_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(globals(), "UNJUDGED", {cell[:3] for cell in NUMBERS})
    said = compared(capsys, write_run(tmp_path / "a"), tmp_path / "a")[1]
    assert "none judged (no expected number applies to this run)" in said.out


def test_numbers_in_one_run_only_are_listed_and_counted(tmp_path, capsys):
    a = write_run(tmp_path / "a", {("table9", "new", "x", "count"): 7.0})
    b = write_run(tmp_path / "b", {cell("built"): None})
    code, said = compared(capsys, a, b, "--out", tmp_path / "out.csv")
    assert code == 1
    assert "2 numbers are in A only, 2 of them judged" in said.out
    assert "table9 / new / x: 7 count" in said.out
    assert "in B only" not in said.out
    assert pd.read_csv(tmp_path / "out.csv")["in"].tolist() == ["A", "A"]
    (b / "verify" / "manifest.json").unlink()
    other = StageDir(b / "control")
    other.write_metrics([Metric("table6", "linear", "L0", 0, 0.1, 5, "fraction")])
    Manifest("control", "f", {}, {}, {}).write(other.root)
    assert "only B has numbers of control" in compared(capsys, a, b)[1].out


def test_a_claim_with_another_verdict_is_a_difference(tmp_path, capsys):
    code, said = compared(capsys, write_run(tmp_path / "a"), write_run(tmp_path / "b", claim="differs"))
    assert code == 1
    assert "a-claim: A match (1), B differs (1)" in said.out


def test_least_leaves_out_what_is_smaller(tmp_path, capsys):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", {cell("inside"): 4e-15})
    assert compared(capsys, a, b)[0] == 1
    assert compared(capsys, a, b, "--least", "1e-12")[0] == 0


def test_the_list_is_cut_and_says_so(tmp_path, capsys):
    b = write_run(tmp_path / "b", {cell("pearson"): 0.6, cell("built"): 41.0})
    assert "… and 1 more" in compared(capsys, write_run(tmp_path / "a"), b, "-n", 1)[1].out
    assert "more" not in compared(capsys, tmp_path / "a", b, "-n", 1, "--all")[1].out


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    code, said = compared(capsys, write_run(tmp_path / "a"), tmp_path / "empty")
    assert code == 2
    assert said.err.startswith(f"error: {tmp_path / 'empty'} is no run")
    assert compared(capsys, tmp_path / "a", tmp_path / "nowhere")[0] == 2
    assert compared(capsys, tmp_path / "a", tmp_path / "a", "--out", tmp_path)[0] == 2
    assert compared(capsys, tmp_path / "a", tmp_path / "a", "--least", "nan")[0] == 2


def test_several_seeds_of_a_cell_count_by_their_mean():
    columns = {"table": "t", "row": "r", "column": "c", "unit": "fraction", "verdict": "match"}
    a = pd.DataFrame([{**columns, "seed": seed, "value": value} for seed, value in ((0, 0.2), (1, 0.4))])
    b = pd.DataFrame([{**columns, "seed": 2, "value": 0.5}])
    found = compare.differences(a, b)
    assert found["size"].tolist() == pytest.approx([0.2])
    a["value"] = [0.5, math.nan]
    assert math.isinf(compare.differences(a, b)["size"][0])
