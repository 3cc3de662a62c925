"""In a terminal: the live table, Ctrl-C, and going on; in a pipe with worker processes: plain lines."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from geonorm.lab import Store

START = [sys.executable, "-c", "import sys; from geonorm.cli import main; sys.exit(main())", "compare"]
# So many runs that some are done and some are not when Ctrl-C comes.
RECIPE = 'norms = ["bn"]\nseeds = [0, 1, 2, 3, 4, 5, 6, 7]\nepochs = 30\n'


class Terminal:
    """A process in a pseudo-terminal of 100 columns, as a person would have it."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        child, self.screen = pty.fork()
        if not child:
            os.chdir(folder)
            os.environ.update(TERM="xterm-256color", COLUMNS="100", LINES="30", OMP_NUM_THREADS="1")
            os.execv(sys.executable, [*START, *arguments])
        self.child, self.seen = child, ""

    def read_until(self, enough: Callable[[str], bool], seconds: float = 300) -> str:
        """What was written, from now until it is enough or the process ends."""
        end = time.monotonic() + seconds
        while not enough(self.seen):
            assert time.monotonic() < end, self.seen
            if select.select([self.screen], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.screen, 65536).decode(errors="replace")
                except OSError:  # Linux tells so that the other side is closed
                    break
        return self.seen

    def exit_code(self) -> int:
        self.read_until(lambda seen: False)
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


@pytest.mark.slow
def test_live_table_ctrl_c_and_going_on(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    arguments = ["recipe.toml", "--workers", "2", "--store", "r.sqlite"]
    terminal = Terminal(arguments, tmp_path)
    seen = terminal.read_until(lambda seen: re.search("[1-8]/8 runs", seen) is not None)
    for word in ("epoch", "loss", "accuracy", "left", "seed 0", "30/30"):
        assert word in seen
    os.write(terminal.screen, b"\x03")
    assert terminal.exit_code() == 130, terminal.seen
    assert "Traceback" not in terminal.seen
    assert "To continue, run the same command:" in terminal.seen
    assert f"geonorm compare {' '.join(arguments)}" in terminal.seen
    store = Store(tmp_path / "r.sqlite")
    kept = {run.key: run.seconds for run in store.finished()}
    assert 1 <= len(kept) < 8

    done = subprocess.run([*START, *arguments, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"{len(kept)} of 8 runs were already done" in done.stderr
    assert done.stderr.count(" % in ") == 8 - len(kept), "a line for each run that ended, and no more"
    assert "\x1b" not in done.stderr
    assert json.loads(done.stdout)["runs"] == 8
    assert kept.items() <= {run.key: run.seconds for run in store.finished()}.items()


@pytest.mark.slow
def test_an_interrupt_while_workers_start(tmp_path: Path) -> None:
    """Sent to the first process alone, at once: the others are being started, and are ended too."""
    command = [*START, "--norms", "bn", "ln", "--epochs", "500", "--workers", "2"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr is not None
        assert "runs, 2 at a time" in started.stderr.readline()
        started.send_signal(signal.SIGINT)
        assert started.wait(120) == 130
        told = started.stderr.read()
    assert "Traceback" not in told
    assert "0 of 40 runs are done" in told
