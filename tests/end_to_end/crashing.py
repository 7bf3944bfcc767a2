"""A process that runs a miniature pipeline in forks of itself, each of which dies on the way and is continued.

Started by test_crashes.py with a treebank and a folder, so that imports are paid once.  A line of JSON comes in, how to
die: {"at": n}, the n-th write, fsync or rename of all processes together, or {"after": seconds}, by SIGKILL.  A line
goes out: what happened.  Training workers are forks as well, with the code of the real ones.
"""

import fcntl
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from pcfg_artifact import cli
from pcfg_artifact.errors import StageError
from pcfg_artifact.run.stage_folder import LOCK, MANIFEST, PROGRESS
from pcfg_artifact.stages import grammar, pretrain, sample  # noqa: F401 - imported once, for all forks
from pcfg_artifact.system import storage
from pcfg_artifact.workers import jobs, trainer

DEAD = 9
SETTINGS = ("machine.n_workers=1", "machine.device=cpu", "sample.n_pretraining=300", "sample.n_validation=20",
            "sample.n_probe_train=5", "sample.n_probe_test=5", "pretrain.models=[A2L2]", "pretrain.width=8",
            "pretrain.causal_models=[]",
            "pretrain.steps=4", "pretrain.schedule_steps=4", "pretrain.warmup_steps=1", "pretrain.batch_size=4",
            "pretrain.save_every=1", "pretrain.validate_every=2", "pretrain.n_curve=5", "pretrain.n_exact=5",
            "pretrain.exact_max_length=8", "pretrain.dropout=0.1")


def run_pipeline(treebank: str, out: Path) -> int:
    """grammar and sample, then pretrain, which needs no other; the exit code of the first that fails."""
    common = ["--treebank", treebank, "--out", str(out), *(part for s in SETTINGS for part in ("--set", s))]
    return cli.main([*common, "--to", "sample"]) or cli.main([*common, "--only", "pretrain"])


def fork_workers(commands, logs, n_parallel, look):
    """As launch.run_workers, without the seconds that a new interpreter needs."""
    for name, command in commands.items():
        child = os.fork()
        if not child:
            end_with(lambda: trainer.main(list(command[2:])))  # noqa: B023 - called at once
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            raise StageError(f"the worker of {name} died")


def end_with(work) -> None:
    """End this fork with the code of `work`, whatever happens, and nothing of its parent's."""
    code = 99
    try:
        code = work()
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def die_at(n: int | None, counter: Path):
    """A watcher that counts the events of all processes in one file, a byte for each, and dies at the n-th."""
    def watch(event: str, path: Path) -> None:
        with open(counter, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(b".")
            file.flush()
            count = os.fstat(file.fileno()).st_size
        if count == n:
            if event == "fsync" and path.is_file():
                os.truncate(path, path.stat().st_size // 2)  # as if the machine had stopped
            os._exit(DEAD)

    return watch


def attempt(treebank: str, out: Path, log: Path, at: int | None = None, after: float | None = None) -> tuple[int, int]:
    """(exit code, events) of one run, which may be told how to die."""
    counter = out.with_name("counter")
    counter.write_bytes(b"")
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        with open(log, "ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        storage.watchers.append(die_at(at, counter))
        end_with(lambda: run_pipeline(treebank, out))
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)  # its worker asked the kernel to follow it
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, counter.stat().st_size


def promised(out: Path) -> dict[str, str]:
    """Hashes of what is promised to be the same: all but manifests, which hold times, and scratch."""
    files = (path for path in out.rglob("*") if path.is_file() and path.name not in (MANIFEST, LOCK, PROGRESS))
    return {name: storage.sha256(out / name) for path in files
            if "scratch" not in Path(name := path.relative_to(out).as_posix()).parts}


def main(treebank: str, root: Path) -> None:
    jobs.run_workers = fork_workers
    log, whole, out = root / "log", root / "whole", root / "out"
    started = time.monotonic()
    code, n_events = attempt(treebank, whole, log)
    expected = promised(whole)
    print(json.dumps({"code": code, "events": n_events, "files": len(expected),
                      "seconds": time.monotonic() - started}), flush=True)
    for line in sys.stdin:
        shutil.rmtree(out, ignore_errors=True)
        log.write_bytes(b"")
        started = time.monotonic()
        died, _ = attempt(treebank, out, log, **json.loads(line))
        code, _ = attempt(treebank, out, log)
        found = promised(out)
        differ = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        print(json.dumps({"died": died, "code": code, "differ": differ, "seconds": time.monotonic() - started,
                          "log": log.read_text()[-2000:]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
