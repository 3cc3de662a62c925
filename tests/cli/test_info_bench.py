"""`geonorm info` and `geonorm bench`."""

from pathlib import Path

import pytest
import torch

from geonorm.cli import main
from geonorm.ops import using_backend


def test_info_tells_the_backend_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    with using_backend("torch"):
        assert main(["info"]) == 0
    printed = capsys.readouterr().out
    assert "backend:         torch" in printed
    assert "GEONORM_BACKEND=torch" in printed
    assert torch.__version__ in printed


@pytest.mark.slow
def test_the_short_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--out", str(tmp_path)]) == 0
    assert "ResNet-20 step" in capsys.readouterr().out
    assert (tmp_path / "results.csv").exists()
