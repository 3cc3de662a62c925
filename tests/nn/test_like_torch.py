"""Running statistics as torch's own tools handle them: flags set later, buffers written or taken away, old states."""

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import geonorm
from helpers.layer_cases import CASES, LayerCase

TWINS = [case for case in CASES if case.twin is not None and ("Batch" in case.name or "Instance" in case.name)]
each_twin = pytest.mark.parametrize("case", TWINS, ids=lambda case: case.name)


def pair(case: LayerCase, **options: Any) -> tuple[nn.Module, nn.Module]:
    """Torch's layer and ours at φ=2, after the same training."""
    options = {"track_running_stats": True, "dtype": torch.float64, **options}
    theirs, ours = case.twin(**options), case.make(phi=2.0, **options)
    for seed in range(3):
        for layer in (theirs, ours):
            layer(case.input(seed=seed))
    return theirs, ours


def same(case: LayerCase, theirs: nn.Module, ours: nn.Module) -> None:
    """The same outputs and buffers, in evaluation and in training."""
    for training in (False, True, False):
        x = case.input(seed=7)
        torch.testing.assert_close(ours.train(training)(x), theirs.train(training)(x))
        for name, buffer in theirs.named_buffers():
            torch.testing.assert_close(getattr(ours, name), buffer, msg=lambda text, name=name: f"{name}: {text}")


def no_tracking(layer: nn.Module) -> None:
    layer.track_running_stats = False


def no_buffers(layer: nn.Module) -> None:
    """As test-time adaptation does it."""
    layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None


def buffers_taken_away(layer: nn.Module) -> None:
    layer.running_mean = layer.running_var = None


def write(layer: nn.Module) -> None:
    with torch.no_grad():
        layer.running_mean.copy_(torch.linspace(-1, 1, len(layer.running_mean)))
        layer.running_var.data.fill_(3.0)


def replace(layer: nn.Module) -> None:
    layer.running_mean, layer.running_var = torch.ones_like(layer.running_mean), torch.ones_like(layer.running_var) * 5


CHANGES = [no_tracking, no_buffers, buffers_taken_away, write, replace]


@pytest.mark.parametrize(
    ("case", "change"),
    # An InstanceNorm whose buffers were taken away does not evaluate: see the next test.
    [(c, how) for c in TWINS for how in CHANGES if "Batch" in c.name or how is not buffers_taken_away],
    ids=lambda value: value.name if isinstance(value, LayerCase) else value.__name__,
)
def test_what_is_changed_later_acts_as_in_torch(case: LayerCase, change: Callable[[nn.Module], None]) -> None:
    theirs, ours = pair(case)
    for layer in (theirs, ours):
        change(layer)
    same(case, theirs, ours)


@each_twin
def test_missing_buffers_are_named(case: LayerCase) -> None:
    theirs, ours = (layer.eval() for layer in pair(case))
    for layer in (theirs, ours):
        layer.running_mean = None
        with pytest.raises(RuntimeError, match="running"):
            layer(case.input())
    if "Instance" in case.name:
        for layer in (theirs, ours):
            layer.running_var = None
            with pytest.raises(RuntimeError, match="running"):
                layer(case.input())


@pytest.mark.parametrize("case", [case for case in CASES if case.running], ids=lambda case: case.name)
@pytest.mark.parametrize("options", [{"phi": 1.5}, {"spread": "max_abs"}, {"guard": 3.0}, {"phi": 1.5, "spread": 1.0}])
def test_flags_hold_for_every_statistic(case: LayerCase, options: dict[str, Any]) -> None:
    layer = case.make(**options, dtype=torch.float64)
    layer(case.input())
    before = copy.deepcopy(layer.state_dict())
    evaluated = layer.eval()(case.input())
    no_tracking(layer)
    layer.train()(case.input(seed=1))
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])
    assert torch.equal(layer.eval()(case.input()), evaluated)
    no_buffers(layer)
    x = case.input(seed=1)
    alone = case.make(**options, track_running_stats=False, dtype=torch.float64).eval()
    torch.testing.assert_close(layer(x), alone(x))


@each_twin
def test_batches_are_counted_as_in_torch(case: LayerCase) -> None:
    theirs, ours = pair(case)
    for layer in (theirs, ours):
        layer(case.input()[:0])
        layer.eval()(case.input()[:0])
    assert ours.num_batches_tracked == theirs.num_batches_tracked
    if "Batch" in case.name:  # torch's InstanceNorm has NaN in its buffers after a batch without values; ours has not
        same(case, theirs, ours)
    assert all(bool(buffer.isfinite().all()) for buffer in ours.buffers())


@each_twin
@pytest.mark.parametrize("phi", [1.5, 2.0])
def test_states_of_before_batches_were_counted(case: LayerCase, phi: float) -> None:
    theirs, _ = pair(case)
    old = dict(theirs.state_dict())  # without metadata, as it was then
    del old["num_batches_tracked"]
    ours = case.make(phi=phi, track_running_stats=True, dtype=torch.float64)
    assert not any(ours.load_state_dict(old, strict=True))
    assert ours.num_batches_tracked == 0
    torch.testing.assert_close(ours.eval()(case.input()), theirs.eval()(case.input()))
    today = theirs.state_dict()
    del today["num_batches_tracked"]
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        ours.load_state_dict(today, strict=True)


