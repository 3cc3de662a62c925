"""What a backend is: a folder of functions that run normalizations on one type of device."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from .grouping import Grouping
from .problem import Inputs, Result, Rule, Saved
from .running import Running
from .torch.center import Center
from .torch.guard import GuardedMoments


class Backend(Protocol):
    """The functions of a backend's folder. One that returns None refuses the case, which then runs on torch."""

    def why_not(self) -> str | None:
        """Why the kernels are not available here; None if they are."""

    def wrote(self, saved: Saved) -> bool:
        """Whether this backend wrote the state, so that its backward continues from it."""

    def normalize(
        self, of: Inputs, groups: Grouping, rule: Rule, running: Running | None, counts: Tensor | None
    ) -> Result | None:
        """Output, and the state for backward; updates running statistics and counts."""

    def normalize_backward(
        self, grad: Tensor, of: Inputs, groups: Grouping, rule: Rule, saved: Saved, needs: tuple[bool, ...]
    ) -> tuple[Tensor | None, ...] | None:
        """Gradients of the inputs, in their order."""

    def center(
        self, x: Tensor, phi: float | Tensor, weight: Tensor | None, groups: Grouping, sweeps: int | None
    ) -> Center | None:
        """The center of every group."""

    def spread(self, z: Tensor, weight: Tensor | None, groups: Grouping, rule: Rule) -> Tensor | None:
        """The spread of the deviations z of every group."""

    def guarded_moments(self, mean: Tensor, deviation: Tensor, k: float) -> GuardedMoments | None:
        """The moments of a batch after far samples were pulled in."""
