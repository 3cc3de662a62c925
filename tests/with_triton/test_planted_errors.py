"""Do these tests bite? Errors are planted in the source of the kernels, one at a time, and each must be seen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import geonorm

SOURCE = Path(geonorm.__file__).parent
# A file, what stands there, what is written instead, and the tests that must see it: a file, and its names for -k.
ERRORS = {
    "a slope of the wrong sign": (
        "backward.py", "d += slope_of_center(r, q[None", "d -= slope_of_center(r, q[None",
        "test_oracle.py", "[NC- and 1.5-float32-in and registers",
    ),
    "a certificate of half the size": (
        "search.py", "+ invalid, error + invalid", "+ invalid, 1e-3 * error + invalid",
        "test_hostile.py", "certificate and 1.5-in and parts",
    ),
    "a mask forgotten": (
        "search.py", "r = tl.where(mask, r, 0.0)", "r = r + 0.0",
        "test_oracle.py", "[NC- and 1.5-float32-in and registers",
    ),
    "the parts of a group added once too few": (
        "large.py", "mask=(i < PARTS)[:, None] & (g < G)[None, :], other=0.0), axis=0)",
        "mask=(i < PARTS - 1)[:, None] & (g < G)[None, :], other=0.0), axis=0)",
        "test_oracle.py", "[NCHW- and 1.5-float32-in and parts",
    ),
    "the biased variance in the buffers": (
        "running.py", "* (mass / tl.maximum(mass - 1, 1e-30))", "* 1.0",
        "test_running.py", "buffers and registers and 2-in",
    ),
    "far samples not pulled in backward": (
        "backward.py", "d = tl.where(f == f, d * f, 0.0)", "d = tl.where(f == f, d, 0.0)",
        "test_guard.py", "far-NCHW",
    ),
    "the median of the distances off by one": (
        "guard.py", "wanted = (number - 1) // 2", "wanted = number // 2",
        "test_guard.py", "numbers_of_samples and [4]",
    ),
    "γ of the neighbour": (
        "small.py", "((j // JD) % JM)[:, None]", "((j // JD + 1) % JM)[:, None]",
        "test_oracle.py", "[layer- and 1.5-float32-in and registers",
    ),
    "the rows of the segment before": (
        "segments.py", "first = tl.load(offsets + segment)", "first = tl.load(offsets + segment) - (segment > 2)",
        "test_oracle.py", "[segments- and 1.5-float32-in and registers",
    ),
    "a gradient of rows in the wrong order": (
        "segments.py", "h, _, _ = read(grad, mine, f", "h, _, _ = read(grad, None, f",
        "test_oracle.py", "[unsorted and 1.5-float32-in and registers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_is_seen(name: str, tmp_path: Path) -> None:
    file, right, wrong, tests, test = ERRORS[name]
    copy = tmp_path / "geonorm"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    kernel = copy / "ops" / "triton" / "kernels" / file
    source = kernel.read_text()
    assert right in source, "the kernel was changed: plant another error"
    kernel.write_text(source.replace(right, wrong))
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"tests/with_triton/{tests}", "-k",
         test],
        cwd=root, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 1, f"nothing failed:\n{run.stdout[-2000:]}{run.stderr[-500:]}"
    assert "1 failed" in run.stdout
    assert "AssertionError" in run.stdout
