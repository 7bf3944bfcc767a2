"""Files of a run that somebody changed, or another program wrote: one clear message, never other numbers."""

import json
import os
import resource
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pcfg_artifact.cli import main
from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm.training import TrainingState
from pcfg_artifact.probing.tasks import TaskResult
from pcfg_artifact.run import pipeline, refusals, stage_folder
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.stage_folder import Manifest, StageDir
from pcfg_artifact.stages import pretrain
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import Hardware, Machine
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.workers import checkpoints, hidden_states, jobs, probe_fits, trainer

# ---- manifests and marks ---------------------------------------------------------------------------------------------

WRONG = {"outputs": None, "inputs": [], "config": "x", "code": {"a": 1}, "versions": 3, "fingerprint": None, "stage": 7,
         "seconds": "long", "facts": None}


def read_latest(folder):
    """The newest checkpoint, or None."""
    step = checkpoints.latest_step(folder)
    return None if step is None else checkpoints.read(folder, step)


@pytest.mark.parametrize("name", WRONG)
def test_a_manifest_with_a_wrong_type_is_refused_by_name(name, tmp_path):
    Manifest("s", "f", {}, {}, {}).write(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {name: WRONG[name]}))
    with pytest.raises(CorruptArtifact, match=f"not a manifest of this release .*{name}.*--force"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("text", ["null", "[]", "3", '"x"', "{}", "[" * 100_000])
def test_a_manifest_that_is_no_object_is_refused(text, tmp_path):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CorruptArtifact, match="manifest.json is not"):
        Manifest.read(tmp_path)


def test_a_mark_that_is_no_text_is_another_mark(tmp_path):
    folder = stage_folder.begin(tmp_path / "s", "one")
    folder.write_text("old.txt", "x")
    (tmp_path / "s" / stage_folder.STARTED).write_bytes(b"\xff\xfe\x00")
    assert not stage_folder.begin(tmp_path / "s", "one").has("old.txt")


# ---- sealed files ----------------------------------------------------------------------------------------------------


def test_a_sealed_file_is_read_back_and_every_change_of_it_is_found(tmp_path):
    path = tmp_path / "x.json"
    storage.write_sealed_json(path, {"a": (1, 2.5), 3: None, 12: {"b": [0.1]}})
    assert storage.read_sealed_json(path) == {"a": [1, 2.5], "3": None, "12": {"b": [0.1]}}
    text = path.read_text()
    for old, new in (("2.5", "2.6"), ("null", "0"), ('"b"', '"c"'), ("0.1", "0.10001")):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(CorruptArtifact, match="changed after it was written"):
            storage.read_sealed_json(path)
    for foreign in ("{}", "[]", "null", '{"seal": 1}'):
        path.write_text(foreign)
        with pytest.raises(CorruptArtifact, match="has no 'seal'"):
            storage.read_sealed_json(path)


@pytest.mark.parametrize("change", [{"step": 3}, {"losses": [2.0, 2.5]}, {"losses": None}, {"loss_scale": 4.0}])
def test_an_edited_checkpoint_is_not_continued(change, tmp_path):
    for step in (1, 2):
        checkpoints.write(tmp_path, TrainingState(step, [2.0] * step, [], {"w": torch.zeros(4)}))
    state = checkpoints.path_of(tmp_path, 2) / checkpoints.STATE
    state.write_text(json.dumps(json.loads(state.read_text()) | change))
    with pytest.raises(CorruptArtifact, match="step-0000002 is damaged .*changed after .* to continue from step 1"):
        read_latest(tmp_path)


def test_a_checkpoint_under_the_name_of_another_step_is_not_continued(tmp_path):
    checkpoints.write(tmp_path, TrainingState(2, [2.0] * 2, [], {"w": torch.zeros(4)}))
    checkpoints.path_of(tmp_path, 2).rename(checkpoints.path_of(tmp_path, 3))
    with pytest.raises(CorruptArtifact, match="is of step 2 and has 2 losses, expected 3 of both"):
        read_latest(tmp_path)


# ---- finished models of an unfinished stage --------------------------------------------------------------------------


class Network:
    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(bytes(64))


