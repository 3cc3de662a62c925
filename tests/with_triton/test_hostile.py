"""Data that break plain solvers: the certificate holds, and y is as good as float32 allows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from geonorm.ops import Axes, Grouping, Incoming, Inputs, Rule, Saved, Segments, problem
from geonorm.ops import triton as kernels
from geonorm.ops.torch import normalize as on_torch
from geonorm.ops.triton import measure
from helpers.oracles import interval_holds_center

MEMBERS = 200
PHIS = [1.05, 1.2, 1.5, 1.8, 2.0, 2.5, 4.0]


def data() -> dict[str, Tensor]:
    """One group each, float32."""
    generator = torch.Generator().manual_seed(3)

    def normal() -> Tensor:
        return torch.randn(MEMBERS, generator=generator)

    def one(value: float, base: Callable[[], Tensor] = normal, at: int = 7) -> Tensor:
        x = base()
        x[at] = value
        return x

    def zeros() -> Tensor:
        return torch.zeros(MEMBERS)

    return {
        "normal": normal(),
        "offset of 1e6 σ": normal() + 1e6,
        "offset of 25,000 σ": normal() * 0.08 + 2048,
        "1e-30": normal() * 1e-30,
        "1e30": normal() * 1e30,
        "half zeros": normal().clamp_min(0),
        "90 % zeros": (normal() - 1.28).clamp_min(0),
        "98 % zeros": (normal() - 2.05).clamp_min(0),
        "log-normal": (2 * normal()).exp(),
        "two heaps": torch.where(torch.rand(MEMBERS, generator=generator) < 0.6, normal() * 0.1, 3 + normal() * 0.1),
        "outlier 1e6": one(1e6),
        "outlier 1e30": one(1e30),
        "first value -1e30": one(-1e30, at=0),
        "Cauchy": normal() / normal(),
        "ties": (normal() * 8).round() / 8,
        "three values": torch.randint(-1, 2, (MEMBERS,), generator=generator).float(),
        "constant": torch.full((MEMBERS,), 2.5),
        "constant, rounded sums": torch.full((MEMBERS,), 0.3),
        "zeros": zeros(),
        "one differs": one(1.0, zeros),
        "one differs by 1e30": one(1e30, zeros),
        "NaN": one(math.nan),
        "Inf": one(math.inf),
        "-Inf": one(-math.inf),
    }


def arranged(x: Tensor, way: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Grouping]:
    """The rows of x as groups that take one of the three ways through the kernels."""
    if way == "in parts":
        monkeypatch.setattr(measure, "SMALL", 0)
    if way == "segments":
        return x.reshape(-1, 1), Segments(torch.arange(len(x)).repeat_interleave(x.shape[1]), len(x))
    return x, Axes((1,))


def run(phi: float, power: float | None, way: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, ...]:
    """x, y and rows of the kernels, then those of torch in float64."""
    x = torch.stack(list(data().values()))
    given, groups = arranged(x, way, monkeypatch)
    of, rule = Inputs(given, phi, 1.0, None, None, None, None), Rule(power=power)
    found = kernels.normalize(of, groups, rule)
    assert found is not None
    wide = on_torch.normalize(of._replace(x=x.double()), Axes((1,)), rule)
    return x, found.output.reshape(x.shape), found.saved.groups, wide.output, wide.saved.groups


either = pytest.mark.parametrize("in_parts", [False, True], ids=["in registers", "in parts"])
every_way = pytest.mark.parametrize("way", ["in registers", "in parts", "segments"])


CASES = [(phi, 2.0) for phi in PHIS] + [(phi, power) for phi in (1.05, 1.5, 2.5) for power in (None, 1.0, math.inf)]


@every_way
@pytest.mark.parametrize(("phi", "power"), CASES)
def test_output_and_statistics(phi: float, power: float | None, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, y, rows, exact_y, exact_rows = run(phi, power, way, monkeypatch)
    for i, name in enumerate(data()):
        spread, center = exact_rows[i, problem.SPREAD], exact_rows[i, problem.CENTER]
        if name in ("NaN", "Inf", "-Inf"):
            assert bool(y[i].isnan().all()), name
            assert bool(rows[i, [problem.CENTER, problem.SPREAD, problem.RHO]].isnan().all()), name
            continue
        # The center is found to where rounding hides the sign of F: κ/q of the mean distance (MATH.md A.3), κ about 16
        # roundings; at q = 0.05 that is 4e-5. Where μ is far beyond the spread, its own rounding counts too.
        limit = 4e-6 / min(1.0, 4 * (phi - 1)) * max(1.0, float(spread)) if power is not None else 4e-6 * float(spread)
        limit = max(limit, 4e-6 / min(1.0, 4 * (phi - 1)) * float(spread)) + 2e-7 * abs(float(center))
        assert abs(float(rows[i, problem.CENTER] - center)) <= limit, name
        assert abs(float(rows[i, problem.SPREAD] - spread)) <= 4e-6 * float(spread) + limit, name
        error = float((y[i].double() - exact_y[i]).abs().max())
        scale = max(1.0, float(exact_y[i].abs().max()))
        assert error <= 1e-5 * scale + limit / max(float(spread), 3e-3), f"{name}: y off by {error:.1e}"


@every_way
@pytest.mark.parametrize("phi", [phi for phi in PHIS if phi != 2])
def test_the_certificate_holds(phi: float, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the sign of F at both ends of the interval, in long double."""
    x, _, rows, _, exact_rows = run(phi, None, way, monkeypatch)
    values = x.double().numpy()
    for i, name in enumerate(data()):
        if name in ("NaN", "Inf", "-Inf"):
            continue
        c, bound = (
            np.array([[float(rows[i, column])]], dtype=np.longdouble) for column in (problem.CENTER, problem.BOUND)
        )
        row = values[i : i + 1].astype(np.longdouble)
        assert bool(interval_holds_center(row, np.ones_like(row), phi, c, bound)[0]), name
        deviation = float(exact_rows[i, problem.VAR].sqrt())
        assert float(bound[0, 0]) <= 2e-4 * deviation + 3e-7 * abs(float(c[0, 0])), f"{name}: a bound of no use"


