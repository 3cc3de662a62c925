"""A data folder of its own for every test."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, whatever this machine has."""
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("GEONORM_DATA", str(data))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return data
