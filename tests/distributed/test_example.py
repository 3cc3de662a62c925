"""examples/train_ddp.py: a process killed in the middle, and the run goes on to the same result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "examples" / "train_ddp.py"


def start(checkpoint: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    with complaints(checkpoint).open("w") as said:
        return subprocess.Popen(
            [*command, str(SCRIPT), "--epochs", "4", "--checkpoint", str(checkpoint)],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def complaints(checkpoint: Path) -> Path:
    return checkpoint.with_suffix(".stderr")


def finish(process: subprocess.Popen[str], checkpoint: Path) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, f"{output}\n{complaints(checkpoint).read_text()}"
    return output


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_killed_and_resumed(victim: int, tmp_path: Path) -> None:
    whole = finish(start(tmp_path / "whole.pt"), tmp_path / "whole.pt")
    assert "epoch 4/4" in whole

    process = start(tmp_path / "killed.pt")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch 2/4"):
            break
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(workers[victim]), signal.SIGKILL)
    process.communicate(timeout=150)
    assert process.returncode != 0

    output = finish(start(tmp_path / "killed.pt"), tmp_path / "killed.pt")
    assert "Resuming after epoch" in output
    expected, found = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("whole", "killed"))
    assert found["epoch"] == 4
    for name, value in expected["model"].items():
        assert torch.equal(found["model"][name], value), name
