"""Jobs in worker processes: every one is done once, an error arrives, a death is reported."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pcfg_artifact.errors import StageError
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.workers.pool import AHEAD, device_of, n_processes, run_jobs


def work(context, job):
    if job == "die":
        os._exit(3)
    if job == "fail":
        raise StageError("job fail failed")
    return context + job


def test_every_job_is_done_once_with_the_shared_context():
    assert sorted(run_jobs(work, [1, 2, 3, 4, 5], 10, 2)) == [11, 12, 13, 14, 15]
    assert list(run_jobs(work, [], 10, 2)) == []


def test_jobs_are_taken_as_workers_need_them():
    """What makes the jobs may work for them: the hidden states of a model are written when its turn comes."""
    taken = []

    def make():
        for job in range(40):
            taken.append(job)
            yield job

    jobs = run_jobs(work, make(), 0, 2)
    next(jobs)
    assert 2 < len(taken) <= 2 * AHEAD
    assert sum(1 for _ in jobs) == 39
    assert taken == list(range(40))


def where(about, _):
    """The device of a job that waits for a job in every other worker, so that none takes all of them."""
    machine, folder, n_workers = about
    (folder / str(os.getpid())).touch()
    deadline = time.monotonic() + 180
    while len(list(folder.iterdir())) < n_workers and time.monotonic() < deadline:
        time.sleep(0.05)
    return device_of(machine)


@pytest.fixture
def devices(tmp_path):
    """The devices of a pool's workers."""
    def of(machine, n_workers):
        folder = tmp_path / f"{machine.device}-{n_workers}"
        folder.mkdir()
        return set(run_jobs(where, range(2 * n_workers), (machine, folder, n_workers), n_workers))

    return of


def test_every_worker_has_one_of_the_gpus_that_may_be_used(devices):
    assert devices(Machine("cuda", 4, n_gpus=2), 4) == {"cuda:0", "cuda:1"}
    assert devices(Machine("cpu", 2), 2) == {"cpu"}


def test_a_gpu_that_serves_one_process_only_gets_one(devices):
    machine = Machine("cuda", 4, n_gpus=3, is_exclusive=True)
    n_workers = n_processes(machine, 4)
    assert n_workers == 2
    assert devices(machine, n_workers) == {"cuda:1", "cuda:2"}
    assert device_of(machine) == "cuda:0"  # of this process, which reads hidden states
    alone = Machine("cuda", 4, n_gpus=1, is_exclusive=True)
    assert n_processes(alone, 4) == 0
    assert list(run_jobs(lambda about, _: device_of(about), range(2), alone, 0)) == ["cuda:0", "cuda:0"]
    assert n_processes(Machine("cuda", 16, n_gpus=3), 16) == 6
    assert n_processes(Machine("cpu", 16), 16) == 16


def test_an_error_in_a_worker_arrives_as_it_is():
    with pytest.raises(StageError, match="job fail failed"):
        list(run_jobs(work, ["fail"], 10, 2))


def test_a_worker_that_dies_is_an_error_that_says_what_to_do():
    with pytest.raises(StageError, match="a worker process died.*n_workers=1"):
        list(run_jobs(work, ["die"], None, 1))


PARENT = """
import pathlib, sys
from pcfg_artifact.workers.pool import run_jobs
from test_pool import sleep
if __name__ == "__main__":
    list(run_jobs(sleep, [1, 2], sys.argv[1], 2))
"""


def sleep(folder, job):
    Path(folder, f"{job}.pid").write_text(str(os.getpid()))
    time.sleep(600)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, seconds=180):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    package = Path(__file__).parents[2]
    path = os.pathsep.join([str(package), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=os.environ | {"PYTHONPATH": path})
    assert wait_for(lambda: all((tmp_path / f"{job}.pid").is_file() and (tmp_path / f"{job}.pid").read_text()
                                for job in (1, 2)))
    workers = [int((tmp_path / f"{job}.pid").read_text()) for job in (1, 2)]
    assert all(map(is_running, workers))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert wait_for(lambda: not any(map(is_running, workers)))


def nap(_, seconds):
    time.sleep(seconds)
    return seconds


def test_whoever_stops_reading_does_not_wait_for_the_jobs_that_run():
    """As Ctrl-C does: half-done jobs are ended, their files are whole or absent."""
    jobs = run_jobs(nap, [0.0, 600.0], None, 2)
    assert next(jobs) == 0.0
    began = time.monotonic()
    jobs.close()
    assert time.monotonic() - began < 60
