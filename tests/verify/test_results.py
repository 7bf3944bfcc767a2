"""One tidy frame of every number of a run, with the verdicts that the stage verify wrote."""

import shutil

import pytest

from pcfg_artifact import results, storage
from pcfg_artifact.artifacts import Manifest, StageDir
from pcfg_artifact.errors import CorruptArtifact, UsageError
from pcfg_artifact.records import near_zero
from pcfg_artifact.verification.comparison import Run, Verdict, judge


@pytest.fixture
def run(finished, tmp_path):
    """The good run with a manifest of verify, as the pipeline would write it."""
    root = tmp_path / "run"
    shutil.copytree(finished.root.parent, root)
    seal(root)
    return root


def seal(root):
    folder = StageDir(root / "verify")
    inputs = {path.parent.name: Manifest.read(path.parent).output_hash
              for path in root.glob("*/manifest.json") if path.parent.name != "verify"}
    outputs = {name: storage.sha256(folder.path(name)) for name in folder.files()}
    Manifest("verify", "f" * 64, {}, inputs, outputs).write(folder.root)


def test_every_number_is_there_once_with_its_stage_seed_unit_and_verdict(run, rows, measure, paper, relations):
    frame = results.load(run)
    assert list(frame.columns) == ["stage", "table", "row", "column", "seed", "value", "n", "unit", "verdict"]
    measured = {cell: value for cell, value in measure(rows).items() if cell.table != "near_zero"}
    measured |= near_zero({"probe": StageDir(run / "probe")})
    assert dict(zip(zip(frame["table"], frame["row"], frame["column"], strict=True),
                    zip(frame["value"], frame["unit"], strict=True), strict=True)) \
        == {tuple(cell): (value.number, value.unit) for cell, value in measured.items()}
    assert len(frame) == len(measured)
    assert set(frame["seed"]) == {0}
    verdicts = {str(j.cell): j.verdict for j in judge(Run("paper", "t" * 64, ""), measured, paper, None, relations)
                if j.against == "paper"}
    assert Verdict.MATCH in verdicts.values()
    # Without a record, what the paper does not print is not applicable.
    for _, number in frame.iterrows():
        name = f"{number['table']} / {number['row']} / {number['column']}"
        assert number["verdict"] == verdicts.get(name, Verdict.NOT_APPLICABLE)


def test_derived_numbers_belong_to_verify_and_have_no_count(run, rows):
    frame = results.load(run)
    derived = frame[frame["stage"] == "verify"]
    assert set(derived["table"]) == {"percentages", "percentages_novm", "near_zero", "sensitivity"}
    assert derived["n"].isna().all()
    assert (frame.loc[frame["stage"] != "verify", "n"] == 100).all()
    assert len(frame) - len(derived) == len(rows)


def test_a_run_that_was_not_judged_has_no_verdict(run):
    (run / "verify" / "manifest.json").unlink()
    frame = results.load(run)
    assert frame["verdict"].isna().all()
    assert "verify" not in set(frame["stage"])
    assert results.claims(run).empty


def test_claims_come_with_their_verdicts(run, relations):
    claims = results.claims(run).set_index("name")
    assert set(claims.index) == {relation.id for relation in relations}
    assert claims.loc["constructions-exact", "verdict"] == "match"


def test_verdicts_on_other_numbers_are_refused(run):
    manifest = Manifest.read(run / "probe")
    Manifest(**{**vars(manifest), "outputs": {"metrics.csv": storage.sha256(run / "probe" / "metrics.csv")}}
             ).write(run / "probe")
    with pytest.raises(UsageError, match="judged other outputs than those in probe"):
        results.load(run)


def test_changed_verdicts_are_refused(run):
    path = run / "verify" / "verdicts.csv"
    path.write_text(path.read_text().replace("match", "differs", 1))
    with pytest.raises(CorruptArtifact, match="verdicts.csv does not have the SHA-256"):
        results.load(run)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "empty" / "grammar").mkdir(parents=True)
    with pytest.raises(UsageError, match="is no run: none of its folders holds the manifest.json"):
        results.load(tmp_path / "empty")
    with pytest.raises(UsageError, match="no folder at"):
        results.load(tmp_path / "nowhere")
