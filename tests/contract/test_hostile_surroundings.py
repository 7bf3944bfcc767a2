"""Where a command is started: a folder with traps, no room for workers, signals; one clear message, the right code."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pcfg_artifact import cli
from pcfg_artifact.workers import launch

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**ENVIRONMENT, **environment})


# ---- the current folder ----------------------------------------------------------------------------------------------


def test_a_module_beside_the_user_is_not_imported(tmp_path):
    for name in ("random", "argparse", "numpy", "yaml"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'trapped')!r}, 'w')\n")
    environment = {**os.environ, "PCFG_ARTIFACT_IN_IMAGE": "1",
                   "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run([ROOT / "run_all.sh", "--profile", "nothing"], cwd=tmp_path, env=environment, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 2
    assert "unknown profile" in done.stderr
    assert not (tmp_path / "trapped").exists()


def test_workers_do_not_import_what_lies_beside_the_user_either(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    (tmp_path / "ctypes.py").write_text("raise SystemExit('trapped')\n")
    process = launch.start(("-c", "import ctypes, os; print(os.environ['PYTHONSAFEPATH'])"), tmp_path / "log")
    assert process.wait() == 0
    assert (tmp_path / "log").read_text() == "1\n"


@pytest.mark.skipif(not (ROOT / "Dockerfile").is_file(), reason="the image does not hold the file it was built from")
def test_the_image_is_as_careful():
    text = (ROOT / "Dockerfile").read_text()
    assert "PYTHONSAFEPATH=1" in text
    assert re.search(r"^ARG BASE_IMAGE=python:\d+\.\d+\.\d+-slim-bookworm$", text, re.MULTILINE)
    assert "FROM ${BASE_IMAGE}${BASE_DIGEST}" in text
    assert text.index("COPY . /app") < text.index("chmod -R a+rX /app") < text.index("USER 10001")


# ---- no room for workers ---------------------------------------------------------------------------------------------

POOL = ("from pcfg_artifact.errors import ArtifactError\nfrom pcfg_artifact.workers.pool import run_jobs\n{}\n"
        "try: list(run_jobs(max, [1], 2, 1))\nexcept ArtifactError as error: print(error.exit_code, error)\n")


def test_a_long_folder_for_temporary_files_is_named(tmp_path):
    folder = tmp_path / ("x" * 95)
    folder.mkdir()
    done = python(POOL.format(""), TMPDIR=str(folder))
    assert done.stdout.startswith("2 worker processes cannot be started: "), done.stderr
    assert str(folder) in done.stdout
    assert "set TMPDIR" in done.stdout


@pytest.mark.parametrize("number", ["ENOSPC", "EROFS"])
def test_shared_memory_that_cannot_be_written_is_named(number):
    """A semaphore is a file in /dev/shm, which may be full or read-only."""
    failing = (f"import errno, multiprocessing.synchronize as s, os\n"
               f"def refuse(*_, **__): raise OSError(errno.{number}, os.strerror(errno.{number}))\n"
               f"s._multiprocessing.SemLock = refuse")
    done = python(POOL.format(failing))
    assert done.stdout.startswith("2 worker processes cannot be started: "), done.stderr
    assert "/dev/shm" in done.stdout
    assert "--out" not in done.stdout


# ---- signals ---------------------------------------------------------------------------------------------------------


def test_ctrl_c_while_a_compiled_module_is_imported_is_an_interruption(monkeypatch, capsys):
    """Compiled modules turn what happens while they are imported into an ImportError."""
    def half_imported(arguments):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr(cli, "_run_pipeline", half_imported)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert cli.main([]) == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert "interrupted" in capsys.readouterr().err


def test_an_import_that_fails_by_itself_is_not_an_interruption(monkeypatch):
    def fail(arguments):
        raise ImportError("no such module")

    monkeypatch.setattr(cli, "_run_pipeline", fail)
    with pytest.raises(ImportError):
        cli.main([])


FIRST = "from pcfg_artifact.first_process import stay_behind; stay_behind(); import os, sys, time\n"


def listen_to_interrupts():
    """A shell starts background jobs with SIGINT ignored, and so would be every process that the test starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(("work", "sign", "expected"), [
    ("time.sleep(100)", signal.SIGTERM, 143),
    ("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(100)",
     signal.SIGTERM, 137),  # one that does not listen is ended for certain
    ("try: time.sleep(100)\nexcept KeyboardInterrupt: sys.exit(130)", signal.SIGINT, 130),
])
def test_the_first_process_of_a_container_hands_signals_on_and_ends_within_five_seconds(work, sign, expected):
    process = subprocess.Popen([sys.executable, "-c", FIRST + "print(os.getpid(), flush=True)\n" + work], text=True,
                               stdout=subprocess.PIPE, env=ENVIRONMENT, preexec_fn=listen_to_interrupts)
    child = int(process.stdout.readline())
    assert child != process.pid
    if expected == 137:
        process.stdout.readline()
    elif expected == 130:
        time.sleep(0.2)
    began = time.monotonic()
    process.send_signal(sign)
    assert process.wait(20) == expected
    assert time.monotonic() - began < 5
    assert not Path(f"/proc/{child}").exists()
    process.stdout.close()


def test_the_first_process_passes_the_exit_code_and_standard_input():
    done = subprocess.run([sys.executable, "-c", FIRST + "sys.exit(len(sys.stdin.read()))"], input="three",
                          text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 5
