"""The first process of a container: hands signals on to the process that works, and ends as it does.

The kernel gives process 1 no default for SIGTERM, so that `docker stop` would wait in vain and then kill; and Python
runs its own handlers only between two of its steps, which may be minutes apart.  A process that does nothing but wait
is always ready; the one that works keeps the defaults.  Those it started end with the container.
"""

from __future__ import annotations

import os
import signal
import time

HANDED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
GRACE_SECONDS = 3.0  # docker stop waits 10


def stay_behind() -> None:
    """Fork: the child returns and works; the parent waits, and exits with its code, 128 + n where signal n ended it."""
    watched = HANDED_ON | {signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)  # none is lost between the fork and the first wait
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, watched)
        return
    # Nothing of this process is flushed or cleaned up twice: it leaves by os._exit.
    os._exit(_wait_for(child, watched))


def _wait_for(child: int, watched: set[signal.Signals]) -> int:
    last_moment = None
    while True:
        seconds = 3600.0 if last_moment is None else max(0.0, last_moment - time.monotonic())
        caught = signal.sigtimedwait(watched, seconds)
        if caught is None and last_moment is not None:
            os.kill(child, signal.SIGKILL)
        # A terminal sends Ctrl-C to the child as well; only what somebody sent to us alone is handed on.
        if caught is not None and caught.si_signo in HANDED_ON and caught.si_code <= 0:
            os.kill(child, caught.si_signo)
            if caught.si_signo == signal.SIGTERM:
                last_moment = time.monotonic() + GRACE_SECONDS
        code = _ended(child)
        if code is not None:
            return code


def _ended(child: int) -> int | None:
    """The exit code of the child once it has ended; orphans that the kernel gave to us are reaped on the way."""
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 1
        if not process:
            return None
        if process == child:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
