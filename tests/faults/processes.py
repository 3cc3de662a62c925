"""Commands in processes of their own, which can be killed with all that they start."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_ALONE = 10.0  # seconds that workers may go on without the process that has started them
PATIENCE = 120.0  # seconds that a command may take


class Job(NamedTuple):
    """A running command and what it has printed."""

    pid: int
    log: Path

    def kill(self, everything: bool = True) -> None:
        """End it at once, and what it has started; or itself alone, and wait for the others, which see it gone."""
        if everything:
            with suppress(ProcessLookupError):  # it is too young to have a group
                os.killpg(self.pid, signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        start = time.monotonic()
        while self._has_others():
            if time.monotonic() - start > _ALONE:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
            time.sleep(0.02)

    def _has_others(self) -> bool:
        """Whether a process that it has started still runs; some systems keep those that have ended in the list."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, group = path.read_text().rpartition(")")[2].split()[:3]
                if int(group) == self.pid and state not in ("Z", "X"):
                    return True
        return False

    def has_ended(self) -> bool:
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found is not None

    def end(self) -> tuple[int, str]:
        """Its exit code and what it has printed; -9 if it had to be stopped."""
        start = time.monotonic()
        while not self.has_ended():
            if time.monotonic() - start > PATIENCE:
                self.kill()
                return -9, self.said() + "\nstopped: it took too long"
            time.sleep(0.01)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), self.said()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def start(work: Callable[[], int], log: Path) -> Job:
    """Call a function in a copy of this process, which has loaded torch and computed nothing."""
    sys.stdout.flush()
    sys.stderr.flush()
    log.unlink(missing_ok=True)
    pid = os.fork()
    if pid:
        return Job(pid, log)
    code = 99
    try:
        os.setsid()
        to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (1, 2):
            os.dup2(to, stream)
        code = work()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
