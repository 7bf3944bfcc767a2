"""The stage verify and the tool record, on the folders of a made-up run."""

import csv
import dataclasses
import math
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from pcfg_artifact import config, pipeline, planning, records
from pcfg_artifact.artifacts import Folder, Manifest, StageDir
from pcfg_artifact.cli import main
from pcfg_artifact.config import VerifyConfig
from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.records import load_record, read_run
from pcfg_artifact.stages import verify
from pcfg_artifact.tools import record as record_tool
from pcfg_artifact.verification.comparison import judge, passed
from pcfg_artifact.verification.expectations import Rerun

PAPER = VerifyConfig(seed=0, expected="paper")


@pytest.fixture
def plain(monkeypatch):
    """Figures take most of the time; tests that do not look at them leave them out."""
    monkeypatch.setattr(verify, "draw", lambda *_: ([], []))


def verified(folders, root, cfg=PAPER):
    out = StageDir(root / "verify")
    verify.run(cfg, Inputs({name: folder.root for name, folder in folders.items()}, "embedded"), out, Machine("cpu", 2))
    return out


def test_a_good_run_passes_and_leaves_report_tables_and_verdicts(finished):
    out = finished
    assert out.json("verdict") == {"passed": True, "profile": "paper"}
    files = set(out.files())
    assert {f"tables/table{n}.csv" for n in range(1, 9)} <= files
    assert {f"figures/{name}.png" for name in ("frequency", "loss_curves", "optimum_gap", "f1_by_layer", "eos_and_adj",
                                               "marginals", "scatter", "attention", "example", "filling")} <= files
    text = out.text("summary.txt")
    assert len(text.splitlines()) < 40
    assert "everything that applies is as expected" in text
    with open(out.path("verdicts.csv"), newline="") as file:
        verdicts = list(csv.DictReader(file))
    assert {row["verdict"] for row in verdicts} == {"match", "not applicable"}
    assert all(row["reason"] for row in verdicts if row["verdict"] == "not applicable")


def test_the_report_is_one_file_that_fetches_nothing(finished):
    page = finished.text("report.html")
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page)
    assert not re.findall(r"url\((?!#)|@import", page)
    assert [tag for tag in re.findall(r"<script[^>]*>", page) if "src" in tag] == []
    assert not re.findall(r"fetch\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon|import\(|eval\(|innerHTML", page)
    assert {url for url in re.findall(r"https?://[^\s\"'<>)]+", page) if "www.w3.org" not in url} == set()
    assert len(page.encode()) < 3_000_000
    drawn = page.count("<svg ") - page.count('<svg class="claim')
    assert page.count("<figure ") == drawn == 16 - 1  # f1_by_width has no rows in the fixture
    assert page.index('id="claims"') < page.index('id="tables"') < page.index('id="figures"')


def test_left_to_right_has_a_section_of_its_own_with_figures_and_tables(finished):
    page = finished.text("report.html")
    section = page[page.index('<section id="left-to-right">'):page.index('<section id="facts">')]
    for name in ("figure-next_word_gap", "figure-known_while_reading", "figure-settled", "table-next_word",
                 "table-incremental", "table-settled"):
        assert section.count(f'id="{name}"') == page.count(f'id="{name}"') == 1
    assert "figure-f1_by_layer" not in section
    assert "this project" in page[:page.index('<section id="deviations">')]


def change(rows, **fields):
    return [dataclasses.replace(r, **fields) if (r.table, r.row, r.column) == ("table5", "l=4", "A12L6 2-layer") else r
            for r in rows]


@pytest.mark.parametrize(("planted", "words"), [
    ("wrong", "1 differs"), ("nan", "differs"), ("missing table", "not measured"), ("nothing", "not measured")])
def test_what_is_wrong_turns_the_verdict(rows, write_run, tmp_path, plain, planted, words):
    rows = {"wrong": change(rows, value=0.95), "nan": change(rows, value=math.nan),
            "missing table": [r for r in rows if r.table != "table6"], "nothing": []}[planted]
    out = verified(write_run(rows, tmp_path), tmp_path)
    assert out.json("verdict")["passed"] is False
    assert words in out.text("summary.txt")
    assert "NOT as expected" in out.text("summary.txt")


