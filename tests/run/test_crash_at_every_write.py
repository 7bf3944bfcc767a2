"""The process dies before its n-th write, fsync or rename, for every n: continued, it ends with the same files."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm.training import TrainingState
from pcfg_artifact.run import stage_folder
from pcfg_artifact.run.stage_folder import Manifest, Ragged, RaggedWriter
from pcfg_artifact.system import storage
from pcfg_artifact.workers import checkpoints, trainer

DEAD = 9
N_STEPS = 4


def read_latest(folder):
    """The newest checkpoint, or None."""
    step = checkpoints.latest_step(folder)
    return None if step is None else checkpoints.read(folder, step)


class Network:
    """What publish needs of a model: files that another library writes, without asking ours."""

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"layers": 1}')
        (folder / "model.safetensors").write_bytes(bytes(range(256)))


def work(root: Path) -> None:
    """A stage that uses every way to write: what is there is kept, what is not is made."""
    out = stage_folder.begin(root / "stage", "mark")
    if not out.has("one.json"):
        out.write_json("one", {"a": 1})
    if not out.has("sealed.json"):
        storage.write_sealed_json(out.path("sealed.json"), {"losses": [1.5, 2.0]})
    if not out.has("rows.offsets.npy") or not out.has("rows.values.npy"):
        with RaggedWriter(out.path("rows"), np.int32) as writer:
            writer.append(Ragged.from_rows([np.arange(5), np.arange(0), np.arange(3)]))
    if not out.has("bundle.json"):
        storage.save_bundle(out.root, "bundle", {"format": "x"}, {"a": np.arange(4)})
    train(out)
    out.write_metrics([Metric(table="t", metric="m", value=1.0, n=1, unit="count")])
    outputs = {name: storage.sha256(out.path(name)) for name in out.files()}
    Manifest("stage", "mark", {}, {}, outputs).write(out.root)


def train(out: stage_folder.StageDir) -> None:
    folder, final = out.path("scratch/A1L1"), out.path("models/A1L1")
    job = SimpleNamespace(words=("a", "b"), config=SimpleNamespace(max_length=5), untrained=out.path("untrained/A1L1"),
                          kept=out.path("kept/A1L1"))
    if (final / trainer.FINISHED).is_file():
        storage.read_sealed_json(final / trainer.FINISHED)
        checkpoints.remove_all(folder)
        return
    trainer.publish(Network(), job, folder, job.untrained)
    start = read_latest(folder)
    for step in range(start.step + 1 if start else 1, N_STEPS + 1):
        checkpoints.write(folder, TrainingState(step, [0.5] * step, [], {"w": torch.full((40,), float(step))}))
    trainer.publish(Network(), job, folder, final, {"losses": [0.5] * N_STEPS})
    checkpoints.remove_all(folder)


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def die_at(n: int, work_to_do) -> int:
    """The exit code of a fork that does the work, and dies at its n-th event as a machine does: nothing is cleaned up.

    A file that was not yet synced loses its second half.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code, count = 1, 0
    try:
        def watch(event: str, path: Path) -> None:
            nonlocal count
            count += 1
            if count == n:
                if event == "fsync" and path.is_file():
                    os.truncate(path, path.stat().st_size // 2)
                os._exit(DEAD)

        storage.watchers.append(watch)
        work_to_do()
        code = 0
    finally:
        os._exit(code)


@pytest.fixture
def no_waiting(monkeypatch):
    """The disk is not waited for: what a sync is for is played by the truncation."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def count_events(monkeypatch, root: Path) -> list[str]:
    events: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(storage, "watchers", [lambda event, path: events.append(event)])
        work(root)
    return events


def test_a_crash_at_every_write_fsync_and_rename_ends_with_the_same_files(tmp_path, monkeypatch, no_waiting):
    events = count_events(monkeypatch, tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    assert {"write", "fsync", "rename"} == set(events)
    assert len(events) > 80
    for n in range(1, len(events) + 1):
        root = tmp_path / str(n)
        assert die_at(n, lambda: work(root)) == DEAD, n  # noqa: B023 - called at once
        finished = Manifest.read(root / "stage")
        if finished is not None:  # died after the last rename: all of it must be there
            finished.verify(root / "stage")
        work(root)
        assert contents(root) == expected, f"after a crash at event {n} of {len(events)}, a {events[n - 1]}"


def test_two_crashes_in_a_row_end_with_the_same_files(tmp_path, monkeypatch, no_waiting):
    n_events = len(count_events(monkeypatch, tmp_path / "whole"))
    expected = contents(tmp_path / "whole")
    for n in range(1, n_events, 7):
        root = tmp_path / str(n)
        assert die_at(n, lambda: work(root)) == DEAD  # noqa: B023 - called at once
        die_at(1 + n_events // 5, lambda: work(root))  # noqa: B023 - called at once
        work(root)
        assert contents(root) == expected, n


def test_the_test_finds_a_write_that_is_not_atomic(tmp_path, monkeypatch, no_waiting):
    """The planted fault: files written under their final name."""
    def in_place(path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.announce("write", path)
        path.write_bytes(data)
        storage.announce("fsync", path)

    monkeypatch.setattr(storage, "write_bytes", in_place)
    events = count_events(monkeypatch, tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    failures = 0
    for n in range(1, len(events) + 1, 5):
        root = tmp_path / str(n)
        die_at(n, lambda: work(root))  # noqa: B023 - called at once
        try:
            work(root)
            failures += contents(root) != expected
        except Exception:
            failures += 1
    assert failures > 0
