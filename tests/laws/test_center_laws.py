"""Laws that every center obeys, for any data and any φ. Tolerances are the certified bounds plus the inputs'
rounding."""

import math

import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from geonorm.functional import center, center_with_info

EPS = torch.finfo(torch.float64).eps

numbers = st.one_of(
    st.floats(-100, 100, allow_subnormal=False),
    st.integers(-3, 3).map(float),  # ties
    st.just(0.0),  # post-ReLU zeros
    st.sampled_from([1e6, -1e6, 1e30, -1e30, 1e-30]),  # outliers
)
groups = st.lists(numbers, min_size=1, max_size=40).map(lambda v: torch.tensor(v, dtype=torch.float64))
phis = st.one_of(
    st.sampled_from([1.0, 1.01, 1.1, 1.2, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 8.0, 50.0, math.inf]),
    st.floats(1.05, 2),
    st.floats(2, 100),
)


def rounding(x: torch.Tensor) -> float:
    return 4 * EPS * float(x.abs().max())


@given(groups, phis, st.floats(-1e3, 1e3))
def test_shift_equivariance(x: torch.Tensor, phi: float, shift: float) -> None:
    here, there = center_with_info(x, phi), center_with_info(x + shift, phi)
    slack = here.bound + there.bound + rounding(x + shift) + rounding(x)
    assert abs(there.center - (here.center + shift)) <= slack


@given(groups, phis, st.floats(-1e3, 1e3).filter(lambda a: abs(a) > 1e-3))
@example(torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64), 1.5, -1.0)
def test_scale_equivariance(x: torch.Tensor, phi: float, scale: float) -> None:
    here, there = center_with_info(x, phi), center_with_info(scale * x, phi)
    slack = abs(scale) * here.bound + there.bound + rounding(scale * x)
    assert abs(there.center - scale * here.center) <= slack


@given(groups, phis, st.randoms(use_true_random=False))
def test_permutation_invariance(x: torch.Tensor, phi: float, random) -> None:
    order = list(range(len(x)))
    random.shuffle(order)
    here, there = center_with_info(x, phi), center_with_info(x[order], phi)
    assert abs(there.center - here.center) <= here.bound + there.bound


@given(groups, phis)
def test_between_the_extremes(x: torch.Tensor, phi: float) -> None:
    assert x.min() <= center(x, phi) <= x.max()


@given(groups, phis, st.data())
def test_monotone_in_each_value(x: torch.Tensor, phi: float, data: st.DataObject) -> None:
    raised = x.clone()
    raised[data.draw(st.integers(0, len(x) - 1))] += data.draw(st.floats(0, 1e3))
    here, there = center_with_info(x, phi), center_with_info(raised, phi)
    assert there.center >= here.center - here.bound - there.bound


@given(groups, phis, st.data())
def test_duplication_is_weight_2(x: torch.Tensor, phi: float, data: st.DataObject) -> None:
    counts = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=len(x), max_size=len(x))))
    counts[0] += 1
    repeated = center_with_info(x.repeat_interleave(counts), phi)
    weighted = center_with_info(x, phi, element_weight=counts)
    assert abs(repeated.center - weighted.center) <= repeated.bound + weighted.bound


@given(groups, phis, st.sampled_from([0.125, 0.3, 7.0, 1e5]))
def test_weights_matter_only_up_to_scale(x: torch.Tensor, phi: float, factor: float) -> None:
    alone = center_with_info(x, phi)
    weighted = center_with_info(x, phi, element_weight=torch.full_like(x, factor))
    assert abs(alone.center - weighted.center) <= alone.bound + weighted.bound


@given(groups)
def test_the_named_centers(x: torch.Tensor) -> None:
    assert abs(center(x, 2.0) - x.mean()) <= rounding(x) * 8
    assert abs(center(x, 1.0) - torch.quantile(x, 0.5)) <= rounding(x)
    assert abs(center(x, math.inf) - (x.min() / 2 + x.max() / 2)) <= rounding(x)


@given(groups, phis)
def test_gradient_is_a_share(x: torch.Tensor, phi: float) -> None:
    """Each value moves the center by a non-negative share of its own move; the shares sum to 1."""
    x = x.requires_grad_()
    center(x, phi).backward()
    assert x.grad.min() >= 0
    assert abs(x.grad.sum() - 1) <= 1e-12


@given(groups, st.floats(1.05, 60))
def test_it_is_the_minimum(x: torch.Tensor, phi: float) -> None:
    """No point a visible step away has a smaller sum of |x − y|^φ."""
    info = center_with_info(x, phi)
    scale = float((x - info.center).abs().max())
    assume(scale > 0)

    def cost(y: torch.Tensor) -> torch.Tensor:
        return ((x - y).abs() / scale).pow(phi).sum()

    step = max(1e-3 * scale, 10 * float(info.bound))
    assert cost(info.center) <= cost(info.center + step) * (1 + 1e-12)
    assert cost(info.center) <= cost(info.center - step) * (1 + 1e-12)
