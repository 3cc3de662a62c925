"""What the tests of commands share: a folder, a model and data in a file, reports that cost nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

OWN = """
import torch
from torch import nn
from torch.utils.data import TensorDataset


def make_model():
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def plain_model():
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


def make_data():
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    samples = TensorDataset(x, (x[:, 0] > 0).long())
    return samples, samples
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: empty but for a model and data in ``own.py``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


@pytest.fixture
def quick_reports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, str | None]]:
    """The pages and pictures are not drawn; gives the folders and baselines they were asked for with."""
    asked: list[tuple[Path, str | None]] = []

    def write(comparison: Any, folder: Path, baseline: str | None = None) -> Path:
        asked.append((folder, baseline))
        return folder / "report.html"

    monkeypatch.setattr("geonorm.lab.report.write", write)
    return asked


@pytest.fixture
def tiny() -> list[str]:
    """One short training of each of two norms: what a command needs to have something to tell."""
    return ["--norms", "bn", "ln", "--corruptions", "clean", "--seeds", "1", "--epochs", "1", "--workers", "1"]
