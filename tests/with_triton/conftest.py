"""Tests of the kernels in Triton's interpreter. Only `make test-triton` collects them, in an environment of its own.

The folder is not called ``triton``: tests are on the path, and torch would take it for the package.
"""

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

if os.environ.get("TRITON_INTERPRET") != "1" or find_spec("triton") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """numpy computes here, and warns of NaN and overflow; a device does not."""
    for item in items:
        if "with_triton" in item.nodeid:
            item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))


@pytest.fixture(autouse=True)
def _on_triton() -> Iterator[None]:
    from geonorm.ops import using_backend

    with using_backend("triton"):
        yield
