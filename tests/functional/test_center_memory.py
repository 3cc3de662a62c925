"""A group of 1e8 values: linear time, and no memory blow-up."""

import math
import subprocess
import sys

import pytest

SCRIPT = """
import math, resource, sys, torch
from geonorm.functional import center
phi, count = float(sys.argv[1]), 10**8
torch.manual_seed(0)
x = torch.empty(count)
x.normal_()
center(x[:100_000], phi)  # warm up: code pages do not count
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
value = center(x, phi).item()
print(value, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (4 * count))
"""


@pytest.mark.slow
@pytest.mark.parametrize("phi", [1.0, 1.5, 2.0, 3.3, math.inf])
def test_at_most_three_extra_copies(phi: float) -> None:
    """Peak memory beyond x itself, in copies of x, for 1e8 float32 values in one group."""
    run = subprocess.run([sys.executable, "-c", SCRIPT, str(phi)], capture_output=True, text=True, check=True)
    value, copies = (float(v) for v in run.stdout.split())
    assert abs(value) < (1 if math.isinf(phi) else 1e-3)
    assert copies <= 3
