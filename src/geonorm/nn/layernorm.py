"""AugNorm over the features of each sample: replaces torch's LayerNorm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..ops import Axes
from ._base import AugOptions, NormLayer, check_no_running_statistics, mask_or_weight, pass_through


class AugLayerNorm(NormLayer):
    """Layer normalization over the last dimensions around the L^φ center, a replacement for ``torch.nn.LayerNorm``.

        z = x − α·c(x)        y = γ · z / √(s(z)² + eps) + β

    c is ``geonorm.functional.center``, s is ``geonorm.functional.spread``. At φ=2 it equals LayerNorm.

    Args:
        normalized_shape: the last dimensions of the input, which form a group.
        eps: added to the squared spread.
        elementwise_affine: learn γ and β, one per element of ``normalized_shape``.
        bias: with ``elementwise_affine``, learn β too.
        device, dtype: of the parameters.
        phi: exponent of the center, from 1 (median) through 2 (mean) to ``math.inf`` (midrange).
        learn_phi: learn φ inside ``phi_range``, one for all, from ``phi``.
        phi_range: the open range of a learned φ.
        alpha: how much of the center is removed.
        learn_alpha: learn one α per element of ``normalized_shape``, from ``alpha``.
        spread: ``"rms"``, ``"mean_abs"``, ``"max_abs"``, ``"robust"``, or an exponent in [1, ∞].
        spread_phi: exponent of the robust spread.
        spread_floor: floor of the robust spread, as a fraction of the mean deviation; 0 for none.
        grad_floor: in backward, clamp distances to the center at this fraction of the spread; stabilizes training for
            φ < 1.5. 0 for the exact gradient.
        sweeps: a fixed number of sweeps of the solver, for compiled graphs; ``None`` for the adaptive stop.
        single_element: what to do with one value per group: ``"error"`` (normalize it to β, as torch) or
            ``"identity"`` (the affine part only).

    Shape:
        - Input and output: ``(*, *normalized_shape)``; also jagged nested tensors, ragged in an earlier dimension.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.AugLayerNorm(8)
        >>> layer(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    axes = "layer"
    twin = nn.LayerNorm
    sizes = ("normalized_shape",)
    shared_arguments = ("eps", "elementwise_affine")

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
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
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
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
        self._set_options(options, (), shape, factory)
        check_no_running_statistics(self)
        self._affine_parameters(shape, elementwise_affine, elementwise_affine and bias, factory)
        self.reset_parameters()
        # In evaluation torch's TransformerEncoderLayer skips its norms and calls a fused kernel with their weights,
        # unless one of them has a hook.
        self.register_forward_pre_hook(_disable_fast_path)

    def forward(self, input: Tensor, *, mask: Tensor | None = None, element_weight: Tensor | None = None) -> Tensor:
        """Normalize ``input``; ``mask`` or ``element_weight`` (broadcast to it) say how much each element counts."""
        if mask is None and element_weight is None and (output := self._repeat(input)) is not None:
            return output
        rank = len(self.normalized_shape)
        if input.is_nested and input.layout == torch.jagged:
            return self._jagged(input, mask_or_weight(mask, element_weight))
        if tuple(input.shape[-rank:]) != self.normalized_shape:
            raise RuntimeError(
                f"Given normalized_shape={list(self.normalized_shape)}, expected input with shape "
                f"[*, {', '.join(map(str, self.normalized_shape))}], but got input of size {list(input.shape)}; "
                "the normalized dimensions are the last ones"
            )
        if not input.numel() or (math.prod(self.normalized_shape) == 1 and self.single_element == "identity"):
            return pass_through(input, self.weight, self.bias)
        groups = Axes(tuple(range(input.dim() - rank, input.dim())))
        element_weight = mask_or_weight(mask, element_weight)
        return self._normalize(input, groups, self._alpha(), self.weight, self.bias, element_weight)

    def _jagged(self, input: Tensor, element_weight: Tensor | None) -> Tensor:
        """Normalize a jagged tensor: its tokens are stored one after another, and each is a group."""
        rank, ragged = len(self.normalized_shape), input._ragged_idx  # type: ignore[attr-defined]
        if element_weight is not None and not (element_weight.is_nested and element_weight.shape == input.shape):
            kind = "another one" if element_weight.is_nested else f"a tensor of shape {tuple(element_weight.shape)}"
            raise ValueError(
                "expected mask or element_weight to be a jagged nested tensor of the same shape as the input "
                f"(got {kind}); missing tokens need no mask"
            )
        if ragged >= input.dim() - rank:
            raise RuntimeError(
                f"Given normalized_shape={list(self.normalized_shape)}, expected an input whose last {rank} dimensions "
                f"are not ragged (got dimension {ragged} of {input.dim()} ragged); pad it and mask the padding"
            )
        output = self.forward(
            input.values(), element_weight=None if element_weight is None else element_weight.values()
        )
        jagged: Any = input
        return torch.nested.nested_tensor_from_jagged(
            output, jagged.offsets(), lengths=jagged.lengths(), jagged_dim=ragged
        )

    def extra_repr(self) -> str:
        """Torch's arguments, then ours."""
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}, {self._describe()}"


def _disable_fast_path(layer: AugLayerNorm, inputs: tuple[Tensor, ...]) -> None:
    """A hook that does nothing; its presence makes torch call the layer."""


_be_called = _disable_fast_path  # its name in models that 0.1 pickled
