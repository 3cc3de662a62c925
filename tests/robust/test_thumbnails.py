"""Thumbnails: valid PNG, on one scale, with values marked that are not finite."""

from __future__ import annotations

import base64
import io

import pytest
import torch
from torch import Tensor, nn

from geonorm.robust.thumbnails import png, thumbnails


def images(number: int = 200, side: int = 16, channels: int = 3) -> Tensor:
    coarse = torch.rand(number, channels, 4, 4, generator=torch.Generator().manual_seed(0))
    return nn.functional.interpolate(coarse, size=(side, side), mode="bilinear")


def broken_images() -> list[Tensor]:
    x = images()
    x[3] *= 255
    x[4, 0, 2, 5] = torch.nan
    x[5] = 0.0
    return list(x.split(50))


def decoded(address: str) -> Tensor:
    """The pixels of a picture, (height, width, 3), as another library reads them."""
    pillow = pytest.importorskip("PIL.Image")
    head, _, data = address.partition(",")
    assert head == "data:image/png;base64"
    with pillow.open(io.BytesIO(base64.b64decode(data))) as picture:
        return torch.tensor(list(picture.convert("RGB").tobytes()), dtype=torch.uint8).view(*picture.size[::-1], 3)


def test_a_png_is_what_others_read() -> None:
    pixels = torch.randint(256, (5, 7, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    address = "data:image/png;base64," + base64.b64encode(png(pixels)).decode()
    assert torch.equal(decoded(address), pixels)


def test_pictures_share_a_scale_and_show_what_is_not_finite() -> None:
    pictures = thumbnails(broken_images(), [3, 4, 5, 100], [i for i in range(200) if i not in (3, 4, 5)])
    assert set(pictures) == {3, 4, 5, 100}
    assert pictures[3].own is not None
    assert pictures[100].own is None
    assert (decoded(pictures[5].common) == 0).all()
    assert decoded(pictures[4].common)[2, 5].tolist() == [255, 0, 255]
    plain, large = decoded(pictures[100].common).float(), decoded(pictures[3].common).float()
    assert 60 < plain.mean() < 190
    assert large.mean() > 240


def test_large_images_are_made_small_and_keep_the_mark() -> None:
    x = images(8, 256, 1)
    x[2, 0, 100, 200] = torch.inf
    picture = decoded(thumbnails(x, [2], [0, 1])[2].common)
    assert picture.shape == (96, 96, 3)
    assert (picture == torch.tensor([255, 0, 255])).all(2).any()
