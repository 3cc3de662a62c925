"""Groups of values whose members are spread over processes.

Every sum and extreme is that of all processes, so that the mathematics written for one process holds for many. What
travels is one number per group and statistic, in float64; never the values. A process without values takes part.

No process decides alone: how many collectives there are depends on shapes, options and numbers that all of them have
received, and ``agree`` settles what they could still see differently, a comparison in the last digit on unlike
machines.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..ops import Axes
from .gather import gather_numbers
from .groups import answered, members


def grouping(dims: tuple[int, ...], group: str | None) -> Axes:
    """The groups over the reduced axes, in this process or over those of a process group."""
    if group is None:
        return Axes(dims)
    name, size = members(group)
    return Axes(dims) if size == 1 else Across(dims, name)


class Across(Axes):
    """As ``Axes``, over all processes of the group that torch knows by ``name``.

    ``total``: the number of members of each group, one for all, if it is known already. ``lengths``: how many samples
    each process has, after they have been asked for.
    """

    joint = True

    def __init__(self, dims: tuple[int, ...], name: str, total: Tensor | None = None) -> None:
        super().__init__(dims)
        self.name = name
        self.total = total
        self.lengths: list[int] | None = None

    @property
    def here(self) -> Axes:
        return Axes(self.dims)

    def rows(self) -> Across:
        return Across((1,), self.name, self.total)

    def join(self, *statistics: Tensor) -> tuple[Tensor, ...]:
        total = _reduce(torch.cat([value.double().reshape(-1) for value in statistics]), "sum", self.name)
        parts = total.split([value.numel() for value in statistics])
        return tuple([part.view(value.shape).to(value.dtype) for part, value in zip(parts, statistics, strict=True)])

    def agree(self, mask: Tensor) -> Tensor:
        return _reduce(mask.to(torch.uint8), "max", self.name).bool()

    def extremes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        low, high = self._largest(-self._here_or(values, "min"), self._here_or(values, "max"))
        return -low, high

    def sum(self, values: Tensor) -> Tensor:
        return self.join(super().sum(values))[0]

    def min(self, values: Tensor) -> Tensor:
        return -self._largest(-self._here_or(values, "min"))[0]

    def max(self, values: Tensor) -> Tensor:
        return self._largest(self._here_or(values, "max"))[0]

    def count(self, values: Tensor) -> Tensor:
        """Number of elements in each group over all processes, as float64."""
        shape = [1 if d in self.dims else n for d, n in enumerate(values.shape)]
        if self.total is None:
            size = math.prod([values.shape[d] for d in self.dims])
            # A value travels along, and is not looked at: of constants alone a compiler would merge those of two layers
            # that are of one size here, but perhaps not elsewhere.
            number = torch.full((1,), float(size), dtype=torch.float64, device=values.device)
            self.total = self.join(number, values.detach().reshape(-1)[:1].sum(0, keepdim=True))[0]
        return self.total.expand(shape)

    def ask_lengths(self, values: Tensor) -> None:
        """How many samples each process has, and with that how many members a group has, in one exchange."""
        size = math.prod([values.shape[d] for d in self.dims])
        numbers = gather_numbers(self.name, values.device, len(values), size)
        self.lengths = [rows for rows, _ in numbers]
        total = float(sum(members for _, members in numbers))
        self.total = torch.full((1,), total, dtype=torch.float64, device=values.device)

    def _here_or(self, values: Tensor, end: str) -> Tensor:
        """The extreme of the members here; of none, what any other is beyond."""
        if values.numel():
            return Axes.min(self, values) if end == "min" else Axes.max(self, values)
        nothing = super().sum(values)  # not a constant, for the reason that ``count`` has
        return nothing + (math.inf if end == "min" else -math.inf)

    def _largest(self, *statistics: Tensor) -> list[Tensor]:
        """The largest over all processes. NaN travels apart: a maximum of the transport may lose it."""
        stacked = torch.stack([value.double() for value in statistics])
        broken = stacked.isnan()
        sent = torch.cat([torch.where(broken, -math.inf, stacked), broken.double()])
        largest, flag = _reduce(sent, "max", self.name).chunk(2)
        found = torch.where(flag > 0, math.nan, largest)
        return [part.to(value.dtype) for part, value in zip(found, statistics, strict=True)]


def _reduce(values: Tensor, how: str, name: str) -> Tensor:
    """One collective. Functional ones are what a compiler can keep in its graph."""
    from torch.distributed import _functional_collectives as collectives

    def result() -> Tensor:
        return collectives.wait_tensor(collectives.all_reduce(values, how, name))  # type: ignore[arg-type, no-any-return]

    if torch.compiler.is_compiling():
        return result()
    with answered(name):
        return result()
