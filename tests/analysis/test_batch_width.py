"""Rank and kernel of the covariance (T5–T7): centring costs one, the printed min(n, B) is not reached."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import nn

from geonorm.analysis import batch_width, diagnose


def the_layer(model: nn.Module, x: torch.Tensor):
    (layer,) = batch_width(model, x).layers
    return layer


@pytest.mark.parametrize(("n", "batch"), [(6, 3), (6, 6), (6, 7), (6, 20), (20, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_T5_the_rank_is_min_of_n_and_B_minus_1(n: int, batch: int, dtype: torch.dtype) -> None:
    layer = the_layer(nn.Linear(n, 3, dtype=dtype), torch.randn(batch, n, dtype=dtype) + 3)
    assert (layer.width, layer.values) == (n, batch)
    assert layer.rank == min(n, batch - 1)
    assert layer.kernel == n - layer.rank
    assert (layer.rank < min(n, batch)) == (batch <= n)  # the printed bound is not reached for B ≤ n
    assert ("below width" in layer.verdict) == (batch <= n)


def test_T5_data_of_low_rank_are_seen() -> None:
    x = torch.randn(40, 3) @ torch.randn(3, 10)
    layer = the_layer(nn.Linear(10, 4), x)
    assert (layer.rank, layer.kernel) == (3, 7)
    assert layer.effective <= 3
    assert "do not constrain 7 directions" in layer.verdict


def test_T6_random_rows_are_outside_the_kernel_by_rank_over_n() -> None:
    """Never in the kernel, and the norm sees only the part outside: no channel collapses in a batch of 4."""
    from geonorm.analysis import sphere

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 2000, bias=False), nn.BatchNorm1d(2000, eps=1e-12)).double()
    x = torch.randn(4, 64, dtype=torch.float64)
    layer = the_layer(model, x)
    assert layer.outside == 3 / 64
    basis = torch.linalg.qr((x - x.mean(0)).T).Q[:, :3]
    w = model[0].weight.detach()
    share = (w @ basis).square().sum(1) / w.square().sum(1)
    assert float(share.mean()) == pytest.approx(layer.outside, rel=0.1)
    assert float(share.min()) > 1e-5
    (spheres,) = sphere(model, x).layers
    assert spheres.collapsed == {}
    assert spheres.radius == pytest.approx(1, abs=1e-6)


class PadsOnItsOwn(nn.Conv2d):
    """As TensorFlow's convolutions are brought over: padding is 0, and forward pads."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.pad(input, [k // 2 for k in self.kernel_size for _ in range(2)]))


@pytest.mark.parametrize("side", [4, 9])
def test_a_convolution_that_pads_on_its_own_is_named_and_the_others_are_read(side: int) -> None:
    """On a map smaller than the kernel, the patches cannot even be cut out."""
    model = nn.Sequential(nn.Conv2d(2, 3, 5, padding="same"), PadsOnItsOwn(3, 4, 5), nn.BatchNorm2d(4))
    diagnosis = diagnose(model, torch.randn(16, 2, side, side))
    assert diagnosis.missing == {}
    assert diagnosis.batch_width is not None
    assert [layer.name for layer in diagnosis.batch_width.layers] == ["0"]
    assert "pads" in diagnosis.batch_width.skipped["1"]


def test_T7_two_values_are_plus_and_minus_one_without_gradient() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, eps=1e-30)).double()
    x = torch.randn(2, 5, dtype=torch.float64)
    assert "±1" in the_layer(model, x).verdict
    y = model[0](x).detach().requires_grad_()
    out = model[1](y)
    (g,) = torch.autograd.grad(out, y, torch.randn(2, 4, dtype=torch.float64))
    assert float((out.detach().abs() - 1).abs().max()) < 1e-12
    assert float(g.abs().max()) < 1e-12
    conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    layer = the_layer(conv, torch.randn(2, 3, 5, 5))
    assert (layer.samples, layer.values) == (2, 18)
    assert "±1" not in layer.verdict


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 4, 3),
        nn.Conv2d(3, 4, (3, 2), stride=2, padding=1, dilation=2),
        nn.Conv2d(4, 4, 3, padding="same", groups=2),
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv1d(3, 2, 5, padding=2),
        nn.Conv3d(2, 2, 2),
    ],
    ids=["plain", "strided", "grouped", "circular", "1d", "3d"],
)
def test_patches_are_those_that_the_convolution_sees(conv: nn.Module) -> None:
    """The lines, times the weight, are the outputs."""
    from geonorm.analysis.batch_width import _columns

    x = torch.randn(2, conv.in_channels, *[7] * len(conv.kernel_size))
    lines, number, samples = _columns(conv, x)
    y = conv(x)
    rows = conv.out_channels // conv.groups
    expected = (y.movedim(1, -1).reshape(-1, conv.out_channels) - conv.bias)[:, :rows]
    assert (number, samples) == (len(expected), 2)
    torch.testing.assert_close(lines @ conv.weight[:rows].flatten(1).T, expected, atol=1e-5, rtol=1e-4)


def test_wide_layers_are_sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("geonorm.analysis.batch_width"), "_SKETCH", 64)
    layer = the_layer(nn.Linear(150, 2), torch.randn(160, 150))
    assert (layer.rank, layer.kernel) == (150, 0)
    thin = torch.randn(160, 20) @ torch.randn(20, 150)
    assert the_layer(nn.Linear(150, 2), thin).rank == 20
    wide = torch.randn(1000, 150)
    sketched = the_layer(nn.Linear(150, 2), wide).effective
    monkeypatch.undo()
    assert sketched == pytest.approx(the_layer(nn.Linear(150, 2), wide).effective, rel=0.15)


def test_what_cannot_be_read_is_skipped_with_the_reason() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.ConvTranspose1d(3, 3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x) / 0)

    found = batch_width(Odd(), [torch.randn(9, 3), torch.randn(9, 3), torch.randn(2, 3)])
    assert [layer.name for layer in found.layers] == ["a"]
    assert found.layers[0].values == 9  # a short last batch is not typical
    assert "NaN" in found.skipped["b"]
    assert "transposed" in found.skipped["c"]
    assert len(found.plot().axes) == 1
    assert found.to_dict()["layers"][0]["rank"] == 3


def test_an_offset_costs_no_direction_and_gives_none() -> None:
    torch.manual_seed(0)
    layer = the_layer(nn.Linear(64, 2), torch.randn(16, 64) + 10)
    assert (layer.rank, layer.kernel) == (15, 49)


def test_half_precision_sees_what_it_can_resolve() -> None:
    torch.manual_seed(0)
    assert the_layer(nn.Linear(512, 2).bfloat16(), torch.randn(640, 512).bfloat16()).rank == 512
    thin = (torch.randn(300, 20) @ torch.randn(20, 100)).bfloat16()
    assert the_layer(nn.Linear(100, 2).bfloat16(), thin).rank == 20


def test_spectra_are_small_and_taken_once_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    eigvalsh = torch.linalg.eigvalsh
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda matrix: sizes.append(len(matrix)) or eigvalsh(matrix))
    x = torch.randn(2, 128, 32, 32)
    layer = batch_width(nn.Conv2d(128, 12, 3), [x, x, x]).layers[0]
    assert (layer.width, layer.rank) == (1152, 1152)
    assert sizes == [512]
