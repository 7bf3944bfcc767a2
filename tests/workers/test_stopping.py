"""Signals, failures and the first machine's end: what training saves, who restarts, and who ends with whom."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from small_run import ENVIRONMENT, SMALL, WORDS, shards_of, write_run

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.mlm.training import TrainingState
from pcfg_artifact.run.stage_folder import PROGRESS, StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.workers import checkpoints, distributed, jobs, trainer, training_log


def config_of(out: StageDir):
    return jobs.TrainingJob.read(out.path("scratch/A2L1/job.json")).config


TRAIN = """
import sys
from pathlib import Path
from pcfg_artifact import cli
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.workers.jobs import TrainingJob, train_models
out = StageDir(Path(sys.argv[1]))
cfg = TrainingJob.read(out.path("scratch/A2L1/job.json")).config
cli._run_tool = lambda name, arguments: train_models(cfg, out, Machine("cpu", 2)) or 0
sys.exit(cli.main(["train"]))
"""


def until(holds, seconds=600.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "processes"), [(signal.SIGTERM, 1), (signal.SIGUSR1, 1), (signal.SIGTERM, 2)])
def test_a_run_that_is_asked_to_stop_loses_no_step_and_continues_to_the_same_numbers(tmp_path, number, processes):
    """save_every lies beyond the last step: without a checkpoint at the signal all steps would be lost."""
    out = write_run(tmp_path, steps=3000, schedule_steps=6000, processes=processes)
    run = subprocess.Popen([sys.executable, "-c", TRAIN, str(out.root)], env=ENVIRONMENT, stderr=subprocess.PIPE)
    log = out.path(PROGRESS)
    try:
        until(lambda: log.is_file() and log.stat().st_size > 0)
        run.send_signal(number)
        assert run.wait(60) == 128 + number, run.stderr.read()
    finally:
        run.kill()
    reached = checkpoints.latest_step(out.path("scratch/A2L1"))
    seen = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert reached >= seen[0] > 0
    if processes == 1:  # continued to a few steps later, it has the losses of an unbroken run
        job = jobs.TrainingJob.read(out.path("scratch/A2L1/job.json"))
        job = dataclasses.replace(job, config=dataclasses.replace(job.config, steps=reached + 5))
        torch.set_num_threads(1)  # as in a worker
        losses = []
        for first, place in ((reached, out.path("scratch/A2L1")), (None, tmp_path / "alone" / "scratch" / "A2L1")):
            place.mkdir(parents=True, exist_ok=True)
            other = dataclasses.replace(job, untrained=tmp_path / f"untrained-{first}")
            losses.append(trainer.train_model(other, place, trainer.Rank(), first)[1]["losses"])
        assert losses[0] == losses[1]


FAILS_ONCE = """
import os, sys
from pathlib import Path
from pcfg_artifact.mlm import training
from pcfg_artifact.workers import trainer
mark, before = Path(sys.argv[1]).with_name("failed"), training.update
def update(*args):
    if os.environ["RANK"] == "1" and not mark.is_file() and len(list(mark.parent.glob("step-*"))):
        mark.write_text("")
        os._exit(3)
    return before(*args)
