"""A miniature pipeline dies at the n-th write, or by kill -9 at any moment; the same command ends with the same files.

Seven and a half seconds for each by default; PCFG_ARTIFACT_FUZZ_SECONDS sets another budget.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("crashing.py")
SECONDS = 7.5
LINES = ["(S (NP (DT the) (NN cat)) (VP (VBD saw) (NP (DT a) (NN dog))) (. .))", "(S (NP (PRP she)) (VP (VBZ runs)))",
         "(S (NP (NP (DT the) (NN dog)) (PP (IN near) (NP (DT a) (NN cat)))) (VP (VBD slept)) (. .))"]


class Harness:
    """The process that runs, kills and continues; `whole` is what it said of the run that nobody interrupted."""

    def __init__(self, root: Path) -> None:
        treebank = root / "trees.ptb"
        treebank.write_text("\n".join(LINES * 30))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HARNESS.parents[2])}
        self.process = subprocess.Popen([sys.executable, str(HARNESS), str(treebank), str(root)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.root = root
        self.whole = self.answer()
        self.seconds = self.whole["seconds"]

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        log = self.root / "log"
        assert line, f"the harness ended: {log.read_text()[-2000:] if log.is_file() else ''}"
        return json.loads(line)

    def crash(self, **how) -> dict:
        print(json.dumps(how), file=self.process.stdin, flush=True)
        found = self.answer()
        self.seconds = min(self.seconds, found["seconds"])  # the first run also compiled
        return found

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    harness = Harness(tmp_path_factory.mktemp("crashes"))
    yield harness
    harness.close()


@pytest.fixture
def budget(campaign):
    if "PCFG_ARTIFACT_FUZZ_SECONDS" not in os.environ:
        campaign.seconds = SECONDS
    return campaign


def check(found: dict, how: dict, counts) -> None:
    assert found["code"] == 0, (how, found)
    assert found["differ"] == [], (how, found)
    assert "Traceback" not in found["log"], (how, found)
    counts["finished before they died" if found["died"] == 0 else "died and continued"] += 1


def test_a_run_that_dies_at_any_write_of_any_process_ends_with_the_same_files(budget, harness):
    assert harness.whole["code"] == 0
    assert harness.whole["files"] > 10
    n_events = harness.whole["events"]

    def case(rng, counts):
        how = {"at": rng.randint(1, n_events)}
        found = harness.crash(**how)
        assert found["died"] != 0, (how, found)  # 9, or 1 where a worker died and its parent said so
        check(found, how, counts)

    budget.run(case)


def test_a_run_that_is_ended_by_kill_9_at_any_moment_ends_with_the_same_files(budget, harness):
    def case(rng, counts):
        how = {"after": rng.random() * harness.seconds}
        check(harness.crash(**how), how, counts)

    budget.run(case)
