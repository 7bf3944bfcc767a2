"""Damaged checkpoints, another vocabulary, a full disk: a clear error, and the previous checkpoint intact."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.mlm.training import TrainingState
from pcfg_artifact.workers import checkpoints
from pcfg_artifact.workers.launch import run_workers


def read_latest(folder):
    step = checkpoints.latest_step(folder)
    return None if step is None else checkpoints.read(folder, step)


def state_at(step: int, size: int = 100) -> TrainingState:
    tensors = {"weight.a": torch.arange(size, dtype=torch.float32) + step}
    return TrainingState(step, [2.0] * step, [(step, 1.5)], tensors)


def same(a: TrainingState, b: TrainingState) -> bool:
    return (a.step, a.losses, a.validation) == (b.step, b.losses, b.validation) and \
        torch.equal(a.tensors["weight.a"], b.tensors["weight.a"])


def test_the_last_two_checkpoints_are_kept_and_the_newest_is_read(tmp_path):
    assert read_latest(tmp_path) is None
    for step in (1, 2, 3):
        checkpoints.write(tmp_path, state_at(step))
    assert checkpoints.steps(tmp_path) == [2, 3]
    assert same(read_latest(tmp_path), state_at(3))


@pytest.mark.parametrize("damage", ["truncated", "changed", "missing", "state truncated"])
def test_a_damaged_checkpoint_is_an_error_that_says_how_to_go_on(tmp_path, damage):
    for step in (1, 2):
        checkpoints.write(tmp_path, state_at(step))
    newest = checkpoints.path_of(tmp_path, 2)
    tensors, state = newest / checkpoints.TENSORS, newest / checkpoints.STATE
    if damage == "missing":
        tensors.unlink()
    elif damage == "changed":
        tensors.write_bytes(tensors.read_bytes()[:-1] + b"\x7f")
    else:
        file = state if damage.startswith("state") else tensors
        file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(CorruptArtifact, match="step-0000002 is damaged .* to continue from step 1"):
        read_latest(tmp_path)
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()
    assert same(read_latest(tmp_path), state_at(1))


def test_a_full_disk_is_an_error_and_leaves_the_previous_checkpoint(tmp_path):
    checkpoints.write(tmp_path, state_at(1))
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails as it does on a full disk
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(StageError, match="cannot write .*free space"):
            checkpoints.write(tmp_path, state_at(2, size=100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-0000001"]  # and nothing half-written
    assert same(read_latest(tmp_path), state_at(1))


def test_a_checkpoint_of_another_model_is_refused():
    from pcfg_artifact.mlm.data import MaskedCorpus
    from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
    from pcfg_artifact.mlm.training import Callbacks, Recipe, train
    from pcfg_artifact.parsing.masks import Masking
    from pcfg_artifact.system.ragged import Ragged

    corpus = MaskedCorpus(Ragged.from_rows([np.arange(6)] * 8, np.uint16), n_words=10, masking=Masking(0.5), seed=0,
                          batch_size=4, batch_tokens=100, max_length=10)

    def model(n_layers):
        shape = parse_shape(f"A1L{n_layers}")
        return build_model(build_config(shape, n_words=10, width=8, max_length=10, dropout=0.0), 0)

    saved = []
    recipe = Recipe(1, 2, 1, 1e-3, 0.0, 1.0)
    train(model(1), corpus, recipe, seed=0, callbacks=Callbacks(save=saved.append))
    with pytest.raises(StageError, match="checkpoint of step 1 is of another model"):
        train(model(2), corpus, Recipe(2, 2, 1, 1e-3, 0.0, 1.0), seed=0, start=saved[0])
    with pytest.raises(StageError, match="the loss became (nan|inf); lower pretrain.learning_rate"):
        train(model(1), corpus, Recipe(5, 5, 1, 1e38, 0.0, 1.0), seed=0)


def test_a_worker_that_fails_ends_the_others_and_its_message_is_the_error(tmp_path):
    long = "import time; time.sleep(100)"
    bad = "import sys; print('error: the shard is gone', file=sys.stderr); sys.exit(2)"
    logs = {name: tmp_path / name for name in ("long", "bad")}
    start = time.monotonic()
    with pytest.raises(StageError, match="^bad: the shard is gone$"):
        run_workers({"long": ("-c", long), "bad": ("-c", bad)}, logs, 2, lambda: None)
    assert time.monotonic() - start < 50
    with pytest.raises(StageError, match="the process of dead was ended by SIGKILL"):
        run_workers({"dead": ("-c", "import os; os.kill(os.getpid(), 9)")}, {"dead": tmp_path / "d"}, 1, lambda: None)


def test_workers_end_when_their_parent_is_killed(tmp_path):
    """A parent that runs workers is ended by kill -9; its worker asks the kernel to follow it."""
    marker = tmp_path / "child"
    worker = ("from pcfg_artifact.workers.trainer import end_with_parent; import os, pathlib, time; "
              f"end_with_parent(None); pathlib.Path({str(marker)!r}).write_text(str(os.getpid())); time.sleep(100)")
    parent = subprocess.Popen([sys.executable, "-c", (
        "from pathlib import Path; from pcfg_artifact.workers.launch import run_workers; "
        f"run_workers({{'w': ('-c', {worker!r})}}, {{'w': Path({str(tmp_path / 'log')!r})}}, 1, lambda: None)")],
        env={"PYTHONPATH": str(Path(checkpoints.__file__).parents[2]), "PATH": ""})
    deadline = time.monotonic() + 60
    while not (marker.is_file() and marker.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    child = Path(f"/proc/{marker.read_text()}")
    assert child.exists()
    parent.kill()
    parent.wait()
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)


def is_alive(process: Path) -> bool:
    """Whether a process runs; one that has ended may wait for somebody to ask (Z)."""
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
