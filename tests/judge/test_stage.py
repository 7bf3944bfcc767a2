"""The stage verify and the tool record, on the folders of a made-up run."""

import csv
import math
import re

import pytest
import yaml

from pcfg_artifact.cli import main
from pcfg_artifact.errors import StageError
from pcfg_artifact.judge.judge import judge
from pcfg_artifact.run import config, expected, pipeline, plan
from pcfg_artifact.run.expected import load_claims, load_record, read_run
from pcfg_artifact.run.stage_folder import Folder, StageDir
from pcfg_artifact.stages import verify
from pcfg_artifact.tools import record as record_tool
from tests.judge.conftest import verified, write_run
from tests.judge.made_up import STAGES, as_predicted, made_up_run


@pytest.fixture
def plain(monkeypatch):
    """Figures take most of the time; tests that do not look at them leave them out."""
    monkeypatch.setattr(verify, "draw", lambda *_: ([], []))


def test_a_good_run_agrees_and_leaves_report_tables_and_verdicts(finished):
    out = finished
    assert out.json("verdict") == {"passed": True, "profile": "paper"}
    files = set(out.files())
    assert {f"tables/table{n}.csv" for n in range(1, 9)} <= files
    assert {f"figures/{name}.png" for name in ("frequency", "loss_curves", "optimum_gap", "f1_by_layer", "eos_and_adj",
                                               "marginals", "scatter", "attention", "filling")} <= files
    text = out.text("summary.txt")
    assert len(text.splitlines()) < 40
    assert "8 of 10 central findings shown; not: " in text  # the costs of the approximations, as predicted
    with open(out.path("verdicts.csv"), newline="") as file:
        verdicts = list(csv.DictReader(file))
    assert {row["verdict"] for row in verdicts if row["against"] == "paper"} == {"agrees"}
    assert {row["verdict"] for row in verdicts if row["against"] == "claim"} \
        <= {"holds", "fails", "untrained", "uncontrolled"}


GOOD = as_predicted(made_up_run())
MARGINAL = {"table": "marginals", "model": "A12L6", "layer": 6, "probe": "2-layer", "setting": "treebank", "width": 4}


def planted(value):
    return [m.at(value=value) if all(getattr(m, k) == v for k, v in MARGINAL.items()) else m for m in GOOD]


@pytest.mark.parametrize(("metrics", "words"), [
    (planted(0.3), "differs"), (planted(math.nan), "differs"),
    (made_up_run(), "DISAGREES"), ([m for m in GOOD if m.table != "control"], "not measured")])
def test_what_is_wrong_turns_the_verdict(tmp_path, plain, metrics, words):
    out = verified(write_run(metrics, tmp_path), tmp_path)
    assert out.json("verdict")["passed"] is False
    assert words in out.text("summary.txt")
    assert "DISAGREES" in out.text("summary.txt").splitlines()[-1]


def test_the_exit_code_of_the_pipeline_is_the_verdict(tmp_path, monkeypatch, capsys):
    verify_only = [stage for stage in pipeline.STAGES if stage.name == "verify"]
    monkeypatch.setattr(pipeline, "refuse_early", lambda *_: None)
    monkeypatch.setattr(plan, "input_hashes", lambda *_: {})
    monkeypatch.setattr(plan, "why_run", lambda *_: None)
    for passes, code in ((True, 0), (False, 1)):
        out = StageDir(tmp_path / str(code) / "verify")
        out.write_json("verdict", {"passed": passes, "profile": "smoke"})
        out.write_text("summary.txt", "the summary\nthe verdict\n")
        assert pipeline.run(config.load_profile("smoke"), tmp_path / str(code), verify_only) == code
        assert capsys.readouterr().out == f"the summary\nreport: {out.path('report.html')}\nthe verdict\n"


def test_a_number_of_two_stages_and_an_unfinished_stage_are_refused(tmp_path):
    folders = write_run(made_up_run(), tmp_path)
    folders["control"].write_metrics(folders["attention"].metrics())
    with pytest.raises(StageError, match="is written by the stages control and attention"):
        read_run("smoke", folders)
    (folders["grammar"].root / "manifest.json").unlink()
    with pytest.raises(StageError, match="stage 'grammar' is not done"):
        read_run("smoke", folders)


# ---- record ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    """`record` on made-up runs: every call to the pipeline writes the numbers of its seed."""
    folder = tmp_path / "expected_results"
    folder.mkdir()
    (folder / "claims.yaml").write_bytes((expected.EXPECTED / "claims.yaml").read_bytes())

    def run(profile, out, stages):
        assert [stage.name for stage in stages] == list(STAGES)
        if not out.exists():
            write_run(made_up_run(profile.seed, noise=0.02), out)
        return 0

    monkeypatch.setattr(pipeline, "STAGES", tuple(pipeline.Stage(name, (), "") for name in (*STAGES, "verify")))
    monkeypatch.setattr(pipeline, "run", run)
    # the made-up runs are of made-up trees and settings
    monkeypatch.setattr(record_tool, "source_hash", lambda _: "t" * 64)
    monkeypatch.setattr(record_tool, "as_json", lambda _: {"seed": 5, "size": 3})

    def call(*more):
        return main(["record", "--profile", "smoke", "--out", str(tmp_path / "runs"), "--expected", str(folder), *more])
    return folder, call


