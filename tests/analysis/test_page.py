"""The page: self-contained, with names escaped; in Chromium it opens without errors, sorts, and follows links."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

from geonorm.analysis import Diagnosis, diagnose
from geonorm.lab.models import CifarResNet

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# Appended to a copy of the page: errors are collected, a table is sorted by pressing a head, and the result is written
# where --dump-dom shows it. The page's own policy allows inline scripts and nothing else.
PROBE = """
<script>
const table = document.querySelector("table");
const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === "channels");
const read = () => [...table.tBodies[0].rows].map((row) => row.cells[column].textContent).join(",");
const press = () => table.tHead.rows[0].cells[column].firstElementChild.click();
const states = [read()];
press(); states.push(read());
press(); states.push(read());
location.hash = "#layer-1";
setTimeout(() => {
  const told = document.createElement("pre");
  told.id = "told";
  const opened = document.getElementById("layer-1").open;
  const wide = document.documentElement.scrollWidth > innerWidth;
  told.textContent = [...states, "opened " + opened, "overflows " + wide, "errors " + errors.length].join("|");
  document.body.append(told);
}, 50);
</script>
"""
COLLECT = "<script>const errors = []; addEventListener('error', (event) => errors.push(event.message));</script>"


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


def test_pages_of_healthy_and_of_empty_models(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.LayerNorm(4))
    assert "Healthy" in diagnose(model, torch.randn(32, 4)).to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    empty = diagnose(nn.Linear(4, 2), torch.randn(32, 4)).to_html(tmp_path / "b.html").read_text(encoding="utf-8")
    assert "no norms" in empty


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; apt-get install chromium")
@pytest.mark.parametrize("width", [1280, 500])  # Chromium has no narrower window without a device to emulate
def test_the_page_works_in_a_browser(diagnosis: Diagnosis, tmp_path: Path, width: int) -> None:
    page = diagnosis.to_html(tmp_path / "page.html")
    text = (
        page.read_text(encoding="utf-8").replace("<body>", "<body>" + COLLECT, 1).replace("</body>", PROBE + "</body>")
    )
    page.write_text(text, encoding="utf-8")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-dev-shm-usage",
    ]
    flags += ["--enable-logging=stderr", "--log-level=0", "--virtual-time-budget=2000", f"--window-size={width},900"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    told = re.search(r'<pre id="told">(.*?)</pre>', done.stdout)
    assert told is not None, done.stderr
    start, up, down, opened, overflows, errors = told.group(1).split("|")
    assert start == "4,4,4,8,8,16,16"
    assert up == "4,4,4,8,8,16,16"
    assert down == "16,16,8,8,4,4,4"
    assert (opened, overflows, errors) == ("opened true", "overflows false", "errors 0")
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
