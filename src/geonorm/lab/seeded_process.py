"""The random and thread state of a process, set for a run and restored afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .extras import require


@contextmanager
def seeded_process(seed: int) -> Iterator[None]:
    """Seed torch's, numpy's and Python's random numbers; restore them and the number of threads afterwards.

    The user's data may be shuffled or split with global random numbers, which must be the same for every norm of a seed
    and for a resumed run.

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
    of_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
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
        if of_gpus is not None:
            torch.cuda.set_rng_state_all(of_gpus)
