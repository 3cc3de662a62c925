"""Tests of what only newer versions of torch can do."""

from __future__ import annotations

import pytest
import torch


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version: ``2.13.0+cpu`` gives (2, 13)."""
    return tuple(int(part) for part in version.split(".")[:2])


def needs_torch(version: str, what_for: str) -> pytest.MarkDecorator:
    """Skip a test with an older torch; ``what_for`` is what that one cannot do, as a user would say it."""
    return pytest.mark.skipif(
        release(torch.__version__) < release(version), reason=f"needs torch {version}: {what_for}"
    )
