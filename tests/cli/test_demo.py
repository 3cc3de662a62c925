"""`geonorm demo`: a table, a picture, and plain errors."""

import builtins
from pathlib import Path

import pytest

from geonorm.cli import main


def test_table_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "deep" / "demo.png"
    assert main(["demo", "--out", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert "median" in printed
    assert "midrange" in printed
    assert str(picture) in printed
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_outliers_move_the_mean_and_not_the_median() -> None:
    from geonorm.lab.demo import rows

    moved = {row.phi: abs(row.contaminated - row.clean) for row in rows()}
    assert moved[1.0] < 0.1 < moved[1.5] < moved[2.0] < moved[4.0]


def test_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["demo", "--out", str(tmp_path / "x.png")]) == 1
    captured = capsys.readouterr()
    assert "median" in captured.out
    assert "pip install 'geonorm[plots]'" in captured.err


@pytest.mark.parametrize("place", ["/tmp", "picture.xyz"])
def test_a_file_that_is_no_picture(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--out", place])
    assert "ends with .png or .svg" in capsys.readouterr().err


def test_unwritable_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file" / "x.png")]) == 1
    assert "geonorm:" in capsys.readouterr().err