@either
@pytest.mark.parametrize("dims", [(0,), (0, 2)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_broken_channel_breaks_no_other(
    bad: float, dims: tuple[int, ...], in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(24, 5, 6) if len(dims) == 2 else torch.randn(24, 5)
    of, rule = Inputs(x, 1.5, 1.0, None, torch.rand(1, 5, *[1] * (x.dim() - 2)), None, None), Rule(power=None)
    if in_parts:
        monkeypatch.setattr(measure, "SMALL", 0)
    expected = kernels.normalize(of, Axes(dims), rule)
    broken = x.clone()
    broken[3, 1] = bad
    found = kernels.normalize(of._replace(x=broken), Axes(dims), rule)
    assert expected is not None
    assert found is not None
    others = [0, 2, 3, 4]
    assert torch.equal(found.output[:, others], expected.output[:, others])
    assert bool(found.output[:, 1].isnan().all())
    needs = (True, False, False, False, True, False, False)
    dx, _, _, _, d_gamma, *_ = kernels.normalize_backward(
        torch.randn_like(x), of._replace(x=broken), Axes(dims), rule, found.saved, needs
    )  # type: ignore[misc]
    assert bool(dx[:, others].isfinite().all())
    assert bool(d_gamma[:, others].isfinite().all())


@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (1, 5)])
@pytest.mark.parametrize("phi", [1.5, 2.0, 3.0])
def test_one_value_per_group_and_one_group(shape: tuple[int, int], phi: float) -> None:
    x = 0.3 * torch.arange(1.0, 1 + math.prod(shape)).reshape(shape)
    found = kernels.normalize(Inputs(x, phi, 1.0, None, None, None, None), Axes((1,)), Rule())
    assert found is not None
    expected = on_torch.normalize(Inputs(x.double(), phi, 1.0, None, None, None, None), Axes((1,)), Rule())
    torch.testing.assert_close(found.output.double(), expected.output, rtol=2e-6, atol=2e-6)


def test_nothing_is_refused() -> None:
    """An empty tensor has no kernel: torch takes it."""
    of = Inputs(torch.empty(0, 4), 1.5, 1.0, None, None, None, None)
    assert kernels.normalize(of, Axes((0,)), Rule()) is None


# Backward. Which values lie on the center depends on its last digits, and what a value next to it weighs does too: so
# the reference starts from the rows of the kernels. Below φ = 2, |r| has a floor of 4 eps max|x|, with float32's eps.

TIED = {
    "half zeros",
    "90 % zeros",
    "98 % zeros",
    "ties",
    "three values",
    "constant",
    "constant, rounded sums",
    "zeros",
    "one differs",
}
TIED |= {"one differs by 1e30"}


def expected_dx(g: Tensor, of: Inputs, rule: Rule, rows: Tensor, name: str) -> Tensor:
    """dx of one group by torch: in float64 with that floor; where ties of |z| count, in float32, which sees them."""
    needs = (True, *[False] * 6)
    if rule.power != math.inf and not (rule.power is None and name in TIED):
        floor = (
            4 * torch.finfo(torch.float32).eps * float(of.x.abs().max()) / max(float(rows[0, problem.SPREAD]), 1e-300)
        )
        of, g, rule = of._replace(x=of.x.double(), gamma=of.gamma.double()), g.double(), rule._replace(grad_floor=floor)
    found = on_torch.normalize_backward(Incoming(g), of, Axes((1,)), rule, Saved(rows), needs)[0]
    assert found is not None
    return found.double()


@every_way
@pytest.mark.parametrize(("phi", "power"), CASES)
def test_backward(phi: float, power: float | None, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {name: x for name, x in data().items() if name not in ("NaN", "Inf", "-Inf")}
    x, gamma = torch.stack(list(kept.values())), torch.rand(1, MEMBERS) + 0.5
    if way == "segments":
        gamma = torch.ones(1, MEMBERS)  # it is the same for a whole group there
    given, groups = arranged(x, way, monkeypatch)
    of, rule = Inputs(x, phi, 1.0, None, gamma, None, None), Rule(power=power)
    own = of._replace(x=given, gamma=None if way == "segments" else gamma)
    found, g = kernels.normalize(own, groups, rule), torch.randn_like(x)
    assert found is not None
    mine = kernels.normalize_backward(g.reshape(given.shape), own, groups, rule, found.saved, (True, *[False] * 6))
    assert mine is not None
    assert mine[0] is not None
    dx = mine[0].reshape(x.shape)
    for i, name in enumerate(kept):
        one = slice(i, i + 1)
        expected = expected_dx(g[one], of._replace(x=x[one]), rule, found.saved.groups[one], name)
        error = (dx[one].double() - expected).abs().max() / expected.abs().max().clamp_min(1e-37)
        # A value of |z| next to the robust spread's center counts as much as it is near, and |z| is rounded: by eps|z|.
        assert float(error) <= (3e-4 if power is None else 1e-5), f"{name}: dx off by {float(error):.1e}"
