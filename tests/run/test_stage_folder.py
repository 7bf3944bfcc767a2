import errno
import os
import resource
import subprocess
import sys
import time

import numpy as np
import pytest

from pcfg_artifact.errors import CorruptArtifact, StageError, UsageError
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.run import stage_folder
from pcfg_artifact.run.stage_folder import Manifest, Ragged, RaggedWriter
from pcfg_artifact.system import signs_of_life, storage


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StageError, match=r"cannot write .*file/a\.txt: (Not a directory|File exists)"):
        storage.write_text(tmp_path / "file" / "a.txt", "x")


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path):
    storage.write_text(tmp_path / "a.txt", "old")
    def fail_halfway():
        with storage.atomic_open(tmp_path / "a.txt") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_is_a_clear_error_and_nothing_half_written_stays(tmp_path, monkeypatch):
    def no_space(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StageError, match="No space left on device; free space"):
        storage.write_array(tmp_path / "x.npy", np.zeros(3))
    assert list(tmp_path.iterdir()) == []


def test_a_file_size_limit_stops_a_streamed_write_cleanly(tmp_path):
    code = ("import sys, resource, signal, numpy as np\nfrom pathlib import Path\n"
            "from pcfg_artifact.run.stage_folder import Ragged, RaggedWriter\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\n"
            "with RaggedWriter(Path(sys.argv[1]) / 'x', np.int64) as writer:\n"
            "    for _ in range(100): writer.append(Ragged(np.zeros(1000, np.int64), np.array([0, 1000])))\n")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "StageError: cannot write" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_ragged_writer_writes_what_numpy_reads(tmp_path):
    rows = [np.arange(k) for k in (3, 0, 5, 1)]
    with RaggedWriter(tmp_path / "x", np.uint16) as writer:
        writer.append(Ragged.from_rows(rows[:2]))
        writer.append(Ragged.from_rows(rows[2:]))
    read = stage_folder.Folder(tmp_path).ragged("x", memory_map=True)
    assert read.values.dtype == np.uint16
    assert [row.tolist() for row in read.rows()] == [row.tolist() for row in rows]


def test_comments_in_metrics_are_passed_over(tmp_path):
    out = stage_folder.StageDir(tmp_path)
    number = Metric(table="t", metric="m", value=1 / 3, n=1, unit="count")
    out.write_metrics([number])
    text = (tmp_path / "metrics.csv").read_text()
    (tmp_path / "metrics.csv").write_text("# a comment\n" + text)
    assert out.metrics() == [number]


def test_a_metrics_file_with_other_columns_is_refused(tmp_path):
    (tmp_path / "metrics.csv").write_text("table,row\nx,y\n")
    with pytest.raises(CorruptArtifact, match="expected the columns table,grammar,model"):
        stage_folder.Folder(tmp_path).metrics()


def test_a_changed_or_missing_output_is_found(tmp_path):
    (tmp_path / "x").write_text("one")
    manifest = Manifest("s", "f", {}, {}, {"x": storage.sha256(tmp_path / "x")})
    manifest.verify(tmp_path)
    (tmp_path / "x").write_text("two")
    with pytest.raises(CorruptArtifact, match="SHA-256"):
        manifest.verify(tmp_path)
    (tmp_path / "x").unlink()
    with pytest.raises(CorruptArtifact, match="missing"):
        manifest.verify(tmp_path)


def test_begin_keeps_equal_work_wipes_other_work_and_refuses_foreign_files(tmp_path):
    folder = stage_folder.begin(tmp_path / "s", "one")
    folder.write_text("kept.txt", "x")
    (folder.root / "below" / f"{storage.TEMPORARY}step-5").mkdir(parents=True)  # a kill left half a checkpoint
    (folder.root / "below" / f"{storage.TEMPORARY}step-5" / f"{storage.TEMPORARY}tensors").write_text("half")
    assert stage_folder.begin(tmp_path / "s", "one").has("kept.txt")
    assert not list(folder.path("below").iterdir())
    assert stage_folder.begin(tmp_path / "s", "two", keeps=("kept.txt",)).has("kept.txt")
    assert not stage_folder.begin(tmp_path / "s", "two", keeps=("kept.txt",), fresh=True).has("kept.txt")
    folder.write_text("kept.txt", "x")
    assert not stage_folder.begin(tmp_path / "s", "three").has("kept.txt")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match="thesis.tex"):
        stage_folder.begin(tmp_path / "mine", "one")
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_a_folder_in_use_is_refused(tmp_path):
    code = (f"from pathlib import Path\nfrom pcfg_artifact.run import stage_folder\n"
            f"with stage_folder.lock(Path({str(tmp_path)!r})): pass")
    with stage_folder.lock(tmp_path):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "in use by another run" in done.stderr
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def no_locks(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(stage_folder.fcntl, "flock", refuse)
    monkeypatch.setattr(signs_of_life, "BEAT_SECONDS", 0.2)


def test_a_file_system_without_locks_keeps_a_second_run_away_all_the_same(tmp_path, no_locks, capsys):
    with stage_folder.lock(tmp_path):
        with pytest.raises(UsageError, match=r"in use by another run \(process \d+ on .*, sign \d+\); wait for it"), \
                stage_folder.lock(tmp_path):
            pass
        assert "has no locks" in capsys.readouterr().err
    with stage_folder.lock(tmp_path):
        assert capsys.readouterr().err == ""  # nothing to wait for
    assert not (tmp_path / stage_folder.LEASE).exists()


def test_the_folder_of_a_run_that_was_killed_is_taken_over(tmp_path, no_locks):
    """A job that was preempted starts again elsewhere, and nobody is there to remove anything."""
    (tmp_path / stage_folder.LEASE).write_text("process 7 on another machine, 1234, sign 12\n")
    began = time.monotonic()
    with stage_folder.lock(tmp_path):
        assert time.monotonic() - began >= signs_of_life.BEATS_TO_WAIT * 0.2
        assert f"process {os.getpid()} on" in (tmp_path / stage_folder.LEASE).read_text()


def test_truncated_arrays_and_json_are_named(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY")
    (tmp_path / "x.json").write_text("{")
    folder = stage_folder.Folder(tmp_path)
    with pytest.raises(CorruptArtifact, match="x.npy is not a NumPy array"):
        folder.array("x")
    with pytest.raises(CorruptArtifact, match="x.json is not JSON"):
        folder.json("x")
    with pytest.raises(CorruptArtifact, match="y.npy is missing"):
        folder.array("y")


def test_pickled_arrays_are_never_loaded(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(CorruptArtifact):
        stage_folder.Folder(tmp_path).array("x")
