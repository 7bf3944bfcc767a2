"""One tidy frame of every number of a run, with the verdicts that the stage verify wrote."""

import shutil

import pytest

from pcfg_artifact import results
from pcfg_artifact.errors import CorruptArtifact, UsageError
from pcfg_artifact.metrics.schema import COLUMNS, KEY, is_blank
from pcfg_artifact.run.expected import load_claims
from pcfg_artifact.run.stage_folder import Manifest, StageDir
from pcfg_artifact.system import storage
from tests.judge.made_up import as_predicted, made_up_run


@pytest.fixture
def run(finished, tmp_path):
    """The good run with a manifest of verify, as the pipeline would write it."""
    root = tmp_path / "run"
    shutil.copytree(finished.root.parent, root)
    folder = StageDir(root / "verify")
    inputs = {path.parent.name: Manifest.read(path.parent).output_hash
              for path in root.glob("*/manifest.json") if path.parent.name != "verify"}
    outputs = {name: storage.sha256(folder.path(name)) for name in folder.files()}
    Manifest("verify", "f" * 64, {}, inputs, outputs).write(folder.root)
    return root


def test_every_number_is_there_once_with_its_stage_and_verdict(run):
    frame = results.load(run)
    assert list(frame.columns) == ["stage", *COLUMNS, "verdict"]
    metrics = {metric.key: metric for metric in as_predicted(made_up_run())}
    assert len(frame) == len(metrics)
    for row in frame.to_dict("records"):
        key = tuple(None if is_blank(row[name]) and name in ("layer", "width", "size", "index", "step") else row[name]
                    for name in KEY)
        assert (row["value"], row["unit"], row["n"]) == (metrics[key].value, metrics[key].unit, 100)
        # without a record, only what the paper prints is judged
        assert row["verdict"] in ("agrees", "not judged")
    table4 = frame[(frame["table"] == "parsing") & (frame["layer"] == 12) & (frame["model"] == "A12L12")
                   & (frame["input"] == "EOS") & (frame["metric"] == "sentence_f1")]
    assert set(table4["verdict"]) == {"agrees"}
    assert dict(zip(frame["table"], frame["stage"], strict=True))["settled"] == "incremental"


def test_a_run_that_was_not_judged_has_no_verdict(run):
    (run / "verify" / "manifest.json").unlink()
    assert results.load(run)["verdict"].isna().all()
    assert results.claims(run).empty


def test_claims_come_with_their_outcomes(run):
    claims = results.claims(run).set_index("name")
    assert len(claims) == sum(len(claim.grammars) for claim in load_claims())
    assert claims.loc["constructions-exact", "verdict"] == "holds"


def test_verdicts_on_other_numbers_are_refused(run):
    manifest = Manifest.read(run / "probe")
    Manifest(**{**vars(manifest), "outputs": {"metrics.csv": storage.sha256(run / "probe" / "metrics.csv")}}
             ).write(run / "probe")
    with pytest.raises(UsageError, match="judged other outputs than those in probe"):
        results.load(run)


def test_changed_verdicts_are_refused(run):
    path = run / "verify" / "numbers.csv"
    path.write_text(path.read_text().replace("agrees", "differs", 1))
    with pytest.raises(CorruptArtifact, match="numbers.csv does not have the SHA-256"):
        results.load(run)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "empty" / "grammar").mkdir(parents=True)
    with pytest.raises(UsageError, match="is no run: none of its folders holds the manifest.json"):
        results.load(tmp_path / "empty")
    with pytest.raises(UsageError, match="no folder at"):
        results.load(tmp_path / "nowhere")
