"""POP-Norm over groups of channels of each sample."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ..ops import Axes
from ._base import check_no_running_statistics, mask_or_weight
from ._pop import PopLayer, PopOptions
from .groupnorm import ChannelGroups


class PopGroupNorm(PopLayer, ChannelGroups):
    """POP-Norm over groups of channels of each sample, to be placed before an operation.

        z = x − c(x) + β        y = (γ/κ) · z / √(s(z)² + eps)

    Args:
        num_groups: number of groups; divides ``num_channels``.
        num_channels: number of channels C.
        eps: added to the squared spread.
        affine: learn γ and β per channel.
        device, dtype: of the parameters.
        bias: with ``affine``, learn the shift β too.
        kappa: the divisor κ.
        spread: ``"rms"``, ``"mean_abs"`` or ``"max_abs"`` (l2, l1, l∞), ``"robust"``, or an exponent in [1, ∞].
        center: whether to subtract the center.
        scale: whether to divide by the spread.
        shift: ``"add"`` (z = x − c + β) or ``"mul"`` (z = x − (1 + β)c).
        order: ``"center_first"``, or ``"scale_first"`` to divide by the spread about 0.
        phi: exponent of the center; POP-Norm's own is 2, the mean.
        learn_phi: learn φ inside ``phi_range``, one per group, from ``phi``.
        phi_range: the open range of a learned φ.
        spread_phi: exponent of the robust spread.
        spread_floor: floor of the robust spread, as a fraction of the mean deviation; 0 for none.
        grad_floor: in backward, clamp distances to the center at this fraction of the spread; stabilizes training for
            φ < 1.5. 0 for the exact gradient.
        sweeps: a fixed number of sweeps of the solver, for compiled graphs; ``None`` for the adaptive stop.
        single_element: what to do with one value per group: ``"error"`` (as torch) or
            ``"identity"`` (return the input).

    Shape:
        - Input and output: ``(N, C, *)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.PopGroupNorm(2, 6)
        >>> layer(torch.randn(3, 6, 4, 4)).shape
        torch.Size([3, 6, 4, 4])
    """

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
        kappa: float = 4.0,
        spread: Literal["rms", "mean_abs", "max_abs", "robust"] | float = "rms",
        center: bool = True,
        scale: bool = True,
        shift: Literal["add", "mul"] = "add",
        order: Literal["center_first", "scale_first"] = "center_first",
        phi: float = 2.0,
        learn_phi: bool = False,
        phi_range: tuple[float, float] = (1.2, 3.0),
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
        options = PopOptions(
            kappa=kappa,
            spread=spread,
            center=center,
            scale=scale,
            shift=shift,
            order=order,
            phi=phi,
            learn_phi=learn_phi,
            phi_range=phi_range,
            spread_phi=spread_phi,
            spread_floor=spread_floor,
            grad_floor=grad_floor,
            sweeps=sweeps,
            single_element=single_element,
        )
        self._set_pop(options, (num_groups,), num_channels, factory)
        check_no_running_statistics(self)
        self._affine_parameters((num_channels,), affine and self.scale, affine and bias and self.center, factory)
        self.reset_parameters()

    def forward(self, input: Tensor, *, mask: Tensor | None = None, element_weight: Tensor | None = None) -> Tensor:
        """Normalize ``input``; ``mask`` or ``element_weight`` (broadcast to it) say how much each element counts."""
        if mask is None and element_weight is None and (output := self._repeat(input)) is not None:
            return output
        self._check(input)
        if not input.numel() or self._is_single(input):
            return input.clone()
        element_weight = mask_or_weight(mask, element_weight)
        output, _ = self._pop(
            self._split(input, input),
            Axes(tuple(range(2, input.dim() + 1))),
            lambda parameter: self._per_channel(parameter, input),
            None if element_weight is None else self._split(element_weight, input),
            whole=input,
        )
        return output

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, {self._describe()}"
