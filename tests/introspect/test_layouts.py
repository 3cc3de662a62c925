"""What counts as a norm, and blocks that are only called one."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import geonorm
from geonorm.introspect.layouts import is_norm, layout_of
from helpers.randomized_model import randomized


class ConvNormAct(nn.Module):
    """As timm's: a block, called as if it were a norm."""

    def __init__(self, inputs: int, outputs: int, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3)
        self.bn = nn.BatchNorm2d(outputs) if norm is None else norm
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class WrapperNorm(nn.Module):
    """As PyG's: a wrapper around torch's norm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.module = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)


class LlamaRMSNorm(nn.Module):
    """As Hugging Face's."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(channels)), 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


class ConditionalNorm(nn.Module):
    """It has a Linear in it, and normalizes itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, training=True) * self.scale(x.mean(0, keepdim=True))


class ABN(nn.Module):
    """A norm by another name: it keeps running statistics."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        x = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.training)
        return F.leaky_relu(x)


class TestIsNorm:
    @pytest.mark.parametrize("make", [LlamaRMSNorm, ConditionalNorm, ABN, nn.BatchNorm1d, nn.RMSNorm])
    def test_what_normalizes_is_one(self, make) -> None:
        assert is_norm(make(4))

    @pytest.mark.parametrize(
        "module",
        [ConvNormAct(3, 4), ConvNormAct(3, 4, nn.Identity()), WrapperNorm(4), nn.Linear(4, 4), nn.Sequential()],
        ids=["block", "block without norm", "wrapper", "linear", "container"],
    )
    def test_what_only_contains_or_is_called_so_is_none(self, module: nn.Module) -> None:
        assert not is_norm(module)

    def test_sync_takes_a_block_with_such_a_name(self) -> None:
        model = nn.Sequential(ConvNormAct(3, 4), ConvNormAct(4, 4, nn.Identity()))
        assert [change.name for change in geonorm.sync(model).changed] == ["0.bn"]

    @pytest.mark.parametrize("make", [ConditionalNorm, ABN])
    def test_sync_refuses_what_it_does_not_know(self, make) -> None:
        with pytest.raises(ValueError, match=make.__name__):
            geonorm.sync(nn.Sequential(nn.Linear(4, 4), make(4)))


class TestInsideBlocksCalledNorm:
    def test_fuse(self) -> None:
        model, x = randomized(nn.Sequential(ConvNormAct(3, 4), ConvNormAct(4, 4))), torch.randn(2, 3, 8, 8)
        expected = model(x)
        report = geonorm.fuse(model)
        assert [change.name for change in report.changed] == ["0.bn", "1.bn"], report
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)
        model = randomized(nn.Sequential(nn.Linear(4, 4), WrapperNorm(4)))
        assert [change.name for change in geonorm.fuse(model).changed] == ["1.module"]

    @pytest.mark.parametrize("spec", ["pop", "wn", "ws"])
    def test_convert(self, spec: str) -> None:
        model = nn.Sequential(ConvNormAct(3, 4), ConvNormAct(4, 4, nn.Identity()))
        report = geonorm.convert(model, spec)
        assert [change.name for change in report.changed] == ["0.bn"], report
        assert not report.left
        model(torch.randn(2, 3, 8, 8))

    @pytest.mark.parametrize("norm", ["batch_norm", "BatchNorm"])
    def test_pyg_mlp(self, norm: str) -> None:
        geometric = pytest.importorskip("torch_geometric.nn")
        model, x = randomized(geometric.MLP([4, 8, 8, 3], norm=norm)), torch.randn(5, 4)
        expected = model(x)
        report = geonorm.fuse(model, example=x)
        assert len(report.changed) == 2, report
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)


def test_known_layouts_are_those_of_ours_too() -> None:
    for layer in (geonorm.AugBatchNorm3d(4), geonorm.AugInstanceNorm1d(4), geonorm.AugLayerNorm(4)):
        assert layout_of(layer) is not None
    assert layout_of(geonorm.PopNorm2d(4)) is None
