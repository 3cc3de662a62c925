"""POP-Norm over groups of channels of each sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ._base import element_weight, no_running_statistics
from ._pop import PopLayer, PopOptions
from .groupnorm import ChannelGroups


class PopGroupNorm(PopLayer, ChannelGroups):
    """POP-Norm over groups of channels of each sample, to stand before an operation.

        z = x − c(x) + β        y = (γ/κ) · z / √(s(z)² + eps)

    Args:
        num_groups: number of groups; divides ``num_channels``.
        num_channels: number of channels C.
        eps: added to the squared spread.
        affine: learn γ and β per channel.
        device, dtype: of the parameters.
        bias: with ``affine``, learn the shift β too.
        options: κ, spread, parts and order, see ``geonorm.nn.PopOptions``. φ is learned per group.

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
        **options: Unpack[PopOptions],
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self._set_groups(num_groups, num_channels)
        self.eps, self.affine = eps, affine
        self._set_pop(options, (num_groups,), num_channels, factory)
        no_running_statistics(self)
        self._affine_parameters((num_channels,), affine and self.scale, affine and bias and self.center, factory)
        self.reset_parameters()

    def forward(self, input: Tensor, *, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """Normalize ``input``; ``mask`` or ``weight`` (broadcast to it) say how much each element counts."""
        self._check(input)
        if not input.numel() or self._is_single(input):
            return input.clone()
        share = element_weight(mask, weight)
        output, _ = self._pop(
            self._split(input, input),
            tuple(range(2, input.dim() + 1)),
            lambda parameter: self._per_channel(parameter, input),
            None if share is None else self._split(share, input),
        )
        return output.flatten(1, 2)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, {self._describe()}"
