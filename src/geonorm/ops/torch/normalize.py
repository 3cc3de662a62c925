"""The torch backend: any device, any case. On the CPU large tensors are processed a few groups at a time.

Groups are independent, so the intermediate results of a block of groups stay in the cache, and no second copy of the
tensor is ever made. Other devices and tracers process the whole tensor at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..checks import can_read_values
from ..grouping import Axes, Grouping
from ..learned import LearnedPhi
from ..problem import Incoming, Inputs, Result, Rule, Saved, per_group
from . import norm, packed, rows
from .norm import ForwardStatistics

_BLOCK = 1 << 20  # elements: with fewer, the solver's overhead per block would dominate
Values = TypeVar("Values", Inputs, ForwardStatistics, Incoming)


def normalize(of: Inputs, groups: Grouping, rule: Rule) -> Result:
    """Output, and the state for backward. A guard is supported only where ``rows.supports`` the case."""
    of = with_phi(of, groups, rule)
    if rows.supports(of, groups, rule):
        assert isinstance(groups, Axes)
        return rows.normalize(of, groups, rule)
    if packed.supports(of, groups, rule):
        assert isinstance(groups, Axes)
        return packed.normalize(of, groups, rule)
    blocks = _blocks(of, groups)
    if not blocks:
        y, found = norm.forward(of, groups, rule)
        return Result(y.clone() if y is of.x else y, Saved(found.to_saved()))
    y, parts = torch.empty_like(of.x), []
    for block in blocks:
        part, found = norm.forward(block.of_all(of), groups, rule)
        block.of(y).copy_(part)
        parts.append(found)
    found = ForwardStatistics(*[torch.cat(column, blocks[0].dim) for column in zip(*parts, strict=True)])
    return Result(y, Saved(found.to_saved()))


def normalize_backward(
    grads: Incoming, of: Inputs, groups: Grouping, rule: Rule, saved: Saved, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs, in their order. ``of.beta`` may be any tensor of β's shape."""
    offset, of = of.phi, with_phi(of, groups, rule)
    if rows.supports(of, groups, rule):
        assert isinstance(groups, Axes)
        return rows.normalize_backward(grads, of, groups, rule, saved, needs)
    if packed.supports(of, groups, rule) and packed.can_read(saved):
        assert isinstance(groups, Axes)
        return packed.normalize_backward(grads, of, groups, rule, saved, needs)
    found = ForwardStatistics.from_saved(saved.groups, of.x, groups)
    blocks = _blocks(of, groups)
    if not blocks:
        gradients = list(norm.backward(grads, of, found, groups, rule, needs))
    else:
        parts = [
            norm.backward(block.of_all(grads), block.of_all(of), block.of_all(found), groups, rule, needs)
            for block in blocks
        ]
        columns = zip(*parts, strict=True)
        gradients = [blocks[0].join(column, value) for column, value in zip(columns, of, strict=True)]
    if gradients[1] is not None and isinstance(offset, Tensor):
        by_phi = gradients[1].reshape(offset.shape)
        gradients[1] = by_phi if rule.learned is None else LearnedPhi(offset, *rule.learned).gradient(by_phi)
    return tuple(gradients)


def with_phi(of: Inputs, groups: Grouping, rule: Rule) -> Inputs:
    """The inputs with φ itself instead of its offset, in a shape that broadcasts to the statistics."""
    if not isinstance(of.phi, Tensor):
        return of
    phi = of.phi if rule.learned is None else LearnedPhi(of.phi, *rule.learned).value()
    return of._replace(phi=per_group(phi, of.x.shape, groups.dims, "phi") if isinstance(groups, Axes) else phi)


class _Block(NamedTuple):
    """A range of whole groups along one kept dimension of x."""

    dim: int
    start: int
    length: int
    rank: int  # of x

    def _cut_dim(self, value: Tensor) -> int | None:
        """The dimension along which blocks cut a value that broadcasts to x; None if all blocks share the value."""
        dim = self.dim - (self.rank - value.dim())
        return dim if dim >= 0 and value.shape[dim] != 1 else None

    def of(self, value: Tensor) -> Tensor:
        """The part of a tensor that belongs to the block."""
        dim = self._cut_dim(value)
        return value if dim is None else value.narrow(dim, self.start, self.length)

    def of_all(self, values: Values) -> Values:
        """``of`` for each tensor in a named tuple; other values unchanged."""
        parts: list[Any] = [self.of(value) if isinstance(value, Tensor) else value for value in values]
        return type(values)(*parts)

    def join(self, grads: tuple[Tensor | None, ...], value: Any) -> Tensor | None:
        """The gradient of a whole value from those of its parts: concatenated, or added where all blocks share it."""
        parts = [grad for grad in grads if grad is not None]
        if not parts:
            return None
        dim = self._cut_dim(value)
        return torch.stack(parts).sum(0) if dim is None else torch.cat(parts, dim)


def _blocks(of: Inputs, groups: Grouping) -> list[_Block]:
    """How to cut a large tensor into blocks; empty if it is small, or if its values cannot be read."""
    x = of.x
    if not isinstance(groups, Axes) or x.numel() <= 2 * _BLOCK:
        return []
    if not can_read_values(*[value for value in of if isinstance(value, Tensor)]):
        return []
    kept = [d for d in range(x.dim()) if d not in groups.dims and x.shape[d] > 1]
    if not kept:
        return []
    dim = kept[0]
    step = max(1, _BLOCK * x.shape[dim] // x.numel())
    return [_Block(dim, start, min(step, x.shape[dim] - start), x.dim()) for start in range(0, x.shape[dim], step)]
