"""The scripts of slurm/ against stand-ins of Slurm's commands: cores, dependencies, seeds, preemption, two nodes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pcfg_artifact import cli
from pcfg_artifact.run.stage_folder import PROGRESS, Folder
from pcfg_artifact.workers import checkpoints

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "slurm"
# Two nodes: namespaces with a name, a network and a table of hosts of their own, joined by a cable.
NODE = ('hostname node{k} && ip link set lo up && mount --bind "{hosts}" /etc/hosts && echo ready && '
        'exec sleep 3600')
SMALL = ["sample.n_pretraining=200", "sample.n_validation=20", "sample.n_probe_train=5", "sample.n_probe_test=5",
         "pretrain.models=[A2L1]", "pretrain.causal_models=[]", "pretrain.width=16", "pretrain.batch_size=8",
         "pretrain.batch_tokens=128", "pretrain.steps=600", "pretrain.schedule_steps=600", "pretrain.n_kept=0",
         "pretrain.save_every=5000", "pretrain.validate_every=5000", "pretrain.n_curve=8", "pretrain.n_exact=8",
         "machine.device=cpu"]
SETTINGS = [part for setting in SMALL for part in ("--set", setting)]


class Controller:
    """Runs the jobs that the stand-in of sbatch left, as Slurm's controller does."""

    def __init__(self, folder: Path, run_all: str) -> None:
        self.folder, self.codes = folder, {}
        self.environment = {**os.environ, "PATH": f"{HERE / 'stand_ins'}:{os.environ['PATH']}", "STAND_IN": str(folder),
                            "PCFG_ARTIFACT_RUN_ALL": run_all, "OMP_NUM_THREADS": "1",
                            "PYTHONPATH": str(HERE.parents[1])}
        self.environment.pop("PYTHONSAFEPATH", None)

    def submit(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, cwd=HERE.parents[1], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def begin(self, job: dict, restart: int = 0) -> subprocess.Popen:
        options = job["options"]
        n_nodes = int(options["nodes"])
        script = self.folder / f"script-{job['id']}"
        script.write_text(job["script"])
        about = {"SLURM_JOB_ID": job["id"], "SLURM_NNODES": n_nodes, "SLURM_JOB_NODELIST": f"node[0-{n_nodes - 1}]",
                 "SLURM_CPUS_PER_TASK": options["cpus-per-task"], "SLURM_SUBMIT_DIR": job["folder"]}
        about |= {"SLURM_RESTART_COUNT": restart} if restart else {}
        about |= {"SLURM_ARRAY_TASK_ID": job["task"]} if job["task"] is not None else {}
        with open(self.folder / f"log-{job['id']}", "ab") as log:
            return subprocess.Popen(["bash", script, *job["arguments"]], stdout=log, stderr=log, cwd=job["folder"],
                                    env=self.environment | {name: str(value) for name, value in about.items()})

    def run(self) -> dict[int, int | None]:
        """Every job to its end; its exit code, None where one that it waits for failed."""
        for job in self.jobs():
            kind, _, before = job["options"].get("dependency", "").partition(":")
            assert kind in ("", "afterok")
            self.codes[job["id"]] = None if before and self.codes[int(before)] != 0 else self.begin(job).wait(300)
        return self.codes

    def jobs(self) -> list[dict]:
        return [json.loads(path.read_text()) for path in sorted((self.folder / "queue").iterdir())]

    def log(self, job: int) -> str:
        return (self.folder / f"log-{job}").read_text()

    def signal_steps(self, number: int) -> None:
        for step in (self.folder / "steps").iterdir():
            os.kill(int(step.name), number)


NOTES = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["STAND_IN"] + "/calls", "a") as file:
    file.write(json.dumps([sys.argv[1:], len(os.sched_getaffinity(0))]) + "\\n")
sys.exit(int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
def noted(tmp_path):
    """A controller for a run_all.sh that only notes how it was called, and (options, cores) of every call."""
    program = tmp_path / "run_all.sh"
    program.write_text(NOTES)
    program.chmod(0o755)
    controller = Controller(tmp_path, f"{sys.executable} {program}")

    def calls():
        return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]

    return controller, calls


def test_a_run_on_one_node_has_all_the_cores_of_its_job(noted):
    controller, calls = noted
    controller.submit("sbatch", str(SCRIPTS / "run.sh"), "/shared/my run", "--profile", "reduced", "--treebank", "a b")
    assert controller.run() == {4200: 0}
    (options, n_cores), = calls()
    assert options == ["--profile", "reduced", "--treebank", "a b", "--out", "/shared/my run"]
    assert n_cores == len(os.sched_getaffinity(0))  # 16 are asked for; one, where srun is not told
    asked = controller.jobs()[0]["options"]
    assert {"requeue", "signal", "time"} <= asked.keys()


