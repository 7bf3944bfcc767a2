"""Stages whose jobs a Dask cluster of two worker processes does: the same bytes, and a killed worker loses nothing."""

import operator
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from test_probe_stages import probed, world  # noqa: F401 (fixtures)

from pcfg_artifact import cli
from pcfg_artifact.errors import UsageError
from pcfg_artifact.run import stage_folder
from pcfg_artifact.stages import control, marginals, probe
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.workers import distributed as clusters
from pcfg_artifact.workers.pool import run_jobs, run_ordered

distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test


def process_of(context, job):
    time.sleep(0.05)  # so that no worker takes all the jobs
    return os.getpid()


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
                                  host="127.0.0.1") as found:
        yield found


@pytest.fixture(scope="module")
def address(cluster):
    return cluster.scheduler_address.replace("tcp://", clusters.SCHEME)


def test_jobs_go_to_the_workers_and_an_error_arrives_as_it_is(address):
    assert sorted(run_jobs(operator.add, range(30), 100, 1, address)) == list(range(100, 130))
    assert list(run_ordered(operator.add, range(30), 100, address)) == list(range(100, 130))
    processes = set(run_jobs(process_of, range(30), 0, 1, address))
    assert len(processes) == 2
    assert os.getpid() not in processes
    with pytest.raises(ZeroDivisionError):
        list(run_jobs(operator.truediv, [0], 1, 1, address))


def run_there(stage, name, world, root, address):  # noqa: F811
    profile, inputs, _ = world
    folder = stage_folder.begin(root / name, "test")
    stage.run(profile.stage(name), inputs, folder, Machine("cpu", 2, None, address))
    return folder


def content(folder, pattern="**/*"):
    """Finished files; what a killed worker was writing keeps its temporary name, and is no output."""
    return {str(path.relative_to(folder.root)): path.read_bytes() for path in sorted(folder.root.glob(pattern))
            if path.is_file() and "times" not in path.parts and not path.name.startswith(storage.TEMPORARY)}


def test_marginals_are_the_same_bytes(world, tmp_path, address):  # noqa: F811
    here, there = (run_there(marginals, "marginals", world, tmp_path / where, executor)
                   for where, executor in (("here", None), ("there", address)))
    assert content(here) == content(there)
    assert (here.array("train/attempts") > 0).sum() > 2 * marginals.CHUNK


def kill_one(cluster, results, killed):
    """Kill a worker process when it has done something and has more to do; its nanny starts another."""
    while len(list(results.rglob("*.json"))) < 5:
        time.sleep(0.02)
    process = next(iter(cluster.workers.values())).pid
    os.kill(process, signal.SIGKILL)
    killed.append(len(list(results.rglob("*.json"))))


def test_fits_are_the_same_bytes_though_a_worker_is_killed(world, probed, tmp_path, cluster, address):  # noqa: F811
    killed: list[int] = []
    killer = threading.Thread(target=kill_one, args=(cluster, tmp_path / "probe" / "fits", killed), daemon=True)
    killer.start()
    there = run_there(probe, "probe", world, tmp_path, address)
    killer.join()
    fits = content(probed, "fits/**/*")
    assert killed[0] < len(fits)  # in the middle
    assert content(there, "fits/**/*") == fits
    for name in ("metrics.csv", "scatter.json", "example.json"):
        assert there.path(name).read_bytes() == probed.path(name).read_bytes()


def test_control_tasks_are_the_same_bytes(world, probed, tmp_path, address):  # noqa: F811
    here, there = (run_there(control, "control", world, tmp_path / where, executor)
                   for where, executor in (("here", None), ("there", address)))
    assert content(here) == content(there)


@pytest.mark.parametrize(("given", "said"), [("nowhere:1", "expected dask://HOST:PORT"),
                                             ("dask://127.0.0.1:9", "no Dask scheduler answers")])
def test_an_address_where_no_scheduler_is_is_refused(given, said, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1)
    assert cli.main(["--out", str(tmp_path / "run"), "--executor", given]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_workers_with_other_code_are_refused():
    clusters.refuse_other_code({"tcp://a:1": clusters.code_hash()})
    with pytest.raises(UsageError, match="1 of 2 Dask workers .*another version"):
        clusters.refuse_other_code({"tcp://a:1": clusters.code_hash(), "tcp://b:1": "0" * 64})


def test_the_optional_pins_agree_with_the_others():
    root = Path(__file__).parents[2]
    pins = [dict(line.split("==") for line in (root / name).read_text().splitlines() if "==" in line and line[0] != "#")
            for name in ("requirements.txt", "requirements-dask.txt", "requirements-lint.txt")]
    assert "distributed" in pins[1]
    assert len({package for of in pins for package in of}) == sum(map(len, pins))
