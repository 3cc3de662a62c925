"""Settings of all tests."""

import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:
    # As many workers as cores: threads of their own, and of what they start, would only wait for each other.
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell makes its background jobs deaf to Ctrl-C, and all that they start; tests send it to commands.
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("quick", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("full", deadline=None, max_examples=150, derandomize=True)
settings.load_profile("quick")  # `make test-full` asks for the other


@pytest.fixture(autouse=True)
def _same_random_numbers_in_any_order() -> None:
    """A test draws the same numbers whether it runs alone, after others, or on another worker."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def _what_a_file_leaves_is_not_searched_again() -> Iterator[None]:
    """Compiled graphs leave millions of objects, and every later collection of garbage would go through all of them."""
    yield
    if "torch._dynamo" in sys.modules:
        from torch._subclasses.fake_tensor import FakeTensorMode

        torch._dynamo.reset()
        FakeTensorMode.cache_clear()
    gc.collect()
    gc.freeze()
