"""Every kind of fault, three times; ``make test-faults`` injects more, and writes the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.__main__ import PAGE, stored, table

ROOT = Path(__file__).parents[2]
KINDS = [f"{one.fault}, {one.command}" for one in stored()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_faults_are_survived(kind: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.faults", kind], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    if "skipped" in ended.stderr and not ended.stdout:
        pytest.skip(ended.stderr)
    assert ended.returncode == 0, ended.stderr
    assert ": 3 injected, 3 survived," in ended.stderr
    assert ", 0 lost " in ended.stderr


def test_the_table_is_what_was_counted() -> None:
    counts = stored()
    assert table(counts) in PAGE.read_text(encoding="utf-8")
    assert all(one.survived == one.injected and not one.lost for one in counts)
