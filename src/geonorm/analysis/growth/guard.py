"""The number of samples that a guarded norm pulls in during training, and a warning if it pulls too often."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

_FEWEST = 20  # batches before it warns


def is_guarded(module: nn.Module) -> bool:
    """Whether a norm counts the samples that its guard pulls."""
    return isinstance(getattr(module, "guard_counts", None), Tensor)


class GuardWatch:
    """Reads the counts of one guarded norm: in the recorded step, and since the watch began.

    The layer counts on its own device. Counts are cloned there at the start of a recorded step and read at its end.
    """

    def __init__(self, name: str, module: Any) -> None:
        self.name, self.module = name, module
        self._first = self._before = self._counts()
        self._seen, self._with_pull, self._has_warned = 0, 0, False

    def forget(self) -> None:
        """Start a new step: earlier counts belong to other steps."""
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
        """Once, if samples were pulled in more than half of the batches: a guard is meant for a few broken ones."""
        if self._has_warned or self._seen < _FEWEST or 2 * self._with_pull <= self._seen:
            return
        self._has_warned = True
        k = self.module.guard
        warnings.warn(
            f"the guard of norm {self.name} (guard={k:g}) pulled samples in {self._with_pull} of {self._seen} batches, "
            "a sign that its batches mix different populations: geonorm.screen(model, batches) names the samples; if "
            f"they are correct, use a larger radius, such as guard={2 * k:g}, or shuffle the batches better",
            stacklevel=3,
        )
