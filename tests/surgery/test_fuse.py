"""`fuse`: the same outputs with the norms worked in, or the reason why not."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import geonorm
from geonorm.introspect.graph import trace
from helpers.randomized_model import randomized
from helpers.slow_cases import slow_except
from helpers.third_party_models import THIRD_PARTY_MODELS, briefly_trained, pytorchcv_model

NORMS = {
    "bn": lambda c, d: getattr(nn, f"BatchNorm{d}d")(c),
    "aug": lambda c, d: getattr(geonorm, f"AugBatchNorm{d}d")(c, learn_alpha=True),
    "robust": lambda c, d: getattr(geonorm, f"AugBatchNorm{d}d")(c, spread="robust"),
    "pop": lambda c, d: getattr(geonorm, f"PopNorm{d}d")(c),
    "in": lambda c, d: getattr(nn, f"InstanceNorm{d}d")(c, affine=True, track_running_stats=True),
}


def shake(model: nn.Module) -> nn.Module:
    """Statistics and parameters far from their start."""
    for module in model.modules():
        if hasattr(module, "running_mean"):
            for p in module.parameters(recurse=False):
                nn.init.uniform_(p, 0.3, 1.5)
            for name, buffer in module.named_buffers(recurse=False):
                if buffer.is_floating_point():
                    nn.init.uniform_(buffer, 0.5 if "mean" not in name else -1, 2)
    return model.eval()


def fused_and_plain(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, geonorm.Report]:
    with torch.no_grad():
        expected = model(x)
        report = geonorm.fuse(model)
        return model(x), expected, report


KINDS = ["Linear", "Conv1d", "Conv2d", "Conv3d", *[f"ConvTranspose{d}d" for d in (1, 2, 3)]]


def check_instance_norm_behind_linear_is_left(bias: bool) -> None:
    """A row of features has no positions; with more dimensions, the channels are not the features."""
    model = shake(nn.Sequential(nn.Linear(4, 6, bias=bias), NORMS["in"](5, 1)))
    x = torch.randn(3, 5, 4)
    found, expected, report = fused_and_plain(model, x)
    assert [left.name for left in report.left] == ["1"], report
    assert not report.changed
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("bias", slow_except([True], [True, False]))
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", slow_except(["Linear", "Conv2d", "ConvTranspose1d"], KINDS))
def test_behind_an_operation(kind: str, bias: bool, norm: str) -> None:
    if (kind, norm) == ("Linear", "in"):
        check_instance_norm_behind_linear_is_left(bias)
        return
    torch.manual_seed(0)
    dim = 1 if kind == "Linear" else int(kind[-2])
    arguments = {} if kind == "Linear" else {"kernel_size": 3, "stride": 2, "padding": 1, "groups": 2}
    operation = getattr(nn, kind)(4, 6, bias=bias, **arguments)
    model = shake(nn.Sequential(operation, NORMS[norm](6, dim), nn.ReLU()))
    x = torch.randn(5, 4, *([] if kind == "Linear" else [7] * dim))
    found, expected, report = fused_and_plain(model, x)
    assert [change.name for change in report.changed] == ["1"], report
    assert isinstance(model[1], nn.Identity)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert not geonorm.fuse(model).changed


@pytest.mark.parametrize("norm", ["bn", "aug", "pop"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", slow_except([True], [True, False]))
@pytest.mark.parametrize("kind", slow_except(["Linear", "Conv2d"], ["Linear", "Conv1d", "Conv2d", "Conv3d"]))
def test_before_an_operation(kind: str, bias: bool, groups: int, norm: str) -> None:
    torch.manual_seed(0)
    dim = 1 if kind == "Linear" else int(kind[-2])
    arguments = {} if kind == "Linear" else {"kernel_size": 3, "groups": groups}
    model = shake(nn.Sequential(NORMS[norm](4, dim), getattr(nn, kind)(4, 6, bias=bias, **arguments)))
    x = torch.randn(5, 4, *([] if kind == "Linear" else [7] * dim))
    found, expected, report = fused_and_plain(model, x)
    assert report.changed, report
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_padding_keeps_a_norm_before_a_convolution() -> None:
    model = shake(nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3, padding=1)))
    found, expected, report = fused_and_plain(model, torch.randn(2, 4, 6, 6))
    assert "pads with zeros" in report.left[0].reason
    assert torch.equal(found, expected)
    for mode in ("reflect", "replicate", "circular"):
        model = shake(nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3, padding=1, padding_mode=mode)))
        found, expected, report = fused_and_plain(model, torch.randn(2, 4, 6, 6))
        assert report.changed
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    model = nn.Sequential(geonorm.PopNorm2d(4, center=False), nn.Conv2d(4, 6, 3, padding="same"))
    found, expected, report = fused_and_plain(shake(model), torch.randn(2, 4, 6, 6))
    assert report.changed  # it only scales
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_transposed_before() -> None:
    model = shake(nn.Sequential(nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 6, 3, groups=2)))
    assert "zeros" in geonorm.fuse(model).left[0].reason
    model = shake(nn.Sequential(geonorm.PopNorm2d(4, center=False), nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2)))
    found, expected, report = fused_and_plain(model, torch.randn(2, 4, 6, 6))
    assert report.changed
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", THIRD_PARTY_MODELS[:3], ids=lambda case: case.name)
def test_whole_models(case) -> None:
    model, inputs = briefly_trained(case).eval(), case.inputs()
    report = geonorm.fuse(model, example=inputs)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(report.left) == len(norms)
    if case.name == "resnet20":
        assert not norms


def test_after_pop_conversion() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    geonorm.convert(model, "pop")
    geonorm.recalibrate(model, [torch.randn(20, 4)])
    x = torch.randn(5, 4)
    found, expected, report = fused_and_plain(model.eval(), x)
    assert [change.name for change in report.changed] == ["0.pre_norm"], report
    assert not model[0]._forward_pre_hooks
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_what_is_left_and_why() -> None:
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.twice = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)
            self.group = nn.GroupNorm(1, 3)
            self.bound = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 3, 1))
            self.behind = nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            y = self.norm(y) + y
            return self.behind(self.bound(self.group(self.twice(self.twice(y)))))

    model = shake(Fork())
    x = torch.randn(2, 3, 5, 5)
    found, expected, report = fused_and_plain(model, x)
    assert not report.changed
    reasons = {left.name: left.reason for left in report.left}
    assert "no operation next to it" in reasons["norm"]
    assert "more than once" in reasons["twice"]
    assert "in evaluation too" in reasons["group"]
    assert "parametrized" in reasons["behind"]
    assert torch.equal(found, expected)


def test_training_mode_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        geonorm.fuse(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))


def test_a_model_that_would_change_is_restored() -> None:
    """(N, L, C) with L = C through Linear and BatchNorm1d: the norm's channels are not the operation's outputs."""
    model = shake(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    spare, x = copy.deepcopy(model), torch.randn(3, 4, 4)
    with pytest.raises(RuntimeError, match="the model is unchanged"):
        geonorm.fuse(model, example=x)
    assert torch.equal(model(x), spare(x))


def test_frozen_norms_are_fused() -> None:
    model = shake(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    geonorm.freeze(model)
    found, expected, report = fused_and_plain(model, torch.randn(5, 4))
    assert report.changed, report
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


class TestDropout:
    """Dropout that is off does nothing: it parts no norm from its operation."""

    class Functional(nn.Module):
        def __init__(self, on: bool | None) -> None:
            super().__init__()
            self.conv, self.norm, self.on = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), on

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(F.dropout(self.conv(x), 0.5, self.training if self.on is None else self.on))

    @pytest.mark.parametrize("kind", ["Dropout", "Dropout2d", "AlphaDropout", "FeatureAlphaDropout"])
    @pytest.mark.parametrize("inplace", [False, True])
    def test_behind_an_operation(self, kind: str, inplace: bool) -> None:
        model = shake(nn.Sequential(nn.Conv2d(3, 4, 3), getattr(nn, kind)(0.5, inplace), nn.BatchNorm2d(4)))
        found, expected, report = fused_and_plain(model, torch.randn(2, 3, 7, 7))
        assert [(change.name, change.after) for change in report.changed] == [("2", "in 0")], report
        assert "dropout" in report.changed[0].note
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    def test_before_an_operation(self) -> None:
        """The order of many heads."""
        model = shake(nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3), nn.BatchNorm1d(3)))
        found, expected, report = fused_and_plain(model, torch.randn(5, 4))
        assert [(change.after, bool(change.note)) for change in report.changed] == [("in 2", True), ("in 2", False)]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    def test_as_a_function(self) -> None:
        found, expected, report = fused_and_plain(shake(self.Functional(None)), torch.randn(2, 3, 7, 7))
        assert report.changed
        assert not report.left
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    def test_that_is_on(self) -> None:
        model = shake(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.5), nn.BatchNorm2d(4)))
        model[1].train()
        for kept in (model, shake(self.Functional(True))):
            assert "no operation next to it" in geonorm.fuse(kept).left[0].reason

    def test_with_hooks_or_a_forward_of_its_own(self) -> None:
        class Always(nn.Dropout):
            def forward(self, input: Tensor) -> Tensor:
                return F.dropout(input, self.p, True)

        hooked, patched, identity = nn.Dropout(0.5), nn.Dropout(0.5), nn.Identity()
        hooked.register_forward_hook(lambda module, inputs, output: 2 * output)
        patched.forward = identity.forward = lambda input: 2 * input
        for between in (hooked, patched, identity, Always(0.5)):
            model = shake(nn.Sequential(nn.Conv2d(3, 4, 3), between, nn.BatchNorm2d(4)))
            assert "no operation next to it" in geonorm.fuse(model).left[0].reason

    def test_other_verbs_see_it(self) -> None:
        """They make models to be trained, where it is on."""
        model = shake(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.5), nn.BatchNorm2d(4)))
        assert trace(model).norms["2"].before is None
        assert trace(model, inference=True).norms["2"].before == "0"

    def test_a_network_with_dropout_in_each_block(self) -> None:
        torch.manual_seed(0)
        model = randomized(pytorchcv_model("channelnet", "channelnet", num_classes=10)).eval()
        report = geonorm.fuse(model, example=torch.randn(1, 3, 224, 224))
        assert len(report.changed) == 15, report
        assert not report.left


def test_a_gap_of_nan_is_none_to_pass() -> None:
    from geonorm.surgery.fuse import _largest_gap

    x = torch.ones(3)
    assert _largest_gap((x, x * math.nan), (x, x)) == math.inf
    assert _largest_gap({"a": x, "b": x + 1}, {"a": x, "b": x}) == 1


def test_the_random_state_is_left_alone() -> None:
    model = shake(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    before = torch.get_rng_state()
    assert geonorm.fuse(model).changed
    assert torch.equal(torch.get_rng_state(), before)


def test_hooks_device_and_dtype_stay() -> None:
    model = shake(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))).double()
    seen: list[int] = []
    model[0].register_forward_hook(lambda *_: seen.append(0))
    found, expected, _ = fused_and_plain(model, torch.randn(2, 3, 6, 6).double())
    assert seen == [0, 0]
    assert model[0].weight.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


class Steep(nn.Module):
    """A block that doubles rounding errors."""

    def __init__(self, channels: int, norm: type[nn.Module] = nn.BatchNorm1d) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(channels, channels, bias=False), norm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(3 * self.norm(self.linear(x)))


class TestDeepModels:
    """Models whose own rounding is larger than what fusing is allowed elsewhere."""

    def make(self, depth: int = 20) -> nn.Module:
        torch.manual_seed(0)
        model = nn.Sequential(*[Steep(32) for _ in range(depth)])
        geonorm.recalibrate(model, [torch.randn(512, 32)])
        return model.eval()

    def test_rounding_is_told_from_a_fault(self) -> None:
        model, x = self.make(), torch.randn(8, 32)
        expected = model(x).detach()
        report = geonorm.fuse(model, example=x)
        assert len(report.changed) == 20
        assert "rounding" in report.notes[0]
        assert not any(isinstance(module, nn.BatchNorm1d) for module in model.modules())
        gap = (model(x) - expected).abs().max()
        assert 1e-5 < gap < 1e-2  # the model doubles an error about 13 times
        assert model[0].linear.weight.dtype == torch.float32

    def test_a_fault_is_refused(self) -> None:
        """(N, L, C) with L = C: the channels of the norms are not the outputs of the Linear layers."""
        model, x = self.make(), torch.randn(3, 32, 32)
        expected, weight = model(x).detach(), model[0].linear.weight
        with pytest.raises(RuntimeError, match=r"in float64 by .*the model is unchanged"):
            geonorm.fuse(model, example=x)
        assert model[0].linear.weight is weight
        assert torch.equal(model(x), expected)

    def test_a_model_that_float64_does_not_pass(self) -> None:
        class Single(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x.float()

        model = nn.Sequential(Single(), self.make())
        with pytest.raises(RuntimeError, match="float64 cannot judge it"):
            geonorm.fuse(model, example=torch.randn(8, 32))
        assert isinstance(model[1][0].norm, nn.BatchNorm1d)