def test_the_exit_code_of_the_pipeline_is_the_verdict(tmp_path, monkeypatch, capsys):
    verify_only = [stage for stage in pipeline.STAGES if stage.name == "verify"]
    monkeypatch.setattr(planning, "refuse_early", lambda *_: None)
    monkeypatch.setattr(planning, "input_hashes", lambda *_: {})
    monkeypatch.setattr(planning, "why_run", lambda *_: None)
    for passes, code in ((True, 0), (False, 1)):
        out = StageDir(tmp_path / str(code) / "verify")
        out.write_json("verdict", {"passed": passes, "profile": "smoke"})
        out.write_text("summary.txt", "the summary\n")
        assert pipeline.run(config.load_profile("smoke"), tmp_path / str(code), verify_only) == code
        assert capsys.readouterr().out == f"the summary\nreport: {out.path('report.html')}\n"


def test_a_cell_of_two_stages_and_an_unfinished_stage_are_refused(rows, write_run, tmp_path):
    folders = write_run(rows, tmp_path)
    folders["control"].write_metrics(folders["attention"].metrics())
    with pytest.raises(StageError, match="is written by the stages control and attention"):
        read_run("smoke", folders)
    (folders["grammar"].root / "manifest.json").unlink()
    with pytest.raises(StageError, match="stage 'grammar' is not done"):
        read_run("smoke", folders)


# ---- record ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorder(make_rows, write_run, tmp_path, monkeypatch):
    """`record` on made-up runs: every call to the pipeline writes the rows of its seed."""
    folder = tmp_path / "expected_results"
    folder.mkdir()
    (folder / "relations.yaml").write_bytes((records.EXPECTED / "relations.yaml").read_bytes())
    names = list(write_run([], tmp_path / "names"))

    def run(profile, out, stages):
        assert [stage.name for stage in stages] == names
        if not out.exists():
            write_run(make_rows(profile.seed, noise=0.1), out)
        return 0

    monkeypatch.setattr(pipeline, "STAGES", tuple(pipeline.Stage(name, (), "") for name in (*names, "verify")))
    monkeypatch.setattr(pipeline, "run", run)
    # the made-up runs are of made-up trees and settings
    monkeypatch.setattr(record_tool, "source_hash", lambda _: "t" * 64)
    monkeypatch.setattr(record_tool.config, "as_json", lambda _: {"seed": 5, "size": 3})

    def call(*more):
        return main(["record", "--profile", "smoke", "--out", str(tmp_path / "runs"), "--expected", str(folder), *more])
    return folder, call


def test_record_adds_one_seed_a_call_and_three_make_a_record(recorder, tmp_path, capsys, paper, relations):
    folder, call = recorder
    for seed in range(3):
        assert call() == 0
        assert load_record("smoke", folder).seeds == tuple(range(seed + 1))
        assert ("more seeds are needed" in capsys.readouterr().out) == (seed < 2)
    record = load_record("smoke", folder)
    text = (folder / "smoke" / "expected.csv").read_text()
    note = r"^# seed \d: commit \w+.*python 3.11.*cores, cpu(, \w+=\w+)*; 676 s$"
    assert len(re.findall(note, text, re.MULTILINE)) == 3
    assert all(outcome.outcome == "holds" for outcome in record.outcomes.values())
    assert len(record.outcomes) == sum(relation.scale == "any" for relation in relations)
    run, measured, _ = read_run("smoke", {p.name: Folder(p) for p in (tmp_path / "runs" / "seed-1").iterdir()})
    judgements = judge(run, measured, paper, record, relations)
    assert passed(judgements)
    assert sum(j.against == "record" for j in judgements) == len(record.units) > 1000


