"""The local part of a joint normalization by the compiled kernels. Torch takes what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..cpu import library
from ..cpu.library import Task
from ..cpu.normalize import dense, laid_out, parameters_of
from ..cpu.plan import Plan, plan
from ..grouping import Axes
from ..problem import Inputs, Rule
from ..torch.search import Sums
from . import moments
from .moments import Moments
from .source import Points, Source

PER_GROUP = 0


class Kernels:
    """The values of this process as the kernels read them, with the table of saved rows.

    ``table`` may be filled in later; its columns are read when they are needed.
    """

    def __init__(self, of: Inputs, found: Plan, table: Tensor) -> None:
        self.of, self.plan, self.table = of, found, table
        self.x = dense(of.x, of.x, found.strides)
        self.parameters = parameters_of(of, found)
        self.groups = found.arrangement.groups
        self.refused = False

    def run(self, task: Task, points: Tensor | None, width: int, sizes: bool = False) -> Tensor | None:
        """The results of a task, ``[groups, width]``; None if the kernels refuse."""
        found = torch.empty(self.groups, width, dtype=torch.float64, device="cpu")
        arguments = (self.plan.encoded_spec, task, self.x, self.parameters, self.table, points, found)
        self.refused = self.refused or not library.part(*arguments, sizes=sizes)
        return None if self.refused else found

    def write(self) -> Tensor:
        """The output, from the saved rows."""
        y = torch.empty_strided(self.x.shape, self.plan.strides, dtype=self.x.dtype, device="cpu")
        library.part(self.plan.encoded_spec, Task.WRITE, self.x, self.parameters, self.table, y=y)
        return laid_out(y, self.of.x)


def kernels_for(of: Inputs, groups: Axes, rule: Rule, table: Tensor) -> Kernels | None:
    """None if the kernels do not support the case."""
    if not of.x.numel() or rule.sweeps is not None:
        return None
    found = plan(of, groups.here, rule._replace(learned=None, guard=None))
    if found is None or found.arrangement.parameters != PER_GROUP or found.arrangement.segments > 1:
        return None
    return Kernels(of, found, table)


class KernelSource:
    """A source on the kernels. Its fallback, a ``TorchSource``, is made only if it is needed."""

    def __init__(
        self, kernels: Kernels, make_fallback: Callable[[], Source], members: int, sizes: bool = False
    ) -> None:
        self.kernels, self.members, self.sizes = kernels, members, sizes
        self._make_fallback = make_fallback
        self._fallback: Source | None = None
        self._sweeps = 0

    @property
    def fallback(self) -> Source:
        if self._fallback is None:
            self._fallback = self._make_fallback()
        return self._fallback

    def measure(self, phi: float | Tensor | None) -> Tensor:
        points = torch.zeros(self.kernels.groups, library.POINTS, dtype=torch.float64, device="cpu")
        points[:, 2] = 2.0 if phi is None else phi.reshape(-1) if isinstance(phi, Tensor) else phi
        found = self.kernels.run(Task.MEASURE, points, library.MEASURES, self.sizes)
        if found is None:
            return self.fallback.measure(phi)
        out = moments.empty_part(self.kernels.groups, found.device)
        out[:, : moments.MASS], out[:, moments.START] = found[:, :4], found[:, 4]
        out[:, moments.MASS], out[:, [moments.HEAVIEST, moments.LIGHTEST]] = float(self.members), 1.0
        return out

    def rows(self, seen: Moments) -> tuple[Tensor, Tensor | None]:
        return self.fallback.rows(seen)

    def sums(self, at: Points, q: float | Tensor, near: bool, seen: Moments) -> Sums:
        self._sweeps += 1
        if at.rescale is not None or not self._can_sweep(q, seen):
            return self.fallback.sums(at, q, near, seen)
        scale = at.up + at.down
        phi = q + 1 if isinstance(q, Tensor) else torch.full_like(at.y, q + 1)
        nearest = torch.full_like(at.y, float(self._sweeps >= 5))
        points = torch.cat([torch.where(at.active, at.y, torch.nan), scale, phi, nearest], 1)
        found = self.kernels.run(Task.SWEEP, points, library.SWEPT, self.sizes)
        if found is None:
            return self.fallback.sums(at, q, near, seen)
        above, below, above_slope, below_slope, *rest = found[:, :, None].unbind(1)
        # Convert from units of the range to units of each side.
        up, down = (torch.where(reach > 0, scale / reach, 1.0) for reach in (at.up, at.down))
        grow_up, grow_down = up.pow(q), down.pow(q)
        return Sums(
            above * grow_up, below * grow_down, above_slope * grow_up / up, below_slope * grow_down / down, *rest
        )

    def _can_sweep(self, q: float | Tensor, seen: Moments) -> bool:
        """Whether the kernels support the exponents and the magnitudes of all values in all processes."""
        inside = (q >= 0.01) & (q <= 3) if isinstance(q, Tensor) else torch.tensor(0.01 <= q <= 3)
        limit = 2.0**50 if self.kernels.plan.dtype == torch.float32 else 1e120
        largest = torch.maximum(seen.highest, -seen.lowest)
        moderate = (largest < limit) & (largest > 1e-3 / limit)
        idle = ~(seen.highest - seen.lowest).isfinite() | (seen.highest == seen.lowest)
        return bool(((moderate & inside) | idle).all())
