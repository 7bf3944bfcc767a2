"""Training over several machines, each a torchrun of its own on this one, without a network or a name that resolves."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from small_run import ENVIRONMENT, write_run

from pcfg_artifact import cli
from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.mlm.training import Rank, Recipe, train
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.workers import checkpoints, distributed, jobs, trainer

CHANGES = {"models": ("A1L1", "A2L1"), "steps": 4, "schedule_steps": 8, "save_every": 2, "validate_every": 4,
           "dropout": 0.0}
# A network with nothing but the loopback, and a host name that nobody knows.
NO_NETWORK = ("unshare", "--net", "--uts", "sh", "-c",
              'hostname nowhere.invalid && ip link set lo up && exec "$@"', "sh")


def can_be_cut_off() -> bool:
    try:
        return subprocess.run([*NO_NETWORK, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


without_network = pytest.mark.skipif(not can_be_cut_off(), reason="needs unshare, ip and the right to use them")


def test_alone_processes_meet_at_a_number_and_not_at_a_name():
    assert distributed.torchrun_options([], "A2L1") == ["--standalone", "--local-addr=127.0.0.1"]


@pytest.mark.parametrize("given", ["--rdzv-id=job7", "--rdzv-id job7", "--rdzv_id=job7"])
def test_every_model_has_a_rendezvous_and_a_port_of_its_own(given):
    options = ["--nnodes=2", *given.split(), "--rdzv-endpoint=node0:29500"]
    assert distributed.torchrun_options(options, "A2L1", 3) == [
        "--nnodes=2", "--rdzv-endpoint=node0:29503", "--rdzv-id=job7-A2L1", "--rdzv-conf=is_host=1"]
    followed = distributed.torchrun_options([*options, "--rdzv_conf=join_timeout=900"], "A2L1", 3, follows=True)
    assert followed[-1] == "--rdzv-conf=join_timeout=900,is_host=0"  # only the first machine opens the meeting
    assert distributed.torchrun_options(["--rdzv-endpoint=a:1"], "A1L3")[1] == "--rdzv-id=pcfg_artifact-A1L3"
    with pytest.raises(UsageError, match="expected --rdzv-endpoint=HOST:PORT"):
        distributed.torchrun_options(["--nnodes=2"], "A1L3")


def test_following_needs_the_options_of_the_first_machine(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(distributed.TORCHRUN, "--standalone")
    with pytest.raises(UsageError, match="expected torchrun's options"):
        distributed.follow(tmp_path, print)
    assert cli.main(["--follow", str(tmp_path), "--profile", "paper"]) == 2
    assert "leave out all other options" in capsys.readouterr().err


def test_a_follower_of_a_finished_run_has_nothing_to_do(monkeypatch, tmp_path):
    out = write_run(tmp_path, **CHANGES)
    for name in CHANGES["models"]:
        out.write_json(f"models/{name}/training", {})
    monkeypatch.setenv(distributed.TORCHRUN, "--nnodes=2 --rdzv-endpoint=127.0.0.1:9")
    said: list[str] = []
    distributed.follow(tmp_path, said.append)
    assert said[1:] == [f"{name} is finished" for name in CHANGES["models"]]


# The follower is there long before the first machine, and again for the second model before that is begun.
TWO_MACHINES = """
"$1" -m pcfg_artifact --follow "$3" 2>"$3/follower.log" & follower=$!
"$1" "$2" "$3" || { kill $follower; exit 1; }
wait $follower
"""


@without_network
def test_two_machines_train_two_models_one_after_another(tmp_path):
    out = write_run(tmp_path, **CHANGES)
    options = "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:29517 --rdzv-id=test --local-addr=127.0.0.1"
    run = subprocess.run([*NO_NETWORK, "sh", "-c", TWO_MACHINES, "sh", sys.executable,
                          str(Path(__file__).with_name("first_machine.py")), str(tmp_path)],
                         env={**ENVIRONMENT, distributed.TORCHRUN: options}, capture_output=True, text=True,
                         timeout=600)
    followed = (tmp_path / "follower.log").read_text()
    assert run.returncode == 0, run.stderr + followed
    for name in CHANGES["models"]:
        assert f"joining {name}\n{name} is finished\n" in followed
        assert out.json(f"scratch/{name}/facts")["world_size"] == 2
        job = jobs.TrainingJob.read(out.path(f"scratch/{name}/job.json"))
        alone = tmp_path / "alone" / name
        alone.mkdir(parents=True)
        job = dataclasses.replace(job, untrained=alone / "untrained")
        _, expected, _ = trainer.train_model(job, alone, Rank(), None)
        assert out.json(f"models/{name}/training")["losses"] == pytest.approx(expected["losses"], rel=1e-4)


def test_more_processes_than_rows_are_refused():
    corpus = type("Corpus", (), {"batch_size": 2})
    recipe = Recipe(steps=1, schedule_steps=2, warmup_steps=1, learning_rate=1.0, weight_decay=0.0, clip=None)
    with pytest.raises(StageError, match="3 processes share batches of 2 rows, .* lower pretrain.processes"):
        train(None, corpus, recipe, seed=0, rank=Rank(0, 3))


def test_a_run_with_more_processes_than_rows_is_refused_before_it_begins(tmp_path, capsys):
    n_rows = load_profile("smoke").pretrain.batch_size
    assert cli.main(["--out", str(tmp_path / "run"), "--set", f"pretrain.processes={n_rows + 1}"]) == 2
    assert f"{n_rows + 1} processes would share batches of {n_rows} rows" in capsys.readouterr().err


@without_network
def test_process_0_decides_where_all_begin_whatever_the_others_see(tmp_path):
    """Two processes on one machine without network; the second sees no checkpoint."""
    out = write_run(tmp_path, **{**CHANGES, "models": ("A1L1",)}, processes=2)
    job, folder = jobs.TrainingJob.read(out.path("scratch/A1L1/job.json")), out.path("scratch/A1L1")
    half_way = dataclasses.replace(job, config=dataclasses.replace(job.config, steps=2))
    trainer.train_model(half_way, folder, Rank(), None)
    assert checkpoints.latest_step(folder) == 2
    run = subprocess.run([*NO_NETWORK, sys.executable, "-m", "torch.distributed.run",
                          *distributed.torchrun_options([], "A1L1"), "--nproc-per-node=2",
                          str(Path(__file__).with_name("stale_world.py")), str(folder / "job.json")],
                         env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert [(folder / f"began-{rank}.txt").read_text() for rank in (0, 1)] == ["2", "2"]
    assert out.json("scratch/A1L1/facts")["resumed_from_step"] == 2
