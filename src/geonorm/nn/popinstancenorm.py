"""POP-Norm over each channel of each sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ._base import along_channels, check_batch_input, element_weight, no_running_statistics
from ._pop import PopLayer, PopOptions


class _PopInstanceNorm(PopLayer):
    _ranks: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
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
        self.num_features, self.eps, self.affine = num_features, eps, affine
        self._set_pop(options, (num_features,), num_features, factory)
        no_running_statistics(self)
        self._affine_parameters((num_features,), affine and self.scale, affine and bias and self.center, factory)
        self.reset_parameters()

    def forward(self, input: Tensor, *, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """Normalize ``input``; ``mask`` or ``weight`` (broadcast to it) say how much each element counts."""
        check_batch_input(self, input, self._ranks)
        if not input.numel():
            return input.clone()
        if input.numel() == input.shape[0] * input.shape[1]:
            if self.single_element == "identity":
                return input.clone()
            raise ValueError(
                f"Expected more than 1 spatial element when training, got input size {tuple(input.shape)}; "
                "choose single_element='identity'"
            )
        share = element_weight(mask, weight)
        return self._pop(input, tuple(range(2, input.dim())), lambda p: along_channels(p, input), share)[0]

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.num_features}, eps={self.eps}, affine={self.affine}, {self._describe()}"


class PopInstanceNorm1d(_PopInstanceNorm):
    """POP-Norm of ``(N, C, L)`` over the positions of each channel of each sample, to stand before an operation.

        z = x − c(x) + β        y = (γ/κ) · z / √(s(z)² + eps)

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        affine: learn γ and the shift β.
        device, dtype: of the parameters.
        bias: with ``affine``, learn the shift β too.
        options: κ, spread, parts and order, see ``geonorm.nn.PopOptions``. φ is learned per channel.

    Shape:
        - Input and output: ``(N, C, L)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.PopInstanceNorm1d(4)
        >>> layer(torch.randn(2, 4, 9)).shape
        torch.Size([2, 4, 9])
    """

    _ranks = (3,)


class PopInstanceNorm2d(_PopInstanceNorm):
    """POP-Norm of ``(N, C, H, W)`` over the positions of each channel of each sample, to stand before an operation.

        z = x − c(x) + β        y = (γ/κ) · z / √(s(z)² + eps)

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        affine: learn γ and the shift β.
        device, dtype: of the parameters.
        bias: with ``affine``, learn the shift β too.
        options: κ, spread, parts and order, see ``geonorm.nn.PopOptions``. φ is learned per channel.

    Shape:
        - Input and output: ``(N, C, H, W)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.PopInstanceNorm2d(4)
        >>> layer(torch.randn(2, 4, 5, 5)).shape
        torch.Size([2, 4, 5, 5])
    """

    _ranks = (4,)


class PopInstanceNorm3d(_PopInstanceNorm):
    """POP-Norm of ``(N, C, D, H, W)`` over the positions of each channel of each sample, to stand before an operation.

        z = x − c(x) + β        y = (γ/κ) · z / √(s(z)² + eps)

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        affine: learn γ and the shift β.
        device, dtype: of the parameters.
        bias: with ``affine``, learn the shift β too.
        options: κ, spread, parts and order, see ``geonorm.nn.PopOptions``. φ is learned per channel.

    Shape:
        - Input and output: ``(N, C, D, H, W)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.PopInstanceNorm3d(4)
        >>> layer(torch.randn(2, 4, 3, 5, 5)).shape
        torch.Size([2, 4, 3, 5, 5])
    """

    _ranks = (5,)
