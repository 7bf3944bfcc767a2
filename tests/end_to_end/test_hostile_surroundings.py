"""Where a command is started: a folder with traps, no room for workers, signals; one clear message, the right code."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pcfg_artifact import __version__, cli
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


ENVIRONMENT_OF_RUN_ALL = """#!/bin/sh
echo "$XDG_CACHE_HOME"
case $NUMBA_CACHE_DIR$TRITON_CACHE_DIR$TORCHINDUCTOR_CACHE_DIR$MPLCONFIGDIR$HF_HOME in *" "*) exit 3 ;; esac
"""


def test_caches_in_the_image_are_of_the_user_and_the_version(tmp_path):
    """Apptainer shows the host's /tmp, where somebody else may have made a folder of the same name."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(ENVIRONMENT_OF_RUN_ALL)
    (tmp_path / "bin" / "python3").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}

    def cache(version: str) -> Path:
        done = subprocess.run([ROOT / "run_all.sh"], env=environment | {"PCFG_ARTIFACT_IN_IMAGE": version}, text=True,
                              capture_output=True, check=True)
        return Path(done.stdout.strip())

    first, second = cache("1.0"), cache("1.1")
    assert first == cache("1.0") == tmp_path / f"pcfg-artifact-{os.getuid()}-1.0"
    assert second != first
    assert first.stat().st_mode & 0o777 == 0o700
    if os.getuid() == 0:
        os.chown(first, 12345, 12345)
        assert cache("1.0") not in (first, second)


@pytest.mark.skipif(not (ROOT / "Dockerfile").is_file(), reason="the image does not hold the file it was built from")
def test_the_image_is_as_careful():
    text = (ROOT / "Dockerfile").read_text()
    assert "PYTHONSAFEPATH=1" in text
    assert re.search(r"^ARG BASE_IMAGE=python:\d+\.\d+\.\d+-slim-bookworm$", text, re.MULTILINE)
    assert "FROM ${BASE_IMAGE}${BASE_DIGEST}" in text
    # Process 1 has no default for SIGTERM: an init hands it on, so `docker stop` ends a run at once, with code 143.
    assert 'ENTRYPOINT ["/usr/bin/tini", "-g", "--", "/app/run_all.sh"]' in text
    assert f"ARG VERSION={__version__}\n" in text
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
