"""The kernels in other processes: backends asked for, forks, instruction sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from geonorm.ops import choose

pytestmark = pytest.mark.skipif(not choose.has_kernels(), reason="native kernels are not built or not asked for")


def run_python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


MISSING = """
from pathlib import Path
from geonorm.ops import choose
from geonorm.ops.cpu import library
library._PATH = Path("/nowhere/libgeonorm.so")
import torch, geonorm
geonorm.AugBatchNorm1d(3)(torch.randn(5, 3)).sum().backward()
print(choose.describe()["backend"])
"""


def test_backends() -> None:
    missing = run_python(MISSING, GEONORM_BACKEND="native")
    assert missing.returncode
    assert "RuntimeError: GEONORM_BACKEND=native, but libgeonorm.so was not built" in missing.stderr
    described = run_python(MISSING.replace("geonorm.Aug", "# "), GEONORM_BACKEND="native")
    assert described.stdout.strip() == "none"
    assert run_python(MISSING, GEONORM_BACKEND="auto").stdout.strip() == "torch"
    assert run_python(MISSING, GEONORM_BACKEND="torch").stdout.strip() == "torch"
    wrong = run_python("import torch, geonorm; geonorm.AugBatchNorm1d(3)(torch.randn(5, 3))", GEONORM_BACKEND="cuda")
    assert "expected GEONORM_BACKEND to be auto, torch, native or triton (got 'cuda')" in wrong.stderr


FORK = """
import os, torch, geonorm
torch.manual_seed(0)
x, layer = torch.randn(64, 8, 32, 32), geonorm.AugBatchNorm2d(8)
expected = layer(x)
child = os.fork()
if child == 0:
    with torch.no_grad():
        y = layer(x)
    torch.set_num_threads(1)  # torch's own threads are gone, and it would wait for them
    os._exit(0 if torch.equal(y, expected) else 1)
assert os.waitpid(child, 0)[1] == 0
assert torch.equal(layer(x), expected)
"""


def test_fork() -> None:
    """The threads of the parent are not in the child, which makes its own."""
    done = run_python(FORK.replace("torch.manual_seed", "torch.set_num_threads(2); torch.manual_seed"))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_every_instruction_set_gives_the_same_answers(isa: str) -> None:
    script = (
        "import torch, geonorm; torch.manual_seed(0); x = torch.randn(9, 5, 6, 7)\n"
        "pairs = [(s, l) for s in ('rms', 'robust') for l in (False, True)]\n"
        "layers = [geonorm.AugBatchNorm2d(5, spread=s, learn_phi=l) for s, l in pairs]\n"
        "print([[round(v, 4) for v in layer(x)[0, :, 0, 0].tolist()] for layer in layers])\n"
    )
    least, best = run_python(script, GEONORM_ISA=isa), run_python(script)
    assert least.returncode == 0, least.stderr
    ours, theirs = (torch.tensor(json.loads(run.stdout)) for run in (least, best))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-4)


def test_first_loaded_in_a_forked_child() -> None:
    script = (
        "import os, sys, torch, geonorm\n"
        "torch.set_num_threads(2); a = torch.randn(1500, 1500); (a * a).sum(); a @ a\n"
        "layer, x = geonorm.AugBatchNorm1d(64), torch.randn(4096, 64)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    layer(x); os._exit(0)\n"
        "sys.exit(os.waitpid(pid, 0)[1])\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
