"""The page of ``screen``: self-contained, with pictures where samples are images; and it works in a browser."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from geonorm.robust import Screening, screen
from geonorm.robust.thumbnails import png, thumbnails
from helpers import chromium


def images(number: int = 200, side: int = 16, channels: int = 3) -> Tensor:
    coarse = torch.rand(number, channels, 4, 4, generator=torch.Generator().manual_seed(0))
    return nn.functional.interpolate(coarse, size=(side, side), mode="bilinear")


def broken_images() -> list[Tensor]:
    x = images()
    x[3] *= 255
    x[4, 0, 2, 5] = torch.nan
    x[5] = 0.0
    return list(x.split(50))


@pytest.fixture(scope="module")
def found() -> Screening:
    return screen(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), broken_images())


def decoded(address: str) -> Tensor:
    """The pixels of a picture, (height, width, 3), as another library reads them."""
    pillow = pytest.importorskip("PIL.Image")
    head, _, data = address.partition(",")
    assert head == "data:image/png;base64"
    with pillow.open(io.BytesIO(base64.b64decode(data))) as picture:
        return torch.tensor(list(picture.convert("RGB").tobytes()), dtype=torch.uint8).view(*picture.size[::-1], 3)


def test_the_page_needs_nothing_else(found: Screening, tmp_path: Path) -> None:
    text = found.to_html(tmp_path / "deep" / "page.html", broken_images()).read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)=[\"'](?!#|data:image/png)|url\(|@import|https?://", text)
    assert "default-src 'none'" in text
    assert "3 of 200 samples look broken" in text
    assert "Usual, for comparison" in text
    assert text.count("<img") == 3 + 1 + 12 + 12  # the large one twice; the next ones; usual ones
    assert text.count("<table") == 1


def test_without_batches_or_images_there_are_no_pictures(found: Screening, tmp_path: Path) -> None:
    text = found.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<img" not in text
    assert "<table" in text
    x = torch.randn(100, 5)
    x[3] = torch.inf
    rows = screen(nn.Identity(), x)
    assert "<img" not in rows.to_html(tmp_path / "rows.html", x).read_text(encoding="utf-8")


def test_a_page_that_has_nothing_to_tell(tmp_path: Path) -> None:
    x = images()
    text = screen(nn.Identity(), x).to_html(tmp_path / "page.html", x).read_text(encoding="utf-8")
    assert "Nothing broken among 200 samples." in text
    assert "<table" not in text
    for few in (torch.full((1, 1, 8, 8), torch.nan), torch.zeros(2, 1, 4, 4)):
        screen(nn.Identity(), few).to_html(tmp_path / "few.html", few)


def test_names_are_escaped(tmp_path: Path) -> None:
    model = nn.Sequential()
    model.add_module("<script>alert('x')</script>&\"", nn.BatchNorm2d(3))
    x = torch.cat(broken_images())
    text = screen(model, x).to_html(tmp_path / "page.html", x).read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


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


@pytest.mark.skipif(chromium.PROGRAM is None, reason="no Chromium here; apt-get install chromium")
def test_the_page_works_in_a_browser(found: Screening, tmp_path: Path) -> None:
    path = found.to_html(tmp_path / "page.html", broken_images())
    column = "[...document.querySelector('tbody').rows].map((row) => row.cells[0].textContent).join()"
    press = "document.querySelectorAll('th button')[0].click(); "
    with chromium.browser(tmp_path / "profile") as page:
        for width in (1280, 375):
            page.open(path, width)
            assert page.run("document.documentElement.scrollWidth <= innerWidth")
        assert page.run("[...document.images].every((image) => image.complete && image.naturalWidth === 16)")
        assert page.run(press + column) == "3,4,5"
        assert page.run(press + column) == "5,4,3"
        asked = {address.partition("#")[0] for address in page.requests if not address.startswith("data:")}
        assert asked == {path.as_uri()}
        assert page.complaints == []
