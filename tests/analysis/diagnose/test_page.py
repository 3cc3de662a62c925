"""The page: self-contained, with names escaped; in Chromium it opens without errors, sorts, and follows links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from geonorm.analysis import Diagnosis, diagnose
from geonorm.lab.models import CifarResNet
from helpers import chromium
from helpers.hostile_names import HTML, harmless, same_skeleton


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    torch.manual_seed(0)
    model = CifarResNet(1, "bn", width=4)
    with torch.no_grad():
        model.norm.weight[1] = 1e-6
        model.blocks[0].norm1.bias.fill_(-20)
    return diagnose(model, torch.randn(32, 3, 16, 16))


def test_the_page_needs_nothing_else(diagnosis: Diagnosis, tmp_path: Path) -> None:
    text = diagnosis.to_html(tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)=[\"'](?!#)|url\(|@import|https?://", text)
    assert "default-src 'none'" in text
    for finding in diagnosis.findings:
        assert finding.kind in text
    assert text.count("<svg") >= 4 * len(diagnosis.layers)  # γ, β, σ, ‖W′‖ of each norm
    assert text.count("<table") == 4


def test_names_are_escaped(tmp_path: Path) -> None:
    model = nn.Sequential()
    model.add_module("<script>alert('x')</script>&\"", nn.BatchNorm1d(4, momentum=0.0))
    text = diagnose(model, torch.randn(32, 4)).to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;" in text


@pytest.mark.parametrize("name", HTML)
def test_no_name_adds_an_element(tmp_path: Path, name: str) -> None:
    pages = []
    for one in (name, harmless(name)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4))
        model.add_module(one.replace(".", ""), nn.BatchNorm1d(4, momentum=0.0))
        found = diagnose(model, torch.randn(32, 4))
        pages.append(found.to_html(tmp_path / "page.html").read_text(encoding="utf-8") + found._repr_html_())
    same_skeleton(*pages)


def test_pages_of_healthy_and_of_empty_models(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.LayerNorm(4))
    assert "Healthy" in diagnose(model, torch.randn(32, 4)).to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    empty = diagnose(nn.Linear(4, 2), torch.randn(32, 4)).to_html(tmp_path / "b.html").read_text(encoding="utf-8")
    assert "no norms" in empty


@pytest.mark.skipif(chromium.PROGRAM is None, reason="no Chromium here; apt-get install chromium")
def test_the_page_works_in_a_browser(diagnosis: Diagnosis, tmp_path: Path) -> None:
    path = diagnosis.to_html(tmp_path / "page.html")
    column = "[...document.querySelector('tbody').rows].map((row) => row.cells[2].textContent).join()"
    press = "document.querySelectorAll('th button')[2].click(); "
    with chromium.browser(tmp_path / "profile") as page:
        page.open(path)
        assert page.run("document.querySelectorAll('th')[2].textContent") == "channels"
        assert page.run(column) == "4,4,4,8,8,16,16"
        assert page.run(press + column) == "4,4,4,8,8,16,16"
        assert page.run(press + column) == "16,16,8,8,4,4,4"
        page.run("location.hash = '#layer-1'; new Promise((done) => setTimeout(done, 50))")
        assert page.run("document.getElementById('layer-1').open")
        for width in (1280, 375):
            page.open(path, width)
            assert page.run("document.documentElement.scrollWidth <= innerWidth")
        assert {address.partition("#")[0] for address in page.requests} == {path.as_uri()}
        assert page.complaints == []
