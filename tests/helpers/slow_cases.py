"""Marks the cases of a test that only the full run takes."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_except(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """All values as parameters; those not in ``quick`` are marked slow and left to `make test-full`."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
