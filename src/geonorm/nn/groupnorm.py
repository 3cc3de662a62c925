"""AugNorm over groups of channels of each sample: replaces torch's GroupNorm."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..ops import Axes
from ._base import (
    AugOptions,
    NormLayer,
    Parameterlike,
    along_channels,
    check_no_running_statistics,
    mask_or_weight,
    pass_through,
)


class ChannelGroups(NormLayer):
    """Layers that split the channels of each sample into groups."""

    axes = "group"
    sizes = ("num_groups", "num_channels")

    num_groups: int
    num_channels: int

    def _set_groups(self, num_groups: int, num_channels: int) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels = num_groups, num_channels

    def _check(self, input: Tensor) -> None:
        """Torch's errors for the input, with how to fix it."""
        if input.dim() < 2:
            raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
        if input.shape[1] != self.num_channels:
            raise RuntimeError(
                f"Expected {self.num_channels} channels in dimension 1, but got input of shape {list(input.shape)}; "
                f"construct {type(self).__name__}({self.num_groups}, {input.shape[1]})"
            )
        if input.numel() == self.num_groups and self.single_element == "error":
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {list(input.shape)}; "
                "use fewer groups, or single_element='identity'"
            )

    def _is_single(self, input: Tensor) -> bool:
        return input.numel() == input.shape[0] * self.num_groups and self.single_element == "identity"

    def _split(self, values: Tensor, like: Tensor) -> Tensor:
        """(N, C, *) as (N, groups, channels of a group, *); values that broadcast to the input are expanded."""
        split: Tensor = values.expand(like.shape).unflatten(1, (self.num_groups, -1))
        return split

    def _per_channel(self, parameter: Parameterlike, input: Tensor) -> Parameterlike:
        """A parameter per channel in the shape that broadcasts to the split input; anything else unchanged."""
        if not isinstance(parameter, Tensor):
            return parameter
        return parameter.reshape(1, self.num_groups, -1, *[1] * (input.dim() - 2))


class AugGroupNorm(ChannelGroups):
    """Group normalization around the L^φ center, a replacement for ``torch.nn.GroupNorm``.

        z = x − α·c(x)        y = γ · z / √(s(z)² + eps) + β

    Over ``num_groups`` groups of neighbouring channels of each sample; c is ``geonorm.functional.center``, s is
    ``geonorm.functional.spread``. At φ=2 it equals GroupNorm.

    Args:
        num_groups: number of groups; divides ``num_channels``.
        num_channels: number of channels C.
        eps: added to the squared spread.
        affine: learn γ and β per channel.
        device, dtype: of the parameters.
        bias: with ``affine``, learn β too.
        phi: exponent of the center, from 1 (median) through 2 (mean) to ``math.inf`` (midrange).
        learn_phi: learn φ inside ``phi_range``, one per group, from ``phi``.
        phi_range: the open range of a learned φ.
        alpha: how much of the center is removed.
        learn_alpha: learn one α per channel, from ``alpha``.
        spread: ``"rms"``, ``"mean_abs"``, ``"max_abs"``, ``"robust"``, or an exponent in [1, ∞].
        spread_phi: exponent of the robust spread.
        spread_floor: floor of the robust spread, as a fraction of the mean deviation; 0 for none.
        grad_floor: in backward, clamp distances to the center at this fraction of the spread; stabilizes training for
            φ < 1.5. 0 for the exact gradient.
        sweeps: a fixed number of sweeps of the solver, for compiled graphs; ``None`` for the adaptive stop.
        single_element: what to do with one value per group: ``"error"`` (as torch) or
            ``"identity"`` (the affine part only).

    Shape:
        - Input and output: ``(N, C, *)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.AugGroupNorm(2, 6)
        >>> layer(torch.randn(3, 6, 4, 4)).shape
        torch.Size([3, 6, 4, 4])
    """

    twin = nn.GroupNorm

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        phi: float = 1.5,
        learn_phi: bool = False,
        phi_range: tuple[float, float] = (1.2, 3.0),
        alpha: float = 1.0,
        learn_alpha: bool = False,
        spread: Literal["rms", "mean_abs", "max_abs", "robust"] | float = "rms",
        spread_phi: float = 1.5,
        spread_floor: float = 0.05,
        grad_floor: float = 0.0,
        sweeps: int | None = None,
        single_element: Literal["error", "identity"] = "error",
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self._set_groups(num_groups, num_channels)
        self.eps, self.affine = eps, affine
        options = AugOptions(
            phi=phi,
            learn_phi=learn_phi,
            phi_range=phi_range,
            alpha=alpha,
            learn_alpha=learn_alpha,
            spread=spread,
            spread_phi=spread_phi,
            spread_floor=spread_floor,
            grad_floor=grad_floor,
            sweeps=sweeps,
            single_element=single_element,
        )
        self._set_options(options, (num_groups,), (num_channels,), factory)
        check_no_running_statistics(self)
        self._affine_parameters((num_channels,), affine, affine and bias, factory)
        self.reset_parameters()

    def forward(self, input: Tensor, *, mask: Tensor | None = None, element_weight: Tensor | None = None) -> Tensor:
        """Normalize ``input``; ``mask`` or ``element_weight`` (broadcast to it) say how much each element counts."""
        if mask is None and element_weight is None and (output := self._repeat(input)) is not None:
            return output
        self._check(input)
        if not input.numel() or self._is_single(input):
            return pass_through(input, along_channels(self.weight, input), along_channels(self.bias, input))
        element_weight = mask_or_weight(mask, element_weight)
        return self._normalize(
            self._split(input, input),
            Axes(tuple(range(2, input.dim() + 1))),
            self._per_channel(self._alpha(), input),
            self._per_channel(self.weight, input),
            self._per_channel(self.bias, input),
            None if element_weight is None else self._split(element_weight, input),
            whole=input,
        )

    def extra_repr(self) -> str:
        """Torch's arguments, then ours."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, {self._describe()}"