@each_twin
def test_states_are_exchanged_at_phi_2(case: LayerCase) -> None:
    """In both directions, strictly; a center of earlier versions is dropped."""
    theirs, ours = pair(case)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert not any(theirs.load_state_dict(ours.state_dict(), strict=True))
    before = ours.state_dict()
    before["running_center"] = before["running_mean"] + 5
    assert not any(ours.load_state_dict(before, strict=True))
    same(case, theirs, ours)


WRITERS = {
    "in place": lambda buffer, value: buffer.copy_(value),
    "data": lambda buffer, value: buffer.data.copy_(value),
    "numpy": lambda buffer, value: buffer.numpy().__setitem__(slice(None), value.numpy()),
}


@pytest.mark.parametrize("spread", ["rms", "mean_abs", "max_abs", "robust"])
@pytest.mark.parametrize("how", WRITERS)
@pytest.mark.parametrize("kind", [geonorm.AugBatchNorm1d, geonorm.PopNorm1d])
def test_what_others_write_counts_at_any_phi(kind: Any, how: str, spread: str) -> None:
    """A layer that others give a mean and a variance evaluates as one that loads them."""
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(20, 3, generator=generator, dtype=torch.float64).exp() for _ in range(3)]
    mean, var = torch.tensor([3.0, -1.0, 0.5]).double(), torch.tensor([2.0, 0.5, 1.0]).double()
    layer, expected = (kind(3, phi=1.5, spread=spread, dtype=torch.float64) for _ in range(2))
    layer(batches[0])
    WRITERS[how](layer.running_mean, mean)
    WRITERS[how](layer.running_var, var)
    state = {"running_mean": mean, "running_var": var, "num_batches_tracked": torch.tensor(1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the scale is an estimate
        expected.load_state_dict(state, strict=False)
    if expected.running_scale is not None and spread == "max_abs" and kind is geonorm.PopNorm1d:
        expected.running_upper.copy_(var.sqrt())
        expected.running_lower.copy_(var.sqrt())
    torch.testing.assert_close(layer.eval()(batches[1]), expected.eval()(batches[1]))
    torch.testing.assert_close(copy.deepcopy(layer)(batches[1]), expected(batches[1]))
    layer.train()(batches[2])
    expected.train()(batches[2])
    torch.testing.assert_close(layer.eval()(batches[1]), expected.eval()(batches[1]))


def test_what_is_written_together_belongs_together() -> None:
    """Averages of models, states that are loaded and statistics written on purpose change the center too."""
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).exp()
    layer = geonorm.AugBatchNorm1d(3, phi=1.5, momentum=1.0, dtype=torch.float64)
    layer(x)
    averaged = copy.deepcopy(layer)
    for mine, other in zip(averaged.state_dict().values(), layer.state_dict().values(), strict=True):
        if mine.is_floating_point():
            mine.lerp_(other + 1, 0.5)
    layer.running_mean.fill_(1.0)
    layer.running_center.fill_(2.0)
    for each in (layer, averaged):
        center, var = each.running_center, each.running_var + (each.running_mean - each.running_center).square()
        expected = (x - center) / (var + each.eps).sqrt()
        weight, bias = (1.0, 0.0) if each is layer else (1.5, 0.5)
        torch.testing.assert_close(each.eval()(x).detach(), weight * expected + bias)


def test_torch_fuses_at_phi_2() -> None:
    conv, norm = nn.Conv2d(2, 3, 3), geonorm.AugBatchNorm2d(3, phi=2.0)
    x = torch.randn(4, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    norm(conv(x))
    write(norm)
    model = nn.Sequential(conv, norm).eval()
    torch.testing.assert_close(nn.utils.fuse_conv_bn_eval(conv, norm)(x), model(x))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_instances_without_parameters_take_any_number_of_channels(n: int) -> None:
    """With a warning, as torch's; what has parameters or buffers raises."""
    x = torch.randn(2, 5, *[4] * n, generator=torch.Generator().manual_seed(0))
    theirs, ours = getattr(nn, f"InstanceNorm{n}d"), getattr(geonorm, f"AugInstanceNorm{n}d")
    for make in (theirs, lambda channels: ours(channels, phi=2.0)):
        with pytest.warns(UserWarning, match="num_features"):
            found = make(3)(x)
        torch.testing.assert_close(found, theirs(5)(x))
    for options in ({"affine": True}, {"track_running_stats": True}, {"learn_phi": True}, {"learn_alpha": True}):
        with pytest.raises(ValueError, match="num_features"):
            ours(3, **options)(x)


def test_a_mean_written_under_the_compiler() -> None:
    torch.compiler.reset()  # tests before this one may have used up the compiler's attempts at this code
    layer = geonorm.AugBatchNorm1d(3, phi=1.5).eval()
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    compiled(x)
    layer.running_mean.fill_(math.pi)
    torch.testing.assert_close(compiled(x), layer(x))
    torch.testing.assert_close(layer(x).detach(), (x - math.pi) / math.sqrt(1 + 1e-5))
