"""`compare`: what differs between two runs, in which order, and what the exit code says."""

import math

import pandas as pd
import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.metrics.schema import KEY, Metric
from pcfg_artifact.run.stage_folder import Manifest, StageDir
from pcfg_artifact.system import storage
from pcfg_artifact.tools import compare

UNITS = {"corpus_f1": "percent", "perplexity": "perplexity", "pearson": "fraction", "spearman": "fraction",
         "heads": "count", "inside": "relative_error"}
NUMBERS = {"corpus_f1": 80.0, "perplexity": 50.0, "pearson": 0.5, "spearman": 0.4, "heads": 40.0, "inside": 3e-15}


def number(metric, value, seed=0):
    return Metric(table="t", model="few", metric=metric, seed=seed, value=value, n=10, unit=UNITS.get(metric, "count"))


def write_run(root, changes=(), seed=0, *, is_judged=True, claim="holds"):
    """A run of one measuring stage, and a verify that judged it; changes: metric -> value (None: absent)."""
    values = {metric: value for metric, value in {**NUMBERS, **dict(changes)}.items() if value is not None}
    metrics = [number(metric, value, seed) for metric, value in values.items()]
    folder = StageDir(root / "probe")
    folder.write_metrics(metrics)
    measured = Manifest("probe", "f", {}, {}, {"metrics.csv": storage.sha256(folder.path("metrics.csv"))})
    measured.write(folder.root)
    if is_judged:
        judge = StageDir(root / "verify")
        judge.write_text("numbers.csv", pd.DataFrame([dict(zip(KEY, metric.key, strict=True)) | {"verdict": "agrees"}
                                                      for metric in metrics]).to_csv(index=False))
        judge.write_text("verdicts.csv", "against,name,verdict,measured,expected,allowed,reason\n"
                         f"claim,a-claim,{claim},1,2,,as recorded\n")
        Manifest("verify", "f", {}, {"probe": measured.output_hash},
                 {name: storage.sha256(judge.path(name)) for name in ("numbers.csv", "verdicts.csv")}).write(judge.root)
    return root


def compared(capsys, *arguments):
    code = main(["compare", *map(str, arguments)])
    return code, capsys.readouterr()


def test_equal_runs_are_said_to_be_equal(tmp_path, capsys):
    code, said = compared(capsys, write_run(tmp_path / "a", {"pearson": math.nan}),
                          write_run(tmp_path / "b", {"pearson": math.nan}))
    assert code == 0
    assert "no difference: both runs have the same numbers" in said.out


def test_differences_are_listed_largest_first_whatever_their_unit(tmp_path, capsys):
    # Shares: 0.02 of 100 percent; 0.5 of the larger perplexity; 0.1 as it is; one of 41; 1e-15 as it is.
    b = write_run(tmp_path / "b", {"corpus_f1": 78.0, "perplexity": 100.0, "pearson": 0.6,
                                   "heads": 41.0, "inside": 4e-15}, seed=1)
    code, said = compared(capsys, write_run(tmp_path / "a"), b, "--out", tmp_path / "out.csv")
    assert code == 1
    assert "5 numbers differ" in said.out
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table["metric"]) == ["perplexity", "pearson", "heads", "corpus_f1", "inside"]
    assert table["difference"].tolist() == pytest.approx([0.5, 0.1, 1 / 41, 0.02, 1e-15])
    places = [said.out.index(name) for name in table["metric"]]
    assert places == sorted(places)


def test_a_number_that_is_undefined_in_one_run_comes_first(tmp_path, capsys):
    b = write_run(tmp_path / "b", {"pearson": math.nan, "perplexity": 500.0})
    assert compared(capsys, write_run(tmp_path / "a"), b, "--out", tmp_path / "out.csv")[0] == 1
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table["metric"]) == ["pearson", "perplexity"]
    assert math.isinf(table["difference"][0])


def test_a_run_that_was_not_judged_says_nothing_about_claims(tmp_path, capsys):
    a = write_run(tmp_path / "a", claim="fails")
    code, said = compared(capsys, a, write_run(tmp_path / "b", is_judged=False))
    assert code == 0
    assert "6 numbers, 6 judged" in said.out
    assert "6 numbers, not judged" in said.out
    assert compared(capsys, tmp_path / "b", write_run(tmp_path / "c", {"spearman": 0.1}, is_judged=False))[0] == 1


def test_numbers_in_one_run_only_are_listed_and_counted(tmp_path, capsys):
    a = write_run(tmp_path / "a", {"new": 7.0})
    b = write_run(tmp_path / "b", {"heads": None})
    code, said = compared(capsys, a, b, "--out", tmp_path / "out.csv")
    assert code == 1
    assert "2 numbers are in A only" in said.out
    assert "t, few, new: 7 count" in said.out
    assert "in B only" not in said.out
    assert pd.read_csv(tmp_path / "out.csv")["in"].tolist() == ["A", "A"]
    (b / "verify" / "manifest.json").unlink()
    other = StageDir(b / "control")
    other.write_metrics([number("accuracy", 0.1)])
    Manifest("control", "f", {}, {}, {}).write(other.root)
    assert "only B has numbers of control" in compared(capsys, a, b)[1].out


def test_a_claim_with_another_verdict_is_a_difference(tmp_path, capsys):
    code, said = compared(capsys, write_run(tmp_path / "a"), write_run(tmp_path / "b", claim="fails"))
    assert code == 1
    assert "a-claim: A holds (1), B fails (1)" in said.out


def test_least_leaves_out_what_is_smaller(tmp_path, capsys):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", {"inside": 4e-15})
    assert compared(capsys, a, b)[0] == 1
    assert compared(capsys, a, b, "--least", "1e-12")[0] == 0


def test_the_list_is_cut_and_says_so(tmp_path, capsys):
    b = write_run(tmp_path / "b", {"pearson": 0.6, "heads": 41.0})
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


def test_several_seeds_of_a_number_count_by_their_mean():
    def frame(*values):
        rows = [{**dict.fromkeys(KEY, ""), "metric": "x", "unit": "fraction", "verdict": "agrees", "seed": seed,
                 "value": value} for seed, value in enumerate(values)]
        return pd.DataFrame(rows)

    assert compare.differences(frame(0.2, 0.4), frame(0.5))["difference"].tolist() == pytest.approx([0.2])
    assert math.isinf(compare.differences(frame(0.5, math.nan), frame(0.5))["difference"][0])
