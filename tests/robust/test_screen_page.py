"""The page of ``screen``: self-contained, with pictures where samples are images; and it works in a browser."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from geonorm.robust import Screening, screen
from helpers import chromium
from helpers.hostile_names import HTML, harmless, same_skeleton


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


@pytest.mark.parametrize("name", HTML)
def test_no_name_adds_an_element(tmp_path: Path, found: Screening, name: str) -> None:
    pages = []
    for one in (name, harmless(name)):
        broken = [dataclasses.replace(sample, layer=one, evidence=one) for sample in found.broken]
        named = dataclasses.replace(found, model=one, layers=[one], broken=broken, notes=[one], skipped={one: one})
        path = named.to_html(tmp_path / "page.html", broken_images())
        pages.append(path.read_text(encoding="utf-8"))
    same_skeleton(*pages)


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