def test_three_jobs_wait_for_each_other(noted):
    controller, calls = noted
    said = controller.submit(str(SCRIPTS / "chain.sh"), "out", "--profile", "paper")
    assert said.startswith("jobs 4200, 4201 and 4202")
    assert controller.run() == {4200: 0, 4201: 0, 4202: 0}
    assert [options for options, _ in calls()] == [
        ["--profile", "paper", "--to", "construct", "--set", "machine.device=cpu", "--out", "out"],
        ["--profile", "paper", "--from", "pretrain", "--to", "pretrain", "--out", "out"],
        ["--profile", "paper", "--from", "probe", "--out", "out"]]
    assert [job["options"].get("gpus-per-node") for job in controller.jobs()] == [None, "8", "8"]


def test_after_a_job_that_fails_the_others_do_not_run(noted):
    controller, calls = noted
    controller.environment["CODE"] = "2"
    controller.submit(str(SCRIPTS / "chain.sh"), "out")
    assert controller.run() == {4200: 2, 4201: None, 4202: None}
    assert len(calls()) == 1


def test_an_array_is_a_seed_a_task_in_a_folder_of_its_own(noted):
    controller, calls = noted
    controller.environment["SLURM_TMPDIR"] = "/node/disk"
    controller.submit("sbatch", "--array=3-4", str(SCRIPTS / "run.sh"), "runs")
    assert controller.run() == {4200: 0, 4201: 0}
    assert [options for options, _ in calls()] == [
        ["--set", f"seed={seed}", "--set", "machine.scratch=/node/disk", "--out", f"runs/seed-{seed}"]
        for seed in (3, 4)]


@pytest.mark.parametrize(("number", "is_requeued"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_a_job_whose_time_is_up_goes_back_to_the_queue_and_a_cancelled_one_not(noted, tmp_path, number, is_requeued):
    controller, _ = noted
    (tmp_path / "run_all.sh").write_text("import time\ntime.sleep(60)\n")
    controller.submit("sbatch", str(SCRIPTS / "run.sh"), "out")
    job = controller.begin(controller.jobs()[0])
    until(lambda: (tmp_path / "steps").is_dir() and list((tmp_path / "steps").iterdir()))
    controller.signal_steps(number)
    assert job.wait(30) == 128 + number
    assert (tmp_path / "requeue-4200").exists() is is_requeued


# ---- two nodes ------------------------------------------------------------------------------------------------------


def until(holds, seconds=240.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def two_nodes(tmp_path):
    """Their processes, in nodes.json too."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n10.99.0.1 node0\n10.99.0.2 node1\n")
    nodes = []
    try:
        for k in range(2):
            nodes.append(subprocess.Popen(["unshare", "--net", "--uts", "--mount", "sh", "-c",
                                           NODE.format(k=k, hosts=hosts)], stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True))
            if nodes[-1].stdout.readline() != "ready\n":
                pytest.skip(f"nodes cannot be made here: {nodes[-1].stderr.read().strip()}")
        pids = [str(node.pid) for node in nodes]
        commands = [["ip", "link", "add", "name", "cable", "netns", pids[0], "type", "veth", "peer", "name", "cable",
                     "netns", pids[1]]]
        for k, pid in enumerate(pids):
            there = ["nsenter", "-t", pid, "--net", "ip"]
            commands += [[*there, "addr", "add", f"10.99.0.{k + 1}/24", "dev", "cable"],
                         [*there, "link", "set", "cable", "up"]]
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"nodes cannot be joined here: {done.stderr.strip()}")
        (tmp_path / "nodes.json").write_text(json.dumps([node.pid for node in nodes]))
        yield
    except FileNotFoundError as error:
        pytest.skip(f"nodes cannot be made here: {error}")
    finally:
        for node in nodes:
            node.kill()
            node.communicate()


def test_a_preempted_job_on_two_nodes_is_requeued_and_goes_on_where_it_was(two_nodes, tmp_path, capfd):
    out = tmp_path / "run"
    assert cli.main(["--out", str(out), "--to", "sample", *SETTINGS]) == 0
    controller = Controller(tmp_path, f"{sys.executable} -m pcfg_artifact")
    controller.submit("sbatch", "--nodes=2", str(SCRIPTS / "run.sh"), str(out), *SETTINGS, "--from", "pretrain", "--to",
                      "pretrain")
    queued, = controller.jobs()
    job, progress = controller.begin(queued), out / "pretrain" / PROGRESS
    until(lambda: (progress.is_file() and progress.stat().st_size) or job.poll() is not None)
    assert job.poll() is None, controller.log(4200)
    controller.signal_steps(signal.SIGTERM)
    assert job.wait(60) == 128 + signal.SIGTERM, controller.log(4200)
    scratch = out / "pretrain" / "scratch" / "A2L1"
    reached = checkpoints.latest_step(scratch)
    assert reached is not None, controller.log(4200)
    assert controller.begin(queued, restart=1).wait(900) == 0, controller.log(4200)
    facts = Folder(scratch).json("facts")
    assert facts["resumed_from_step"] == reached > 0
    assert facts["world_size"] == 2
    assert len(Folder(out / "pretrain" / "models" / "A2L1").json("training")["losses"]) == 600
    assert controller.log(4200).count("joining A2L1") == 2
    assert "A2L1 is finished" in controller.log(4200)
