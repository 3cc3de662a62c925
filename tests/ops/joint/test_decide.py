"""Decisions that several processes make alike, to the bit."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from geonorm.ops.cpu import library
from geonorm.ops.joint import decide
from geonorm.ops.joint.moments import Moments
from geonorm.ops.joint.search import start

WITH_ANOTHER_SET = """
import hashlib, torch
from helpers.reproducible_decisions import decisions
print(hashlib.sha256(decisions().numpy().tobytes()).hexdigest())
"""


def test_the_same_bits_with_any_instruction_set() -> None:
    """On machines that have others, torch takes other paths through the same operations."""
    found = set()
    for name in ("default", "avx2", "avx512"):
        paths = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": name, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-c", WITH_ANOTHER_SET]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout.strip())
    assert len(found) == 1


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("adaptive", [False, True])
def test_compiled_decisions_are_the_same_bits(wide: bool, adaptive: bool) -> None:
    """Whole searches, of sums that fit and of sums that do not."""
    found = library.load()
    if isinstance(found, str):
        pytest.skip(found)
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    one = torch.ones(500, 1, dtype=torch.float64)
    low, span = draw(500, 1) - 0.5, draw(500, 1) + 0.01
    begin = low + span * draw(500, 1)
    phi = torch.where(draw(500, 1) < 0.5, 1.5, 1.01 + 3 * draw(500, 1))
    mass, light = (1 + 99 * draw(500, 1)).round(), torch.where(draw(500, 1) < 0.5, 1.0, draw(500, 1) + 1e-6)
    rows = start(Moments(begin, one, low, low + span, mass, one, light, begin, phi, one.sum()))
    other = rows.clone()
    assert decide.advance(rows, None, 0, wide, adaptive) == (
        library.advance(other, None, 0, wide, adaptive) and adaptive
    )
    for k in range(1, 12):
        parts = draw(3, 8, 500) * mass[:, 0]
        parts[:, 1] = torch.where(draw(500) < 0.3, parts[:, 0] * (1 + 1e-6 * (draw(500) - 0.5)), parts[:, 1])
        parts[:, :2] = torch.where(draw(3, 2, 500) < 0.05, 0.0, parts[:, :2])
        parts[:, 4:] = torch.where(draw(3, 4, 500) < 0.5, 0.0, parts[:, 4:].round())
        parts[:, 5] = torch.where(draw(3, 500) < 0.2, math.inf, draw(3, 500) * span[:, 0])
        parts[:, 5] = torch.where(draw(500) < 0.5, parts[:, 5].round(), parts[:, 5])
        decide.advance(rows, parts, k, wide, adaptive)
        library.advance(other, parts, k, wide, adaptive)
        same = (rows == other) | (rows.isnan() & other.isnan())
        assert bool(same.all()), (k, (~same).nonzero()[:5], rows[~same][:5], other[~same][:5])
