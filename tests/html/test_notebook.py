"""What a notebook shows of results: a short line, or HTML that is well formed, small and escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import geonorm
from geonorm.analysis import Monitor, batch_width, diagnose, invariance, sphere, summary
from geonorm.html import notebook
from geonorm.html.result import Result
from geonorm.lab import Comparison
from helpers.fake_comparison import fake_comparison

BAD = "<script>alert('x')</script>&\""


class Reader(HTMLParser):
    """Checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def read(thing: Any) -> Reader:
    reader = Reader()
    reader.feed(thing._repr_html_())
    reader.close()
    assert not reader.open
    assert "script" not in reader.seen
    return reader


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def batches(broken: int = 0) -> list[torch.Tensor]:
    x = torch.randn(4, 32, 8, generator=torch.Generator().manual_seed(0))
    x[0, :broken] *= 1000
    return list(x)


def grown() -> Result:
    model = net()
    with Monitor(model, torch.optim.SGD(model.parameters(), lr=0.1), every=1) as monitor:
        monitor.step(0.0)
    return monitor.result()


def converted() -> geonorm.Report:
    return geonorm.convert(net(), "aug(phi=1.5)")


def comparison(folder: Path) -> Comparison:
    return fake_comparison(
        folder / "r.sqlite", ["bn", "ln"], lambda norm, _, seed: 0.9 + 0.01 * seed, corruptions=["clean", "gain"]
    )


MAKE = {
    "report": lambda folder: converted(),
    "comparison": comparison,
    "diagnosis": lambda folder: diagnose(net(), batches(), fix=True),
    "screening": lambda folder: geonorm.screen(net(), batches(broken=3)),
    "clean screening": lambda folder: geonorm.screen(net(), batches()),
    "summary": lambda folder: summary(net(), batches()),
    "sphere": lambda folder: sphere(net(), batches()),
    "batch width": lambda folder: batch_width(net(), batches()),
    "invariance": lambda folder: invariance(net(), batches()),
    "growth": lambda folder: grown(),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=list(MAKE))
def test_a_short_line_and_whole_html(make: Any, tmp_path: Path) -> None:
    result = make(tmp_path)
    assert repr(result).startswith(f"<{type(result).__name__}: ")
    assert len(repr(result)) < 120
    assert "\n" not in repr(result)
    reader = read(result)
    assert len(result._repr_html_()) < 40_000
    assert reader.text.strip()


def test_every_result_is_short() -> None:
    """A dataclass writes a repr of its own, with every value in it, unless it is told not to."""
    found = list(Result.__subclasses__())
    assert len(found) >= 13
    assert all(kind.__repr__ is Result.__repr__ for kind in found)


def test_what_is_said() -> None:
    screening = read(geonorm.screen(net(), batches(broken=3)))
    assert "3 of 128 samples look broken: 3 too large." in screening.text
    assert screening.seen.count("tr") == 4


def test_a_comparison_has_its_answer_its_runs_and_its_table(tmp_path: Path) -> None:
    reader = read(comparison(tmp_path))
    assert "How sure: five seeds" in reader.text
    assert reader.seen.count("svg") == 2
    assert reader.seen.count("tr") == 3
    assert repr(comparison(tmp_path)) == "<Comparison: mlp on digits, 4 epochs, 20 runs>"


def test_names_are_escaped() -> None:
    report = geonorm.Report(BAD, notes=[BAD])
    report.changed.append(geonorm.surgery.report.Change(BAD, BAD, BAD, BAD))
    assert "<script" not in report._repr_html_()
    assert "<script" not in notebook.table([BAD], [[BAD]])
    assert "<script" not in notebook.paragraph(BAD)


def test_a_long_table_is_cut() -> None:
    text = notebook.table(["n"], [[str(i)] for i in range(60)])
    assert text.count("<tr>") == 51
    assert "and 10 more" in text
