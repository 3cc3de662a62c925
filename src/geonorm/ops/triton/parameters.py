"""The parameters of a normalization, as the kernels read them."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from ..grouping import Axes, Grouping
from ..learned import LearnedPhi
from ..problem import Inputs, Rule, per_group
from .layout import Layout


class Parameters(NamedTuple):
    """Tensors, or numbers where there are none; entry g modulo their count belongs to group g.

    Attributes:
        q: φ − 1.
        alpha, shift: α and b.
        gamma, beta: see ``Layout``.
        counts: entries of q, α and b.
    """

    q: float | Tensor
    alpha: float | Tensor
    shift: Tensor | None
    gamma: Tensor | None
    beta: Tensor | None
    counts: tuple[int, int, int]

    def center(self) -> dict[str, Any]:
        """The exponent, for a kernel."""
        return {**_tensor_or_number("phi", "q_number", self.q), "phi_count": self.counts[0]}

    def removed(self) -> dict[str, Any]:
        """What is subtracted, for a kernel."""
        alpha = _tensor_or_number("alpha", "alpha_number", self.alpha)
        return {**alpha, "alpha_count": self.counts[1], "shift": self.shift, "shift_count": self.counts[2]}

    def affine(self) -> dict[str, Any]:
        """γ and β, for a kernel."""
        return {"gamma": self.gamma, "beta": self.beta}


def _tensor_or_number(tensor: str, number: str, value: float | Tensor) -> dict[str, Any]:
    if isinstance(value, Tensor):
        return {tensor: value, number: 0.0}
    return {tensor: None, number: float(value)}


def parameters_of(of: Inputs, groups: Grouping, rule: Rule, at: Layout, backward: bool = False) -> Parameters:
    """The parameters, expanded where that is needed. β is not read in ``backward``."""
    q: float | Tensor = of.phi - 1.0
    if isinstance(of.phi, Tensor):
        assert rule.learned is not None
        phi = LearnedPhi(of.phi.detach(), *rule.learned).value()
        if isinstance(groups, Axes):
            phi = per_group(phi, of.x.shape, groups.dims, "phi")
        q = _row(phi.float() - 1, at.count_shapes[0])
    alpha: float | Tensor = of.alpha if rule.centered else 0.0
    if isinstance(alpha, Tensor):
        alpha = _row(alpha, at.count_shapes[1])
    shift = None if of.shift is None else _row(of.shift, at.count_shapes[2])
    gamma = None if of.gamma is None else _row(of.gamma, at.parameter_shape)
    beta = None if of.beta is None or backward else _row(of.beta, at.parameter_shape)
    return Parameters(q, alpha, shift, gamma, beta, at.counts)


def _row(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The value expanded to a shape, in one piece of memory."""
    return value.detach().resolve_neg().expand(shape).contiguous()


def summed_to(part: Tensor, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """The gradient of a parameter from those of all groups, or of all entries: the inverse of its expansion.

    ``shape``: what the parameter was expanded to; entry g modulo its size belongs to group g.
    """
    count = 1
    for size in shape:
        count *= size
    whole = part if part.numel() == count else part.reshape(-1, count).sum(0)
    return whole.reshape(shape).sum_to_size(like.shape).to(like.dtype)
