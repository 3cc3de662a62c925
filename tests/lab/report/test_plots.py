"""The pictures: there when there is something to show, the same bytes again, and no colour twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from geonorm.html.palette import COLOURS, DASHES, looks
from geonorm.lab import report
from geonorm.lab.report.contents import costs, gather
from geonorm.lab.report.plots import draw
from geonorm.lab.report.series import exponents, learning
from helpers.fake_comparison import fake_comparison

NORMS = ["bn", "ln", "diffphi"]


def accuracy(norm: str, corruption: str, seed: int) -> float:
    return 0.9 + 0.01 * NORMS.index(norm) + 0.001 * seed


def test_pictures_are_the_same_bytes_again(tmp_path: Path) -> None:
    found = fake_comparison(tmp_path / "r.sqlite", NORMS, accuracy, seeds=2)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        draw(gather(found), tmp_path / name)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(f"{name}.{end}" for name in ("cost", "curves", "phi", "runs") for end in ("png", "svg"))
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes(), name


def test_no_picture_of_what_is_not_there(tmp_path: Path) -> None:
    learned = fake_comparison(tmp_path / "a.sqlite", NORMS, accuracy, seeds=1)
    assert (report.write(learned, tmp_path / "report").parent / "phi.svg").exists()
    plain = fake_comparison(tmp_path / "b.sqlite", NORMS[:2], accuracy, seeds=2, unfinished=4)
    folder = report.write(plain, tmp_path / "report").parent
    assert sorted(path.name for path in folder.glob("*.svg")) == ["runs.svg"]


def test_series(tmp_path: Path) -> None:
    found = gather(fake_comparison(tmp_path / "r.sqlite", NORMS, accuracy, seeds=2, epochs=3, unfinished=1))
    views = learning(found)
    assert [view.title for view in views] == ["clean: test accuracy (%)", "clean: training loss"]
    first = views[0].lines[0]
    assert first.mean == pytest.approx([100 * 0.9005 * (1 - 0.3 / epoch) for epoch in (1, 2, 3)])
    assert first.deviation == pytest.approx([100 * 0.001 / 2**0.5 * (1 - 0.3 / epoch) for epoch in (1, 2, 3)])
    assert views[0].lines[2].deviation == [0.0, 0.0, 0.0]  # one run only
    (phi,) = exponents(found)
    assert [line.name for line in phi.lines] == ["layers.1", "layers.4"]
    assert phi.lines[0].mean == pytest.approx([1.6, 1.7, 1.8])


def test_costs_are_of_pairs(tmp_path: Path) -> None:
    """An epoch of the made-up runs takes 0.1 s, times one and the rest of the name's length by three."""
    found = costs(gather(fake_comparison(tmp_path / "r.sqlite", NORMS, accuracy, seeds=2)))
    assert {norm: cost.median for norm, cost in found.items()} == pytest.approx({"bn": 1, "ln": 1, "diffphi": 2 / 3})


def test_looks_differ() -> None:
    names = [f"norm{i}" for i in range(len(COLOURS) * len(DASHES) + 1)]
    found = looks(names, "norm3")
    assert len(set(found.values())) == len(names)
    assert found["norm3"].colour is None
