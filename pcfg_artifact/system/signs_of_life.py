"""Signs of life in a shared folder: a file that its owner writes again every few seconds.

Clocks of machines differ, and so do the times that a shared disk gives to files: who watches compares texts, and
measures with a clock of its own.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.system import storage

BEAT_SECONDS = 5.0
BEATS_TO_WAIT = 6  # without a new sign the owner is taken to be gone: a busy disk may swallow a few


@contextmanager
def beating(sign: Callable[[int], None], seconds: float) -> Iterator[None]:
    """sign(0), and inside, from a thread of its own, sign(1), sign(2), .. in so many seconds each."""
    ended = threading.Event()

    def beat() -> None:
        number = 0
        while not ended.wait(seconds):
            number += 1
            with suppress(StageError):  # a full disk: the work itself will say so
                sign(number)

    sign(0)
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Watch:
    """Looks at the signs of another process by this machine's clock alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text, self.has_changed = self._read(), False
        self._at = time.monotonic()

    def _read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except OSError:
            return ""

    def silence(self) -> float:
        """Look again: seconds since the last new sign, or since this began."""
        if (text := self._read()) != self.text:
            self.text, self.has_changed, self._at = text, True, time.monotonic()
        return time.monotonic() - self._at


@contextmanager
def lease(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold `path` where files cannot be locked.  One whose owner gives no sign any more is taken over."""
    if path.exists():
        watch = Watch(path)
        say(f"this file system has no locks, and {path} is there: waiting {BEATS_TO_WAIT * BEAT_SECONDS:.0f} s for a "
            f"sign of the run that wrote it")
        while watch.silence() < BEATS_TO_WAIT * BEAT_SECONDS and not watch.has_changed:
            time.sleep(BEAT_SECONDS / 10)
        if watch.text and watch.has_changed:
            raise UsageError(f"{path.parent} is in use by another run ({watch.text.strip()}); wait for it to end, or "
                             f"pass another --out")
    owner = f"process {os.getpid()} on {socket.gethostname()}, {uuid.uuid4().hex[:8]}"

    def is_ours() -> bool:
        return path.is_file() and path.read_text(encoding="utf-8").startswith(owner)

    try:
        with beating(lambda number: storage.write_text(path, f"{owner}, sign {number}\n"), BEAT_SECONDS):
            time.sleep(BEAT_SECONDS / 10)
            if not is_ours():  # of two that begin at once the later one wins
                raise UsageError(f"{path.parent} was taken by another run a moment ago; pass another --out")
            yield
    finally:
        if is_ours():
            path.unlink()