def test_record_adds_one_seed_a_call_and_five_make_a_record(recorder, tmp_path, capsys):
    folder, call = recorder
    for seed in range(5):
        assert call() == 0
        assert load_record("smoke", folder).seeds == tuple(range(seed + 1))
        assert ("more seeds are needed" in capsys.readouterr().out) == (seed < 4)
    record = load_record("smoke", folder)
    text = (folder / "smoke" / "expected.csv").read_text()
    note = r"^# seed \d: commit \w+.*python 3.11.*cores, cpu(, \w+=\w+)*; 676 s$"
    assert len(re.findall(note, text, re.MULTILINE)) == 5
    assert {claim.outcome for claim in record.claims.values()} == {"holds", "untrained", "uncontrolled"}
    claims = load_claims()
    assert len(record.claims) == sum(len(claim.grammars) for claim in claims)
    run, numbers, _ = read_run("smoke", {p.name: Folder(p) for p in (tmp_path / "runs" / "seed-1").iterdir()})
    assert judge(run, numbers, [], record, claims).agrees


def test_record_keeps_explanations_and_fresh_begins_again(recorder, capsys):
    folder, call = recorder
    items = yaml.safe_load((folder / "claims.yaml").read_text())
    alike = next(item for item in items if item["id"] == "attention-alike")
    bound, alike["bound"] = alike["bound"], 1.5  # no correlation can reach it
    (folder / "claims.yaml").write_text(yaml.safe_dump(items))
    call()
    assert "attention-alike: fails; write its explanation into claims.csv" in capsys.readouterr().out
    path = folder / "smoke" / "claims.csv"
    path.write_text("\n".join(line + '"the bound is above 1"' if line.startswith("attention-alike,,fails") else line
                              for line in path.read_text().splitlines()) + "\n")
    call()
    claim = load_record("smoke", folder).claims["attention-alike", ""]
    assert (claim.outcomes, claim.explanation) == ({0: "fails", 1: "fails"}, "the bound is above 1")
    call("--fresh")
    record = load_record("smoke", folder)
    assert record.seeds == (0,)
    assert record.claims["attention-alike", ""].explanation == "the bound is above 1"
    alike["bound"] = bound
    (folder / "claims.yaml").write_text(yaml.safe_dump(items))
    call("--judge-again")  # it holds now; should it fail at a later seed, its explanation is still there
    claim = load_record("smoke", folder).claims["attention-alike", ""]
    assert (claim.outcomes, claim.explanation) == ({0: "holds"}, "the bound is above 1")


def test_record_refuses_to_mix_settings(recorder, tmp_path, capsys):
    folder, call = recorder
    call()
    text = (folder / "smoke" / "expected.csv").read_text()
    (folder / "smoke" / "expected.csv").write_text(re.sub(r"# config: \w+", "# config: " + "0" * 64, text))
    assert call() == 1
    assert "the record of smoke is of another configuration" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "seed-1").exists()  # refused before it ran
    assert main(["record", "--profile", "paper", "--judge-again", "--expected", str(folder)]) == 2


@pytest.mark.parametrize(("profile", "n_seeds"), [("smoke", 7), ("reduced", 3)])
def test_committed_records_are_complete_and_every_failure_is_explained(profile, n_seeds):
    record = load_record(profile)
    assert len(record.seeds) >= n_seeds
    assert len(record.notes) == len(record.seeds)
    assert not [name for name, claim in record.claims.items() if claim.outcome in ("fails", "varies")
                and not claim.explanation]
    assert not [note for note in record.notes if "local changes" in note or "unknown" in note]
    claims = {(claim.id, grammar) for claim in load_claims() for grammar in claim.grammars}
    assert set(record.claims) <= claims


# ---- refused before the run -----------------------------------------------------------------------------------------


def test_an_incomplete_penn_treebank_is_refused_before_any_work(tmp_path, capsys):
    for section, n in (("02", 30), ("22", 3)):
        folder = tmp_path / "ptb" / "wsj" / section
        folder.mkdir(parents=True)
        (folder / f"wsj_{section}01.mrg").write_text("( (S (NP (PRP it)) (VP (VBZ runs))) )\n" * n)
    code = main(["--profile", "paper", "--treebank", str(tmp_path / "ptb" / "wsj"), "--out", str(tmp_path / "out")])
    error = capsys.readouterr().err
    assert code == 2
    assert "this run cannot succeed" in error
    assert "30 trees in sections 02-21 and 3 in section 22, expected 39,832 and 1,700" in error
    assert not (tmp_path / "out" / "grammar").exists()


def test_more_gpus_than_there_are_are_refused(tmp_path, capsys):
    code = main(["--set", "machine.n_gpus=4096", "--out", str(tmp_path / "out")])
    assert code == 2
    assert "4096 GPUs were asked for" in capsys.readouterr().err
