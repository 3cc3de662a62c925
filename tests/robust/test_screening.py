"""The result of `screen`: words, JSON and a plot."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import Tensor, nn

from geonorm.robust import Screening, screen

N = 300


def images(seed: int = 0, number: int = N) -> Tensor:
    """Smooth patterns of three channels, from 0 to 1 and a little beyond."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(number, 3, 4, 4, generator=generator)
    smooth = nn.functional.interpolate(coarse, size=(16, 16), mode="bilinear")
    return smooth + 0.02 * torch.randn(smooth.shape, generator=generator)


def conv_net() -> nn.Module:
    torch.manual_seed(0)
    first = [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*first, nn.Conv2d(8, 12, 3), nn.BatchNorm2d(12), nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.fixture(scope="module")
def found() -> Screening:
    x = images()
    x[3] *= 100
    x[10:60] = 0.0
    x[4, 0, 0, 0] = torch.nan
    return screen(conv_net(), list(x.split(100)))


def test_the_result_says_it_in_words(found: Screening) -> None:
    told = str(found)
    assert told.startswith("52 of 300 samples look broken: 50 constant, 1 not finite, 1 too large.\n")
    assert "... and 32 more" in told
    assert "Looked at input, 1, 4." in told
    assert len(found.table().splitlines()) == 54
    assert found.kept == [i for i in range(N) if i not in found.indices]
    assert len(found.scores) == N
    assert int((found.scores > found.cut).sum()) == 52


def test_the_result_becomes_json_and_cannot_be_changed(found: Screening) -> None:
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["samples"] == N
    assert plain["indices"] == found.indices
    assert plain["broken"][0]["score"] is None
    with pytest.raises(AttributeError):
        found.cut = 3.0  # type: ignore[misc]
    assert copy.deepcopy(found).indices == found.indices


def test_the_picture_counts_every_sample(found: Screening) -> None:
    pytest.importorskip("matplotlib")
    (axes,) = found.plot().axes
    assert sum(bar.get_height() for bar in axes.patches) == N
    assert sum(bar.get_height() for bar in axes.patches if bar.get_x() >= found.cut) == 52
