"""Two builds compared: a slower row is found, equal ones are called equal, folders without a build are refused."""

import random
import shutil
from pathlib import Path

import pytest

from benchmarks.compare_builds import LIBRARY, ROOT, fault, judge, main, table

DELAY = """
import time
_forward = AugLayerNorm.forward
def _slow(self, *arguments, **named):
    time.sleep(0.1)
    return _forward(self, *arguments, **named)
AugLayerNorm.forward = _slow
"""
needs_kernels = pytest.mark.skipif(not (ROOT / LIBRARY).exists(), reason="the kernels were not built")


def with_delay(folder: Path) -> Path:
    """A copy of this checkout whose LayerNorm takes 0.1 s more."""
    shutil.copytree(ROOT / "src" / "geonorm", folder / "src" / "geonorm", ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "src" / "geonorm" / "nn" / "__init__.py").open("a") as file:
        file.write(DELAY)
    return folder


@needs_kernels
@pytest.mark.slow
def test_the_slower_row_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slower = with_delay(tmp_path / "slower")
    options = ["--rows", "LayerNorm", "--short", "--passes", "3", "--threads", "1"]
    assert main([str(ROOT), str(slower), *options]) == 1
    assert capsys.readouterr().out.splitlines()[1].startswith("slower ")
    assert main([str(slower), str(ROOT), *options]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("faster ")


@needs_kernels
@pytest.mark.slow
def test_the_same_build_does_not_differ_from_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both with the delay, beside which the noise of the machine is small."""
    slower = with_delay(tmp_path / "slower")
    options = ["--rows", "LayerNorm", "--short", "--passes", "3", "--threads", "1"]
    assert main([str(slower), str(slower), *options]) == 0
    assert "no difference beyond noise in 1 of 1 rows" in capsys.readouterr().out


def ratios(true: float, noise: float, passes: int, draw: random.Random) -> list[float]:
    return [true * draw.lognormvariate(0, noise) for _ in range(passes)]


def test_equal_builds_seldom_differ_and_slower_ones_do() -> None:
    """500 comparisons of 40 rows with 3 % noise: at most one in a hundred has a false alarm; 20 % more is found."""
    draw, rows = random.Random(0), 40
    alarms = sum(any(judge("row", ratios(1.0, 0.03, 8, draw), rows).differs for _ in range(rows)) for _ in range(500))
    assert alarms <= 5
    assert sum(judge("row", ratios(1.2, 0.03, 8, draw), rows).differs for _ in range(100)) > 90
    assert sum(judge("row", ratios(0.8, 0.03, 8, draw), rows).differs for _ in range(100)) > 90


def test_the_table_names_what_differs_and_the_noise_of_the_rest() -> None:
    draw = random.Random(0)
    verdicts = [judge(f"row {true}", ratios(true, 0.001, 8, draw), 4) for true in (1.0, 0.7, 1.3, 2.0)]
    lines = table(verdicts).splitlines()[1:]
    assert [line.split()[0] for line in lines[:3]] == ["slower", "slower", "faster"]
    assert [line.split()[-1] for line in lines[:3]] == ["2.0", "1.3", "0.7"]
    assert "1 of 4 rows" in lines[3]


def test_what_is_no_build_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected a checkout of geonorm" in str(fault(tmp_path))
    package = tmp_path / "src" / "geonorm"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    assert "build.py" in str(fault(tmp_path))
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path), str(tmp_path)])
    assert f"{LIBRARY}" in capsys.readouterr().err
    library = tmp_path / LIBRARY
    library.parent.mkdir(parents=True)
    library.touch()
    assert fault(tmp_path) is None
    for options, complaint in ((["--passes", "2"], "3 or more"), (["--rows", "nothing"], "no row contains 'nothing'")):
        with pytest.raises(SystemExit, match="2"):
            main([str(tmp_path), str(tmp_path), *options])
        assert complaint in capsys.readouterr().err
