"""Skipping, resuming after kill -9, locks and damaged artifacts, on the stages grammar and sample."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.run import stage_folder
from pcfg_artifact.system import storage

SIZES = ["--set", "sample.n_pretraining=30000", "--set", "sample.n_validation=50", "--set", "sample.n_probe_train=40",
         "--set", "sample.n_probe_test=30"]
LINES = ["(S (NP (DT the) (NN cat)) (VP (VBD saw) (NP (DT a) (NN dog))) (. .))", "(S (NP (PRP she)) (VP (VBZ runs)))",
         "(S (NP (NP (DT the) (NN dog)) (PP (IN near) (NP (DT a) (NN cat)))) (VP (VBD slept)) (. .))"]


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    path = tmp_path_factory.mktemp("treebank") / "trees.ptb"
    path.write_text("\n".join(LINES * 30))
    return str(path)


def command(treebank, out, *more):
    return ["--treebank", treebank, "--out", str(out), "--to", "sample", *SIZES, *more]


def contents(out: Path):
    """Every output file of every stage, by hash; manifests hold times and are compared by what they record."""
    return {stage: stage_folder.Manifest.read(out / stage).outputs for stage in ("grammar", "sample")}


@pytest.fixture(scope="module")
def uninterrupted(treebank, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    assert main(command(treebank, out)) == 0
    return contents(out)


def test_a_second_run_does_no_work_and_says_so(treebank, tmp_path, capsys):
    assert main(command(treebank, tmp_path)) == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(command(treebank, tmp_path)) == 0
    assert "nothing to do" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"} \
        == {path: stamp for path, stamp in before.items() if path.name != ".lock"}


def test_a_changed_setting_reruns_what_depends_on_it_and_says_what_changed(treebank, tmp_path, capsys):
    assert main(command(treebank, tmp_path)) == 0
    capsys.readouterr()
    assert main(command(treebank, tmp_path, "--set", "sample.n_validation=51")) == 0
    said = capsys.readouterr().err
    assert "[grammar] skipped" in said
    assert "config changed: n_validation" in said
    assert main(command(treebank, tmp_path, "--set", "grammar.cutoff=6")) == 0
    said = capsys.readouterr().err
    assert "config changed: cutoff" in said


def test_a_changed_treebank_reruns_everything(treebank, tmp_path, capsys):
    copy = tmp_path / "copy.ptb"
    copy.write_text(Path(treebank).read_text())
    assert main(command(str(copy), tmp_path / "out")) == 0
    copy.write_text(Path(treebank).read_text() + LINES[0] * 3)
    capsys.readouterr()
    assert main(command(str(copy), tmp_path / "out")) == 0
    said = capsys.readouterr().err
    assert "input changed: treebank" in said
    assert "input changed: grammar" in said


@pytest.mark.parametrize("delay", [0.0, 0.15, 0.4, 0.8])
def test_kill_9_at_any_moment_then_the_same_command_ends_with_the_same_bytes(delay, treebank, tmp_path, uninterrupted):
    process = subprocess.Popen([sys.executable, "-m", "pcfg_artifact", *command(treebank, tmp_path)],
                               stderr=subprocess.PIPE, text=True)
    process.stderr.readline()  # the first stage has begun
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert main(command(treebank, tmp_path)) == 0
    assert contents(tmp_path) == uninterrupted
    assert not list(tmp_path.rglob(f"{storage.TEMPORARY}*"))


def test_a_damaged_artifact_is_a_clear_error_and_force_mends_it(treebank, tmp_path, capsys, uninterrupted):
    assert main(command(treebank, tmp_path)) == 0
    damaged = tmp_path / "grammar" / "train.trees"
    damaged.write_text(damaged.read_text().replace("cat", "cow"))
    assert main(command(treebank, tmp_path)) == 1
    assert "train.trees does not have the SHA-256" in capsys.readouterr().err
    assert main(["--only", "grammar", "--force", "--treebank", treebank, "--out", str(tmp_path)]) == 0
    assert main(command(treebank, tmp_path)) == 0
    assert contents(tmp_path) == uninterrupted


def test_force_replaces_a_manifest_of_another_release(treebank, tmp_path, capsys, uninterrupted):
    assert main(command(treebank, tmp_path)) == 0
    (tmp_path / "grammar" / "manifest.json").write_text('{"other": 1}')
    assert main(command(treebank, tmp_path)) != 0
    assert "run the stage again with --force" in capsys.readouterr().err
    assert main(command(treebank, tmp_path, "--force")) == 0
    assert contents(tmp_path) == uninterrupted


def test_a_second_run_on_a_folder_in_use_exits_2(treebank, tmp_path):
    with stage_folder.lock(tmp_path):
        done = subprocess.run([sys.executable, "-m", "pcfg_artifact", *command(treebank, tmp_path)],
                              capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "in use by another run" in done.stderr


def test_a_full_disk_is_a_clear_error_and_the_stage_is_not_done(treebank, tmp_path):
    limited = ("import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
               "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000)); "
               "from pcfg_artifact.cli import main; sys.exit(main(sys.argv[1:]))")
    done = subprocess.run([sys.executable, "-c", limited, *command(treebank, tmp_path)],
                          capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "sample" / stage_folder.MANIFEST).exists()
    assert main(command(treebank, tmp_path)) == 0


def test_the_run_script_works_from_any_folder_and_passes_the_exit_code(tmp_path):
    script = Path(__file__).parents[2] / "run_all.sh"
    environment = {**os.environ, "PCFG_ARTIFACT_IN_IMAGE": "1",
                   "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([script, "--profile", "nothing"], cwd=tmp_path, env=environment, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2
    assert "unknown profile" in done.stderr
