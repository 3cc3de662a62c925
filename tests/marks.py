"""Which cases of a test are quick."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """All values as parameters; those beside ``quick`` are left to `make test-full`."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
