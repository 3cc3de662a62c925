"""What a run changes in the process that it runs in, and puts back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .extras import require


@contextmanager
def seeded_process(seed: int) -> Iterator[None]:
    """All random numbers from a seed, torch's, numpy's and Python's; afterwards these and the threads are as before.

    Data of one's own are often shuffled or split by whatever random numbers come: every norm of a seed, and a run that
    is taken up again, must get the same.

    Args:
        seed: from 0 to 2**32 - 1.

    Examples:
        >>> import torch
        >>> from geonorm.lab.seeded_process import seeded_process
        >>> with seeded_process(3):
        ...     first = torch.rand(1)
        >>> with seeded_process(3):
        ...     torch.equal(first, torch.rand(1))
        True
    """
    chance = require("numpy", "numpy").random
    before = random.getstate(), chance.get_state(), torch.get_rng_state(), torch.get_num_threads()
    random.seed(seed)
    chance.seed(seed)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        chance.set_state(before[1])
        torch.set_rng_state(before[2])
        torch.set_num_threads(before[3])
