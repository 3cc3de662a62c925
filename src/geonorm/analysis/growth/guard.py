"""How many samples a guarded norm pulls in along training, and a word when it pulls all the time."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

_FEWEST = 20  # batches before anything is said


def is_guarded(module: nn.Module) -> bool:
    """Whether a norm counts the samples that its guard pulls."""
    return isinstance(getattr(module, "guard_counts", None), Tensor)


class GuardWatch:
    """Reads the counts of one guarded norm: in the step that is recorded, and since the watch began.

    The layer counts on its own device. Counts are copied there at the start of a recorded step and read at its end.
    """

    def __init__(self, name: str, module: Any) -> None:
        self.name, self.module = name, module
        self._first = self._before = self._counts()
        self._seen, self._with_pull, self._has_warned = 0, 0, False

    def forget(self) -> None:
        """What was counted so far belongs to other steps."""
        self._before = self._counts()

    def _counts(self) -> Tensor:
        counts: Tensor = self.module.guard_counts
        return counts.detach().clone()

    def record(self) -> dict[str, Any]:
        """Samples pulled and not finite in this step; the share of batches with a pull since the watch began."""
        now = self._counts()
        both = torch.stack([now - self._first.to(now.device), now - self._before.to(now.device)]).tolist()
        (self._seen, self._with_pull, _, _), (_, _, pulled, broken) = both
        rate = self._with_pull / self._seen if self._seen else None
        return {"pulled": pulled, "not_finite": broken, "pull_rate": rate}

    def warn(self) -> None:
        """Once, if more than half of the batches had a sample pulled: a guard is for the few that are broken."""
        if self._has_warned or self._seen < _FEWEST or 2 * self._with_pull <= self._seen:
            return
        self._has_warned = True
        k = self.module.guard
        warnings.warn(
            f"the guard of norm {self.name} (guard={k:g}) pulled samples in {self._with_pull} of {self._seen} batches, "
            "a sign that its batches are not one population: geonorm.screen(model, batches) names the samples; if they "
            f"are as they should be, use a larger radius, such as guard={2 * k:g}, or mix the batches better",
            stacklevel=3,
        )