def test_record_keeps_explanations_and_fresh_begins_again(recorder, make_rows, write_run, tmp_path, capsys):
    folder, call = recorder
    relation = yaml.safe_load((folder / "relations.yaml").read_text())
    for item in relation:
        if item["id"] == "attention-alike":
            item["bound"] = 1.5  # no correlation can reach it
    (folder / "relations.yaml").write_text(yaml.safe_dump(relation))
    call()
    assert "attention-alike: 0:fails; write its explanation" in capsys.readouterr().out
    outcomes = folder / "smoke" / "outcomes.csv"
    lines = outcomes.read_text().splitlines()
    outcomes.write_text("\n".join(line + '"the bound is above 1"' if line.startswith("attention-alike,fails") else line
                                  for line in lines) + "\n")
    call()
    outcome = load_record("smoke", folder).outcomes["attention-alike"]
    assert (outcome.by_seed, outcome.explanation) == ("0:fails 1:fails", "the bound is above 1")
    call("--fresh")
    record = load_record("smoke", folder)
    assert record.seeds == (0,)
    assert record.outcomes["attention-alike"].explanation == "the bound is above 1"
    (folder / "relations.yaml").write_text(yaml.safe_dump([item | {"bound": -1.0} if item["id"] == "attention-alike"
                                                           else item for item in relation]))
    call()  # it holds now; should it fail at a later seed, its explanation is still there
    outcome = load_record("smoke", folder).outcomes["attention-alike"]
    assert (outcome.outcome, outcome.explanation) == ("holds", "the bound is above 1")


def test_record_refuses_to_mix_settings(recorder, tmp_path, capsys):
    folder, call = recorder
    call()
    text = (folder / "smoke" / "expected.csv").read_text()
    (folder / "smoke" / "expected.csv").write_text(re.sub(r"# config: \w+", "# config: " + "0" * 64, text))
    assert call() == 1
    assert "the record of smoke is of another configuration" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "seed-1").exists()  # refused before it ran


def test_record_measures_drift_in_a_process_of_its_own(recorder, make_rows, write_run, tmp_path, monkeypatch, capsys):
    folder, call = recorder
    for _ in range(3):
        call()
    assert call("--arithmetic", "sse", "--fresh") == 2
    assert call("--probes-only") == 2
    calls = []

    def process(command, env, check):
        calls.append((command, env))
        out = Path(command[command.index("--out") + 1])
        rows = [dataclasses.replace(r, value=r.value + 0.3) if r.table == "table4" else r for r in make_rows(0, 0.1)]
        write_run(rows, out)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(record_tool.subprocess, "run", process)
    monkeypatch.setattr(record_tool, "provenance", lambda _: "commit 0")
    assert call("--arithmetic", "sse") == 0
    [(command, environment)] = calls
    assert "--set=seed=0" in command
    assert command[command.index("--to") + 1] == "dynamics"
    assert environment["ATEN_CPU_CAPABILITY"] == "default"
    record = load_record("smoke", folder)
    assert list(record.drift) == [Rerun(0, "sse")]
    moved = {cell.table for cell, number in record.drift[Rerun(0, "sse")].items() if number != record.by_seed[0][cell]}
    assert moved == {"table4"}
    assert "MKL_CBWR=COMPATIBLE" in (folder / "smoke" / "drift.csv").read_text()
    assert record.outcomes["attention-alike"].by_seed == "0:holds 1:holds 2:holds 0/sse:holds"
    assert call("--arithmetic", "openblas", "--seed", "1") == 0
    assert "# seed 1 openblas: OPENBLAS_CORETYPE=Haswell, OPENBLAS_L2_SIZE=512; commit 0" in (
        folder / "smoke" / "drift.csv").read_text()


def test_drift_of_the_probes_keeps_the_models_of_the_recorded_run(recorder, write_run, make_rows, tmp_path):
    names = ("grammar", "marginals", "construct", "approximate", "pretrain")
    before, out = tmp_path / "before", tmp_path / "out"
    write_run(make_rows(0), before)
    record_tool.keep_models(before, out)
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    assert (out / "pretrain" / "manifest.json").samefile(before / "pretrain" / "manifest.json")
    with pytest.raises(UsageError, match="is not there or not finished"):
        record_tool.keep_models(tmp_path / "nowhere", out)


@pytest.mark.parametrize(("profile", "n_seeds"), [("smoke", 7), ("reduced", 3)])
def test_committed_records_are_complete_and_every_failure_is_explained(profile, n_seeds):
    record = load_record(profile)
    assert record is not None
    assert len(record.seeds) >= n_seeds
    assert len(record.notes) == len(record.seeds)
    unexplained = [o.relation for o in record.outcomes.values() if o.outcome != "holds" and not o.explanation]
    assert not unexplained
    assert not [n for n in record.notes if "local changes" in n or "unknown" in n]


def test_manifests_of_the_fixture_are_readable(rows, write_run, tmp_path):
    folders = write_run(rows, tmp_path)
    assert {Manifest.read(folder.root).stage for folder in folders.values()} == set(folders)


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