training.update = update
sys.exit(trainer.run_job(Path(sys.argv[1]), in_group=True))
"""


@pytest.mark.parametrize("restarts", [0, 3])  # on a loaded machine a process that began again may fail once more
def test_a_process_that_fails_is_started_again_as_often_as_is_said(tmp_path, restarts):
    out = write_run(tmp_path, processes=2, save_every=10)
    script = tmp_path / "fails_once.py"
    script.write_text(FAILS_ONCE)
    run = subprocess.run([sys.executable, "-m", "torch.distributed.run", f"--max-restarts={restarts}",
                          *distributed.torchrun_options([], "A2L1"), "--nproc-per-node=2", str(script),
                          str(out.path("scratch/A2L1/job.json"))], env=ENVIRONMENT, capture_output=True, timeout=300)
    assert out.path("scratch/A2L1/failed").is_file()
    assert (run.returncode == 0) is bool(restarts)
    if restarts:
        assert out.json("scratch/A2L1/facts")["resumed_from_step"] >= 10
        assert len(out.json("models/A2L1/training")["losses"]) == SMALL["steps"]


def test_a_causal_model_that_fails_costs_the_others_nothing(tmp_path):
    out = write_run(tmp_path, causal_models=("C2L1",))
    cfg = config_of(out)
    out.path("scratch/C2L1/job.json").write_text("{}")
    with pytest.raises(StageError, match=r"C2L1: .*not a training job(.|\n)*--set pretrain.causal_models=\[\]"):
        jobs.train_models(cfg, out, Machine("cpu", 1))
    without = dataclasses.replace(cfg, causal_models=())
    finished = out.path("models/A2L1/training.json").stat().st_mtime_ns
    jobs.write_jobs(without, WORDS, shards_of(tmp_path), out, Machine("cpu", 1))
    jobs.train_models(without, out, Machine("cpu", 1))
    assert out.path("models/A2L1/training.json").stat().st_mtime_ns == finished


def test_the_restarts_of_a_profile_reach_torchrun(tmp_path, monkeypatch):
    out, commands = write_run(tmp_path), {}

    monkeypatch.setattr(jobs, "run_workers", lambda given, *rest: commands.update(given))
    jobs.train_models(config_of(out), out, Machine("cpu", 2, restarts=3))
    assert "--restarts=3" in commands["A2L1"]


def test_a_failed_process_names_its_rank_and_host(tmp_path):
    out = write_run(tmp_path, processes=2, save_every=10)
    script = tmp_path / "fails_once.py"
    script.write_text(FAILS_ONCE.replace("os._exit(3)", 'raise RuntimeError("NCCL error: unhandled system error")'))
    run = subprocess.run([sys.executable, "-m", "torch.distributed.run", *distributed.torchrun_options([], "A2L1"),
                          "--nproc-per-node=2", str(script), str(out.path("scratch/A2L1/job.json"))],
                         env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    where = f"A2L1: process 1 of 2 on {os.uname().nodename} (cpu)"
    assert f"{where} lost the others or failed (RuntimeError: NCCL error: unhandled system error)" in run.stderr


def test_the_precision_that_auto_chose_is_part_of_the_fingerprint(tmp_path, monkeypatch):
    made_from = []
    for has_bfloat16 in (True, False):
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation, found=has_bfloat16: found)
        out = write_run(tmp_path, Machine("cuda", 2), precision="auto")
        job = jobs.TrainingJob.read(out.path("scratch/A2L1/job.json"))
        made_from.append(job.made_from)
        assert job.config.precision == ("bfloat16" if has_bfloat16 else "float16")
    assert made_from[0] != made_from[1]


# ---- followers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setenv(distributed.TORCHRUN, "--nnodes=2 --rdzv-endpoint=127.0.0.1:9")
    monkeypatch.setattr(distributed, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(distributed, "BEAT_SECONDS", 0.1)


def test_a_follower_without_a_leader_ends_at_its_deadline(quick, tmp_path):
    write_run(tmp_path)
    with pytest.raises(StageError, match=r"the first machine gave no sign for 1 s in .*leader.json; start it, or wait "
                                         r"longer with --deadline"):
        distributed.follow(tmp_path, lambda line: None, deadline=1.0)


@pytest.mark.parametrize(("how", "deadline", "said"), [
    ("raise SystemExit(1)", 60.0, "failed or was stopped"), ("os._exit(1)", 8.0, "gave no sign for 8 s")])
def test_a_follower_ends_with_its_leader(quick, tmp_path, how, deadline, said):
    """The leader ends when the follower has begun to watch it."""
    write_run(tmp_path)
    watched = tmp_path / "watched"
    leader = ("import os, sys, time; from pathlib import Path; from pcfg_artifact.workers import distributed as d\n"
              "d.BEAT_SECONDS = 0.1\n"
              f"with d.leading(Path(sys.argv[1])):\n    while not Path({str(watched)!r}).exists():\n"
              f"        time.sleep(0.05)\n    {how}")
    environment = {**ENVIRONMENT, **os.environ, "PYTHONPATH": ENVIRONMENT["PYTHONPATH"]}
    with subprocess.Popen([sys.executable, "-c", leader, str(tmp_path)], env=environment) as process:
        try:
            until((tmp_path / distributed.LEADER).is_file)
            started = time.monotonic()
            with pytest.raises(StageError, match=said):
                distributed.follow(tmp_path, lambda line: watched.touch(), deadline)
        finally:
            process.kill()
    assert time.monotonic() - started < 25


def test_signs_of_an_earlier_leader_do_not_count(quick, tmp_path):
    with pytest.raises(ZeroDivisionError), distributed.leading(tmp_path):
        raise ZeroDivisionError
    assert '"has_failed": true' in (tmp_path / distributed.LEADER).read_text()
    distributed.check_leader(distributed.Watch(tmp_path / distributed.LEADER), 60.0)


def test_a_run_on_one_machine_gives_no_signs(tmp_path, monkeypatch):
    monkeypatch.delenv(distributed.TORCHRUN, raising=False)
    with distributed.leading(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


# ---- checkpoints beside training ------------------------------------------------------------------------------------


def test_a_checkpoint_that_cannot_be_written_is_an_error_of_training(tmp_path, monkeypatch):
    def refuse(folder, state):
        raise StageError("no space")

    monkeypatch.setattr(checkpoints, "write", refuse)
    with pytest.raises(StageError, match="no space"), checkpoints.Writer(tmp_path) as writer:
        writer.save(TrainingState(1, [1.0], []))


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    write, written = checkpoints.write, []

    def slowly(folder, state):
        time.sleep(0.5)
        write(folder, state)
        written.append(state.step)

    monkeypatch.setattr(checkpoints, "write", slowly)
    with checkpoints.Writer(tmp_path) as writer:
        writer.save(TrainingState(1, [1.0], []))
        assert written == []
    assert written == [1]


# ---- what a run says ------------------------------------------------------------------------------------------------


def test_a_run_without_a_terminal_says_every_minute_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training_log, "TELL_SECONDS", 0.0)
    out = write_run(tmp_path, steps=120, schedule_steps=200)
    jobs.train_models(config_of(out), out, Machine("cpu", 2))
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("[pretrain] A2L1 step ") and " of 120, loss " in line
            and "tokens/s" in line and " GB, " in line and line.endswith("left")]
    lines = [json.loads(line) for line in out.path(PROGRESS).read_text().splitlines()]
    assert [line["step"] for line in lines] == [50, 100, 120]
    losses = out.json("models/A2L1/training")["losses"]
    assert [line["loss"] for line in lines] == [losses[49], losses[99], losses[119]]
    for line in lines:
        assert line["gradient_norm"] > 0
        assert 0 < line["learning_rate"] <= config_of(out).learning_rate
        assert line["memory_mb"] > 100
        assert line["tokens_per_second"] > 0
        assert line["loss_scale"] is line["share_of_peak"] is None
    assert PROGRESS not in out.files()


def test_several_models_are_told_apart_and_summed(tmp_path):
    said = []
    reader = training_log.ProgressReader(tmp_path, said.append)
    reader._told = -1e9
    line = {"steps": 10, "loss": 1.0, "tokens_per_second": 5.0, "memory_mb": 2048.0, "seconds_left": 8000.0,
            "share_of_peak": 0.25}
    with open(tmp_path / PROGRESS, "w") as file:
        for model, step in (("A1L1", 1), ("A1L3", 2), ("A1L1", 4)):
            file.write(json.dumps({**line, "model": model, "step": step}) + "\n")
        file.write('{"model": "A1L3", "st')  # another process is writing
    assert reader.steps_done() == 6
    assert said == ["[pretrain] A1L1 step 4 of 10, loss 1.0000, 5 tokens/s, 25% of the peak, 2.0 GB, 2.2 h left",
                    "[pretrain] A1L3 step 2 of 10, loss 1.0000, 5 tokens/s, 25% of the peak, 2.0 GB, 2.2 h left"]


def test_tensorboard_is_refused_where_it_is_missing_and_fed_where_it_is_there(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match="needs the package tensorboard"):
        write_run(tmp_path, Machine("cpu", 2, log="tensorboard"))
    scalars = []

    class SummaryWriter:
        def __init__(self, folder):
            self.folder = folder

        def add_scalar(self, name, value, step):
            scalars.append((name, step))

        def flush(self):
            pass

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", type(sys)("tensorboard"))
    sys.modules["torch.utils.tensorboard"].SummaryWriter = SummaryWriter
    out = write_run(tmp_path, Machine("cpu", 2, log="tensorboard"))
    job = jobs.TrainingJob.read(out.path("scratch/A2L1/job.json"))
    trainer.train_model(job, out.path("scratch/A2L1"), trainer.Rank(), None)
    assert {("A2L1/loss", 40), ("A2L1/gradient_norm", 40), ("A2L1/learning_rate", 40)} <= set(scalars)
