"""Decisions that several processes make alike: the arithmetic, the formulas, and what they lead to."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from geonorm.ops import Axes, Incoming, Inputs, Rule, choose, problem
from geonorm.ops.cpu import library
from geonorm.ops.joint import arithmetic, decide
from geonorm.ops.joint.arithmetic import REPRODUCIBLE
from geonorm.ops.joint.moments import Moments
from geonorm.ops.joint.search import start
from geonorm.ops.torch.search import TORCH, Searches, Sums, begin, evaluate
from helpers.thread_group import ThreadGroup, run_in_threads

# The arithmetic


def numbers(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.exp(torch.randn(4000, generator=generator, dtype=torch.float64) * 100)
    near = 1 + 1e-3 * torch.randn(1000, generator=generator, dtype=torch.float64)
    return torch.cat([wide, near, torch.tensor([0.0, 1.0, math.inf, 5e-324, 1e308], dtype=torch.float64)])


def test_logarithm_and_exponential_are_right() -> None:
    x = numbers()
    torch.testing.assert_close(arithmetic.log(x), x.log(), rtol=4e-16, atol=2e-16)
    t = torch.cat([torch.linspace(-700, 700, 5001, dtype=torch.float64), torch.tensor([-math.inf, -800.0, 800.0])])
    torch.testing.assert_close(arithmetic.exp(t), t.exp(), rtol=4e-16, atol=0.0)
    assert arithmetic.log(torch.tensor([-1.0, math.nan], dtype=torch.float64)).isnan().all()
    assert arithmetic.exp(torch.tensor([math.nan], dtype=torch.float64)).isnan().all()
    largest = torch.tensor([1.0, 1.5, 3.0, 1e300, 0.0, math.inf], dtype=torch.float64)
    scaled = (arithmetic.power_of_two(largest) * largest)[:4]
    assert ((scaled >= 1) & (scaled < 2)).all()


WITH_ANOTHER_SET = """
import hashlib, torch
from ops.test_joint import decisions
print(hashlib.sha256(decisions().numpy().tobytes()).hexdigest())
"""


def searches(up: Tensor, down: Tensor, phi: Tensor, number: int) -> Searches:
    """At y = 0, with the extremes this far above and below it."""
    one = torch.ones_like(up)
    begun = begin(phi, -down, up, one * number, one, 0 * one, one > 0)
    return begun._replace(up=up, down=down)


def decisions() -> Tensor:
    """What is made of some sums, as bits."""
    found = [arithmetic.log(numbers()), arithmetic.exp(numbers().log() / 2), REPRODUCIBLE.power(numbers(), 1.7)]
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        s = Sums(*(100 * torch.rand(64, 1, generator=generator, dtype=torch.float64) for _ in Sums._fields))
        up, down, q = (torch.rand(64, 1, generator=generator, dtype=torch.float64) + 0.05 for _ in range(3))
        found += evaluate(searches(up, down, 1 + 3 * q, 100), s, 1e-7, REPRODUCIBLE)
    return torch.cat([part.double().reshape(-1) for part in found]).nan_to_num(7.0)


def test_the_same_bits_with_any_instruction_set() -> None:
    """On machines that have others, torch takes other paths through the same operations."""
    found = set()
    for name in ("default", "avx2", "avx512"):
        paths = [str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
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


# The formulas


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


# What they lead to: threads in the place of processes


def hostile(kind: str, rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(300 + 100 * rank, 6, generator=generator, dtype=torch.float64)
    if kind == "ties":
        return (2 * x).round()
    if kind == "rectified":
        return x.relu()
    if kind == "apart":
        return x * 10.0**rank + 100 * rank
    if kind == "heavy tails":
        return x / torch.rand(x.shape, generator=generator, dtype=torch.float64)
    if kind == "one value elsewhere":
        return x if rank else torch.full((1, 6), 1e6, dtype=torch.float64)
    if kind == "nothing here":
        return x[:0] if rank == 1 else x
    if kind == "equal":
        return torch.full((5, 6), 3.0, dtype=torch.float64)
    if kind == "large offset":
        return x + 1e8
    return x * 1e200  # wild


KINDS = (
    "ties",
    "rectified",
    "apart",
    "heavy tails",
    "one value elsewhere",
    "nothing here",
    "equal",
    "large offset",
    "wild",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_centers_of_hostile_data(kind: str, backend: str) -> None:
    parts = [hostile(kind, rank) for rank in range(3)]
    with choose.using_backend(backend):
        for dtype in (torch.float64,) if kind == "wild" else (torch.float64, torch.float32):
            for phi in (1.0, 1.1, 1.5, 2.0, 3.0, math.inf):
                for weighted in (False, True):
                    check_center([part.to(dtype) for part in parts], phi, weighted)


def check_center(parts: list[Tensor], phi: float, weighted: bool) -> None:
    """The same bits in every thread, and within the bounds of what one process finds."""
    whole = torch.cat(parts)
    share = torch.rand(whole.shape, generator=torch.Generator().manual_seed(5)).to(whole.dtype)
    share = share * (share > 0.2)
    shares = share.split([len(part) for part in parts])

    def center(groups: ThreadGroup, rank: int) -> tuple[Tensor, Tensor]:
        of = Inputs(parts[rank], phi, 1.0, None, None, None, shares[rank] if weighted else None)
        rows = choose.normalize(of, groups, Rule(eps=1e-5)).saved.groups
        return rows[:, problem.CENTER], rows[:, problem.BOUND]

    (found, bound), *others = run_in_threads((0,), len(parts), center)
    for other in others:
        assert torch.equal(found, other[0])
        assert torch.equal(bound, other[1])
    exact = choose.center(whole.double(), phi, share.double() if weighted else None, Axes((0,)), None)
    off, allowed = (found - exact.center[0]).abs(), bound + exact.bound[0] + 1e-300
    assert bool((off <= allowed).all()), (phi, weighted, whole.dtype, off, allowed)
    if phi == 1:
        assert torch.equal(found, exact.center[0].to(whole.dtype).double())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_value_spoils_its_group_everywhere(bad: float) -> None:
    for phi in (1.0, 1.5, 2.0, math.inf):

        def rows(groups: ThreadGroup, rank: int, phi: float = phi) -> Tensor:
            x = hostile("apart", rank)
            if rank == 2:
                x[3, 4] = bad
            return choose.normalize(Inputs(x, phi, 1.0, None, None, None, None), groups, Rule()).output

        for y in run_in_threads((0,), 3, rows):
            assert y[:, 4].isnan().all()
            assert y[:, :4].isfinite().all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_gradients_are_those_of_one_process(backend: str, weighted: bool) -> None:
    parts = [hostile("heavy tails", rank)[:, :3] for rank in range(2)]
    lengths = [len(part) for part in parts]
    generator = torch.Generator().manual_seed(3)
    x, g = torch.cat(parts), torch.randn(sum(lengths), 3, generator=generator, dtype=torch.float64)
    share = 0.1 + torch.rand(x.shape, generator=generator, dtype=torch.float64)
    alpha, shift, gamma, beta = (0.5 + torch.rand(1, 3, generator=generator, dtype=torch.float64) for _ in range(4))
    learned = torch.tensor([[1.3, 1.5, 2.5]], dtype=torch.float64)
    places = (slice(0, lengths[0]), slice(lengths[0], None))

    def gradients(groups: Axes, rows: slice, phi: float | Tensor, rule: Rule, asked: tuple[bool, ...]) -> list[Tensor]:
        of = Inputs(x[rows], phi, alpha, shift, gamma, beta, share[rows] if weighted else None)
        saved = choose.normalize(of, groups, rule).saved
        found = choose.normalize_backward(Incoming(g[rows]), of, groups, rule, saved, asked)
        return [part for part in found if part is not None]

    for power in (2.0, 1.0, math.inf, 3.0, None):
        for phi in (learned, 1.0, 2.0, math.inf):
            rule = Rule(power=power, phi_strictly_inside=isinstance(phi, Tensor), spread_floor=0.05)
            asked = (True, isinstance(phi, Tensor), True, True, True, True, weighted)
            with choose.using_backend(backend):
                here = functools.partial(gradients, phi=phi, rule=rule, asked=asked)
                one, two = run_in_threads((0,), 2, lambda groups, rank, here=here: here(groups, places[rank]))
                expected = gradients(Axes((0,)), slice(None), phi, rule, asked)
            for k, (a, b, whole) in enumerate(zip(one, two, expected, strict=True)):
                joined = torch.cat([a, b]) if whole.shape == x.shape else a + b
                message = f"power={power} phi={phi} gradient {k}: "
                torch.testing.assert_close(joined, whole, rtol=1e-7, atol=1e-9, msg=lambda m, n=message: n + m)
