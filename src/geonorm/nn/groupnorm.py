"""AugNorm over groups of channels of each sample: in the place of torch's GroupNorm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..functional import aug_norm
from ._base import AugOptions, NormLayer, along_channels, element_weight, no_running_statistics, pass_through


class AugGroupNorm(NormLayer):
    """Group normalization around the L^φ center, in the place of ``torch.nn.GroupNorm``.

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
        options: φ, α, spread and the rest, see ``geonorm.nn.AugOptions``. φ is learned per group, α per channel.

    Shape:
        - Input and output: ``(N, C, *)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.AugGroupNorm(2, 6)
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
        **options: Unpack[AugOptions],
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._set_options(options, (num_groups,), (num_channels,), factory)
        no_running_statistics(self)
        self._affine_parameters((num_channels,), affine, affine and bias, factory)
        self.reset_parameters()

    def forward(self, input: Tensor, *, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """Normalize ``input``; ``mask`` or ``weight`` (broadcast to it) say how much each element counts."""
        check_group_input(self, input)
        if not input.numel() or (self._single(input) and self.single_element == "identity"):
            return pass_through(input, along_channels(self.weight, input), along_channels(self.bias, input))
        split = input.unflatten(1, (self.num_groups, -1))  # (N, groups, channels of a group, *)

        def per_channel(parameter: Tensor | None) -> Tensor | None:
            return None if parameter is None else parameter.reshape(1, self.num_groups, -1, *[1] * (input.dim() - 2))

        alpha, share = self._alpha(), element_weight(mask, weight)
        if share is not None:
            share = share.expand(input.shape).unflatten(1, (self.num_groups, -1))
        output = aug_norm(
            split,
            tuple(range(2, split.dim())),
            self.phi,
            alpha=alpha if isinstance(alpha, float) else per_channel(alpha),  # type: ignore[arg-type]
            weight=per_channel(self.weight),
            bias=per_channel(self.bias),
            element_weight=share,
            **self._function_options(),
        ).output
        return output.flatten(1, 2)

    def _single(self, input: Tensor) -> bool:
        return input.numel() == input.shape[0] * self.num_groups

    def extra_repr(self) -> str:
        """Torch's arguments, then ours."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, {self._describe()}"


def check_group_input(layer: Any, input: Tensor) -> None:
    """Torch's errors for inputs of a group normalization, with the cure."""
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    if input.shape[1] != layer.num_channels:
        raise RuntimeError(
            f"Expected {layer.num_channels} channels in dimension 1, but got input of shape {list(input.shape)}; "
            f"construct {type(layer).__name__}({layer.num_groups}, {input.shape[1]})"
        )
    if input.numel() == layer.num_groups and layer.single_element == "error":
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(input.shape)}; "
            "use fewer groups, or single_element='identity'"
        )
