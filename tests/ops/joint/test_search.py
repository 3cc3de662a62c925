"""The joint search decides as torch's and the kernels' do."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch import Tensor

from geonorm.ops import Axes, choose
from geonorm.ops.cpu import library
from geonorm.ops.joint.arithmetic import REPRODUCIBLE
from geonorm.ops.torch.search import TORCH, Sums, evaluate
from helpers.reproducible_decisions import searches


def sums_at(x: Tensor, y: float, q: float, up: float, down: float) -> Sums:
    """In units of both sides."""
    r = x - y
    above, below = r[r > 0] / up, -r[r < 0] / down
    near = r[r != 0].abs().min()
    parts = [above.pow(q).sum(), below.pow(q).sum(), above.pow(q - 1).sum(), below.pow(q - 1).sum()]
    parts += [(r == 0).double().sum(), near, (r == near).double().sum(), (r == -near).double().sum()]
    return Sums(*[part.reshape(1, 1) for part in parts])


@pytest.mark.parametrize("phi", [1.05, 1.2, 1.5, 1.9, 2.5, 3.0, 4.0])
def test_three_searches_agree(phi: float) -> None:
    """Torch's arithmetic, the reproducible one and csrc/search.h say the same of the same sums."""
    path = library.load()
    if isinstance(path, str):
        pytest.skip(path)
    in_c = ctypes.CDLL(str(library._PATH)).geonorm_evaluate
    in_c.argtypes, in_c.restype = [ctypes.c_void_p, ctypes.c_void_p], None
    torch.manual_seed(0)
    eps, q, settled_at = torch.finfo(torch.float32).eps, phi - 1, 0
    for k in range(40):
        x = torch.randn(50 + 20 * k, dtype=torch.float64).exp()
        low, high, middle = float(x.min()), float(x.max()), float(x.mean())
        y = middle if k % 2 else float(_center(x, phi)) + (1e-9 * k if k % 4 else 0.0)
        up, down, span = high - y, y - low, high - low
        s = sums_at(x, y, q, up, down)
        column = torch.ones(1, 1, dtype=torch.float64)
        begun = searches(column * up, column * down, column * phi, len(x))
        one, two = (evaluate(begun, s, eps, arithmetic) for arithmetic in (TORCH, REPRODUCIBLE))
        grow_up, grow_down = up / span, down / span
        closest = 0.0 if float(s.tied) else float(s.nearest) / span
        powers = [grow_up**q, grow_down**q, grow_up ** (q - 1), grow_down ** (q - 1)]
        given = [phi, eps, len(x), low, high, y, *[float(v) * p for v, p in zip(s[:4], powers, strict=True)], closest]
        given = torch.tensor(given, dtype=torch.float64)
        found = torch.zeros(5, dtype=torch.float64)
        in_c(given.data_ptr(), found.data_ptr())
        direction, error, step, settled, rest = found.tolist()
        assert float(one.direction) == float(two.direction) == direction, k
        assert float(one.error) == pytest.approx(float(two.error), rel=1e-9)
        # Bounds take in the rounding of logarithms in one place and not in the other.
        assert float(two.error) == pytest.approx(error, rel=1e-5, abs=1e-25)
        assert bool(one.settled) == bool(two.settled) == bool(settled), k
        settled_at += bool(settled)
        assert float(two.step) == pytest.approx(step, rel=1e-6, abs=1e-14 * span)
        assert float(one.step) == pytest.approx(float(two.step), rel=1e-9, abs=1e-14 * span)
        if settled:
            assert float(two.rest) == pytest.approx(rest, rel=1e-3)
    assert settled_at or phi == 1.05


def _center(x: Tensor, phi: float) -> Tensor:
    return choose.center(x[None], phi, None, Axes((1,)), None).center
