"""Running statistics: what they follow, what never enters them, and how a torch state_dict becomes ours."""

import math
import warnings

import pytest
import torch
from torch import nn

import geonorm
from geonorm.functional import center, spread

KINDS = ["rms", "mean_abs", "max_abs", 3.0, "robust"]


def data(seed: int = 0, rows: int = 200) -> torch.Tensor:
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).exp() + 1


@pytest.mark.parametrize("kind", KINDS)
def test_buffers_follow_the_batch(kind: str | float) -> None:
    layer = geonorm.AugBatchNorm1d(3, momentum=1.0, spread=kind, dtype=torch.float64)
    x = data()
    layer(x)
    c = center(x, 1.5, 0)
    torch.testing.assert_close(layer.running_mean, x.mean(0))
    torch.testing.assert_close(layer.running_var, x.var(0))
    torch.testing.assert_close(layer.running_center, c)
    assert (layer.running_scale is None) == (kind == "rms")
    if kind != "rms":
        torch.testing.assert_close(layer.running_scale, spread(x, kind, 0, about=c).square())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [1.0, 0.6])
def test_eval_with_the_statistics_of_one_batch_is_training_on_it(kind: str | float, alpha: float) -> None:
    layer = geonorm.AugBatchNorm1d(3, momentum=1.0, spread=kind, alpha=alpha, dtype=torch.float64)
    x = data()
    trained = layer(x)
    if kind == "rms":  # evaluation uses the unbiased variance, as BatchNorm
        layer.running_var.mul_((len(x) - 1) / len(x))
    torch.testing.assert_close(layer.eval()(x), trained)


@pytest.mark.parametrize(
    "options", [{}, {"shift": "mul"}, {"order": "scale_first"}, {"center": False}, {"scale": False}]
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phi", [2.0, 1.5])
def test_pop_eval_with_the_statistics_of_one_batch(kind: str | float, phi: float, options: dict) -> None:
    layer = geonorm.PopNorm1d(3, momentum=1.0, spread=kind, phi=phi, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.tensor([0.3, -0.2, 0.1]))
    x = data()
    trained = layer(x)
    if kind == "rms":
        layer.running_var.mul_((len(x) - 1) / len(x))
    torch.testing.assert_close(layer.eval()(x), trained)


@pytest.mark.parametrize("shift", ["add", "mul"])
@pytest.mark.parametrize("kind", ["rms", "max_abs"])
def test_pop_eval_is_exact_when_the_shift_moves(kind: str, shift: str) -> None:
    """The statistics do not contain β: after a step of the optimizer evaluation is still right."""
    layer = geonorm.PopNorm1d(3, momentum=1.0, spread=kind, shift=shift, dtype=torch.float64)
    x = data()
    layer(x)
    if kind == "rms":
        layer.running_var.mul_((len(x) - 1) / len(x))
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([0.5, -0.7, 0.1]))
    expected = geonorm.PopNorm1d(3, spread=kind, shift=shift, track_running_stats=False, dtype=torch.float64)
    expected.load_state_dict({k: v for k, v in layer.state_dict().items() if k in ("weight", "bias")})
    torch.testing.assert_close(layer.eval()(x), expected(x))


def test_momentum_none_is_the_average_over_batches() -> None:
    layer = geonorm.AugBatchNorm1d(3, momentum=None, dtype=torch.float64)
    batches = [data(seed) for seed in range(5)]
    for batch in batches:
        layer(batch)
    torch.testing.assert_close(layer.running_center, torch.stack([center(b, 1.5, 0) for b in batches]).mean(0))
    torch.testing.assert_close(layer.running_mean, torch.stack([b.mean(0) for b in batches]).mean(0))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phi", [1.0, 1.5])  # the median of a sample with one Inf is finite
@pytest.mark.parametrize("make", [geonorm.AugBatchNorm1d, geonorm.PopNorm1d])
def test_bad_values_never_enter_the_buffers(make, phi: float, kind: str | float, bad: float) -> None:
    layer = make(3, phi=phi, spread=kind, dtype=torch.float64)
    layer(data())
    before = {name: value.clone() for name, value in layer.named_buffers()}
    x = data(1)
    x[5, 1] = bad
    y = layer(x)
    assert bool(y[:, [0, 2]].isfinite().all())
    for name, value in layer.named_buffers():
        assert bool(value.isfinite().all())
        if value.dim():
            assert value[1] == before[name][1]
            assert value[0] != before[name][0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batchnorm_state_dict_loads(kind: str | float) -> None:
    theirs = nn.BatchNorm1d(3)
    for seed in range(20):
        theirs(torch.randn(50, 3, generator=torch.Generator().manual_seed(seed)) * 2 + 1)
    ours = geonorm.AugBatchNorm1d(3, spread=kind, learn_phi=True, learn_alpha=True)
    if kind in ("max_abs", 3.0):
        with pytest.warns(UserWarning, match="recalibration"):
            ours.load_state_dict(theirs.state_dict(), strict=True)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ours.load_state_dict(theirs.state_dict(), strict=True)
    torch.testing.assert_close(ours.running_center, theirs.running_mean)
    ratio = {"mean_abs": 2 / math.pi, "robust": 1.0}
    if kind in ratio:
        torch.testing.assert_close(ours.running_scale, theirs.running_var * ratio[kind])
    if kind == 3.0:
        expected = spread(torch.randn(10**6, generator=torch.Generator().manual_seed(0)), 3.0).square()
        torch.testing.assert_close(ours.running_scale / theirs.running_var, expected.expand(3), rtol=0.01, atol=0)


def test_phi_2_evaluates_as_the_batchnorm_it_was_loaded_from() -> None:
    theirs = nn.BatchNorm2d(3).train()
    theirs(torch.randn(8, 3, 5, 5) * 3 + 2)
    x = torch.randn(4, 3, 5, 5)
    for phi in (1.5, 2.0):
        ours = geonorm.AugBatchNorm2d(3, phi=phi)
        ours.load_state_dict(theirs.state_dict())
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_two_forwards_before_a_backward() -> None:
    """As DDP does: the second forward must not spoil what the first saved."""
    layer, apart = (
        geonorm.AugBatchNorm1d(3, learn_phi=True, learn_alpha=True, spread="robust", dtype=torch.float64)
        for _ in range(2)
    )
    first, second = layer(data()), layer(data(1))
    (first.pow(3).sum() + second.pow(3).sum()).backward()
    for seed in (0, 1):
        apart(data(seed)).pow(3).sum().backward()
    for (name, parameter), expected in zip(layer.named_parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad, msg=lambda m, n=name: n + m)

    x, center = data().requires_grad_(), layer.running_center.clone()
    loss, wanted = layer.eval()(x).pow(3).sum(), (x, layer.alpha, layer.weight, layer.bias)
    before = torch.autograd.grad(loss, wanted, retain_graph=True)
    layer.train()(data(1))
    assert not torch.equal(layer.running_center, center)
    torch.testing.assert_close(torch.autograd.grad(loss, wanted), before, rtol=0, atol=0)


def test_alpha_of_eval_gets_its_gradient() -> None:
    layer = geonorm.AugBatchNorm1d(3, learn_alpha=True, dtype=torch.float64)
    layer(data())
    layer.eval()

    def f(alpha: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"alpha": alpha}, (data(1),))

    assert torch.autograd.gradcheck(f, torch.tensor([0.9, 1.0, 0.4], dtype=torch.float64, requires_grad=True))