CONFIG = load_profile("smoke", ["pretrain.models=[A1L1]", "pretrain.causal_models=[]", "pretrain.steps=3"]).pretrain
RESULT = {"losses": [1.0] * 3, "validation": [], "n_left_out": 0}


@pytest.fixture
def stage(tmp_path) -> StageDir:
    """The stage pretrain with one finished model."""
    out = StageDir(tmp_path / "pretrain")
    publish(out, out.path("untrained/A1L1"))
    publish(out, out.path("kept/A1L1/step-0000001"))
    publish(out, out.path("models/A1L1"), RESULT)
    return out


def publish(out: StageDir, final: Path, result=None) -> None:
    job = SimpleNamespace(words=("a",), config=SimpleNamespace(max_length=5), untrained=out.path("untrained/A1L1"),
                          kept=out.path("kept/A1L1"))
    trainer.publish(Network(), job, out.path("scratch/A1L1"), final, result)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def edit_losses(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"losses": None}))


@pytest.mark.parametrize(("file", "damage", "expected"), [
    ("models/A1L1/model.safetensors", flip, "model.safetensors does not have the SHA-256"),
    ("models/A1L1/tokenizer.json", flip, "tokenizer.json does not have the SHA-256"),
    ("models/A1L1/config.json", Path.unlink, "config.json is missing"),
    ("models/A1L1/training.json", edit_losses, "changed after it was written"),
    ("models/A1L1/training.json", lambda path: path.write_text("{}"), "has no 'seal'"),
    ("untrained/A1L1/model.safetensors", flip, "model.safetensors does not have the SHA-256"),
    ("untrained/A1L1", shutil.rmtree, "untrained/A1L1/config.json is missing"),
    ("kept/A1L1/step-0000001/model.safetensors", flip, "model.safetensors does not have the SHA-256"),
    ("kept/A1L1", shutil.rmtree, "kept/A1L1/step-0000001/config.json is missing"),
])
def test_a_finished_model_that_changed_is_an_error_that_says_how_to_go_on(file, damage, expected, stage):
    assert jobs.read_finished(CONFIG, stage, "A1L1")["losses"] == [1.0] * 3
    damage(stage.path(file))
    with pytest.raises(CorruptArtifact, match=f"the finished model A1L1 is damaged .*{expected}.* to train A1L1 again"):
        jobs.train_models(CONFIG, stage, Machine("cpu", 1))


def test_a_model_folder_without_training_json_is_replaced_when_training_ends(stage):
    stage.path("models/A1L1/training.json").unlink()
    stage.path("models/A1L1/other").write_text("x")
    publish(stage, stage.path("models/A1L1"), RESULT)
    assert jobs.read_finished(CONFIG, stage, "A1L1")["losses"] == [1.0] * 3
    assert not stage.has("models/A1L1/other")


def test_lost_facts_of_a_finished_model_cost_the_facts_alone(stage, monkeypatch):
    result = RESULT | {"n_validation": 5, "training_loss": 1.0, "validation_loss": 1.0}
    publish(stage, stage.path("models/A1L1"), result)
    for name in ("check_shards", "check_shapes", "write_jobs", "write_cards"):
        monkeypatch.setattr(pretrain, name, lambda *_: None)
    monkeypatch.setattr(pretrain, "against_optimum", lambda *_: [])
    inputs = Inputs({"sample": stage.root}, "none")
    monkeypatch.setattr(inputs, "sentences", lambda split: Ragged(np.zeros(0, int), np.zeros(1, int)))
    monkeypatch.setattr(inputs, "pcfg", lambda: SimpleNamespace(words=("a",)))
    assert not stage.has(f"scratch/A1L1/{trainer.FACTS}")
    pretrain.run(CONFIG, inputs, stage, Machine("cpu", 1))
    assert stage.facts["A1L1"] == {"sentences_left_out": 0}


def test_untrained_models_stay_when_finished_ones_do():
    """A finished model is not trained again, so that nobody would write its untrained twin again."""
    keeps = next(stage.keeps for stage in pipeline.STAGES if stage.name == "pretrain")
    assert {*jobs.FOLDERS, stage_folder.PROGRESS} == set(keeps)


# ---- fits of probes --------------------------------------------------------------------------------------------------


@pytest.fixture
def context(tmp_path):
    cfg = load_profile("smoke").probe
    return probe_fits.Context(cfg, {}, {}, "A1L1", {}, Machine("cpu", 1), tmp_path / "scratch", tmp_path / "fits")


FIT = probe_fits.Fit(probe_fits.Unit("A1L1", 0, "my probe"), "treebank train", "EOS")


def test_a_fit_has_the_same_bytes_whatever_time_it_took(context):
    score = Metric(table="parsing", probe="my probe", setting="treebank", input="EOS", metric="accuracy",
                   value=float("nan"), n=3, unit="fraction")
    written = []
    for seconds in (1.0, 2.5):
        probe_fits.write_result(context, FIT, TaskResult([score, score.at(value=0.1 + 0.2)]), seconds)
        written.append(context.path(FIT).read_bytes())
    assert written[0] == written[1]
    assert probe_fits.read_times(context) == {"A1L1-L0-my-probe-treebank-train-EOS": 2.5}
    diverged, found = probe_fits.read_result(context, FIT)[0]
    assert np.isnan(diverged.value)
    assert found == score.at(model="A1L1", layer=0, value=0.1 + 0.2)


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"scores": null}', '{"scores": [[1]]}',
                                  '{"scores": [{"value": 1.0}]}', "\ufeff", "x"])
def test_foreign_json_in_a_fit_is_refused(text, context):
    context.path(FIT).parent.mkdir(parents=True)
    context.path(FIT).write_text(text)
    with pytest.raises(CorruptArtifact, match="L0-my-probe-treebank-train-EOS.json"):
        probe_fits.read_result(context, FIT)
    if text.startswith("{"):
        storage.write_sealed_json(context.path(FIT), json.loads(text))
        with pytest.raises(CorruptArtifact, match="is not the result of a fit"):
            probe_fits.read_result(context, FIT)


# ---- full disks ------------------------------------------------------------------------------------------------------


def test_hidden_states_that_do_not_fit_on_the_disk_are_a_message_and_no_sigbus(tmp_path):
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the allocation then fails as it does on a full disk
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(StageError, match=r"cannot store the hidden states of a layer \(1 MB\).*free space"):
            hidden_states._new_array(tmp_path, "float32", 0, (1000, 256))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


def test_the_room_of_hidden_states_is_taken_before_they_are_computed(tmp_path):
    array = hidden_states._new_array(tmp_path, "float32", 0, (1000, 256))
    (file,) = tmp_path.iterdir()
    assert file.stat().st_blocks * 512 >= array.nbytes


LINES = "(S (NP (DT the) (NN cat)) (VP (VBD saw) (NP (DT a) (NN dog))) (. .))\n" * 40


@pytest.fixture
def treebank(tmp_path) -> str:
    (tmp_path / "trees.ptb").write_text(LINES)
    return str(tmp_path / "trees.ptb")


def test_a_finished_run_on_a_full_disk_is_not_refused(treebank, tmp_path, monkeypatch, capsys):
    command = ["--treebank", treebank, "--out", str(tmp_path / "out"), "--only", "grammar"]
    assert main(command) == 0
    full = Hardware(8.0, 8.0, 0.0, tmp_path, True, None, (), None, None)
    monkeypatch.setattr(refusals.machine, "read_hardware", lambda out: full)
    assert main(command) == 0
    assert main([*command, "--force"]) == 2
    assert "0.0 GB free" in capsys.readouterr().err


def test_what_verify_cannot_compare_with_is_refused_before_anything_runs(treebank, tmp_path, capsys):
    assert main(["--treebank", treebank, "--out", str(tmp_path / "out"), "--set", "verify.expected=nosuch"]) == 2
    assert "verify.expected is 'nosuch', expected one of laptop, paper, reduced, smoke" in capsys.readouterr().err
    assert not (tmp_path / "out" / "grammar").exists()


@pytest.mark.parametrize("command", [["--out", ""], ["--out", "  "], ["export", "--run", "x", "--out", ""],
                                     ["states", "--treebank", "embedded", "--out", ""],
                                     ["record", "--profile", "smoke", "--out", ""]], ids=" ".join)
def test_an_empty_output_folder_is_refused(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    assert "empty" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
