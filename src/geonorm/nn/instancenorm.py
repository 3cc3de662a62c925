"""AugNorm over each channel of each sample: replaces torch's InstanceNorm1d, 2d and 3d."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ..ops import Axes, Running, statistics_paused
from ._base import AugOptions, along_channels, mask_or_weight, pass_through
from ._running import RunningNormLayer


class _AugInstanceNorm(RunningNormLayer):
    axes = "instance"
    spatial_dims: ClassVar[int]
    shared_arguments = ("eps", "momentum", "affine", "track_running_stats")

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
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
        single_element: Literal["error", "running", "identity"] = "error",
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_features, self.eps, self.momentum, self.affine = num_features, eps, momentum, affine
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
        self._set_options(options, (num_features,), (num_features,), factory)
        self._affine_parameters((num_features,), affine, affine and bias, factory)
        self._running_buffers(num_features, track_running_stats, factory)
        self._absent_buffers_last()
        self.reset_parameters()

    def forward(self, input: Tensor, *, mask: Tensor | None = None, element_weight: Tensor | None = None) -> Tensor:
        """Normalize ``input``; ``mask`` or ``element_weight`` (broadcast to it) say how much each element counts."""
        if mask is None and element_weight is None and (output := self._repeat(input)) is not None:
            return output
        self._check(input)
        element_weight = mask_or_weight(mask, element_weight)
        if input.dim() == self.spatial_dims + 1:
            return self.forward(
                input.unsqueeze(0), element_weight=None if element_weight is None else element_weight.unsqueeze(0)
            ).squeeze(0)
        gamma, beta = along_channels(self.weight, input), along_channels(self.bias, input)
        if not input.numel():
            return pass_through(input, gamma, beta)
        dims = tuple(range(2, input.dim()))
        single = input.numel() == input.shape[0] * input.shape[1]
        if not self._uses_batch_statistics() or (single and self.single_element == "running"):
            return self._evaluate(input, element_weight)
        if single:
            if self.single_element == "identity":
                return pass_through(input, gamma, beta)
            raise ValueError(
                f"Expected more than 1 spatial element when training, got input size {tuple(input.shape)}; "
                "choose single_element='identity', or 'running' with track_running_stats=True"
            )
        return self._normalize(
            input, Axes(dims), along_channels(self._alpha(), input), gamma, beta, element_weight, self._running()
        )

    def _uses_batch_statistics(self) -> bool:
        """Like torch's InstanceNorm: a layer constructed with buffers that were removed cannot evaluate."""
        return self.training or not self.track_running_stats

    def _running(self) -> Running | None:
        """Like torch's InstanceNorm: every measured batch updates the buffers, and batches are not counted."""
        plain = self._plain_statistics()
        if plain is None or not self._uses_batch_statistics() or statistics_paused():
            return None
        return self._running_to_update(*plain, self.momentum or 0.0, (0,), None)

    def _check(self, input: Tensor) -> None:
        without_batch = self.spatial_dims + 1
        if input.dim() not in (without_batch, without_batch + 1):
            wanted = f"{without_batch}D or {without_batch + 1}D"
            raise ValueError(
                f"expected {wanted} input (got {input.dim()}D input); "
                "AugInstanceNorm1d takes (N, C, L), 2d (N, C, H, W), 3d (N, C, D, H, W), or the same without N"
            )
        channels = input.shape[input.dim() - without_batch]
        if channels == self.num_features:
            return
        wrong = (
            f"expected input's size at dim={input.dim() - without_batch} to match num_features "
            f"({self.num_features}), but got: {channels}; construct {type(self).__name__}({channels})"
        )
        if any(value is not None for value in (*self._parameters.values(), *self._buffers.values())):
            raise ValueError(wrong)
        warnings.warn(f"{wrong}. It has no effect, because this layer has no parameters per channel", stacklevel=3)

    def extra_repr(self) -> str:
        """Torch's arguments, then ours."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}, {self._describe()}"
        )


class AugInstanceNorm1d(_AugInstanceNorm):
    """Instance normalization of ``(N, C, L)`` around the L^φ center, a replacement for InstanceNorm1d.

        z = x − α·c(x)        y = γ · z / √(s(z)² + eps) + β

    Over the positions of each channel of each sample; c is ``geonorm.functional.center``, s is
    ``geonorm.functional.spread``. At φ=2 it equals ``torch.nn.InstanceNorm1d``.

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        momentum: how far the running statistics move towards each batch, if they are tracked.
        affine: learn γ and β.
        track_running_stats: keep running statistics and use them in evaluation.
        device, dtype: of parameters and buffers.
        bias: with ``affine``, learn β too.
        phi: exponent of the center, from 1 (median) through 2 (mean) to ``math.inf`` (midrange).
        learn_phi: learn φ inside ``phi_range``, one per channel, from ``phi``.
        phi_range: the open range of a learned φ.
        alpha: how much of the center is removed.
        learn_alpha: learn one α per channel, from ``alpha``.
        spread: ``"rms"``, ``"mean_abs"``, ``"max_abs"``, ``"robust"``, or an exponent in [1, ∞].
        spread_phi: exponent of the robust spread.
        spread_floor: floor of the robust spread, as a fraction of the mean deviation; 0 for none.
        grad_floor: in backward, clamp distances to the center at this fraction of the spread; stabilizes training for
            φ < 1.5. 0 for the exact gradient.
        sweeps: a fixed number of sweeps of the solver, for compiled graphs; ``None`` for the adaptive stop.
        single_element: what to do with one value per channel and sample: ``"error"`` (as torch), ``"running"`` (use the
            running statistics) or ``"identity"`` (the affine part only).

    Shape:
        - Input and output: ``(N, C, L)``, or without N.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.AugInstanceNorm1d(4)
        >>> layer(torch.randn(2, 4, 9)).shape
        torch.Size([2, 4, 9])
    """

    spatial_dims = 1
    twin = nn.InstanceNorm1d


class AugInstanceNorm2d(_AugInstanceNorm):
    """Instance normalization of ``(N, C, H, W)`` around the L^φ center, a replacement for InstanceNorm2d.

        z = x − α·c(x)        y = γ · z / √(s(z)² + eps) + β

    Over the positions of each channel of each sample; c is ``geonorm.functional.center``, s is
    ``geonorm.functional.spread``. At φ=2 it equals ``torch.nn.InstanceNorm2d``.

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        momentum: how far the running statistics move towards each batch, if they are tracked.
        affine: learn γ and β.
        track_running_stats: keep running statistics and use them in evaluation.
        device, dtype: of parameters and buffers.
        bias: with ``affine``, learn β too.
        phi: exponent of the center, from 1 (median) through 2 (mean) to ``math.inf`` (midrange).
        learn_phi: learn φ inside ``phi_range``, one per channel, from ``phi``.
        phi_range: the open range of a learned φ.
        alpha: how much of the center is removed.
        learn_alpha: learn one α per channel, from ``alpha``.
        spread: ``"rms"``, ``"mean_abs"``, ``"max_abs"``, ``"robust"``, or an exponent in [1, ∞].
        spread_phi: exponent of the robust spread.
        spread_floor: floor of the robust spread, as a fraction of the mean deviation; 0 for none.
        grad_floor: in backward, clamp distances to the center at this fraction of the spread; stabilizes training for
            φ < 1.5. 0 for the exact gradient.
        sweeps: a fixed number of sweeps of the solver, for compiled graphs; ``None`` for the adaptive stop.
        single_element: what to do with one value per channel and sample: ``"error"`` (as torch), ``"running"`` (use the
            running statistics) or ``"identity"`` (the affine part only).

    Shape:
        - Input and output: ``(N, C, H, W)``, or without N.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.AugInstanceNorm2d(4)
        >>> layer(torch.randn(2, 4, 5, 5)).shape
        torch.Size([2, 4, 5, 5])
    """

    spatial_dims = 2
    twin = nn.InstanceNorm2d


class AugInstanceNorm3d(_AugInstanceNorm):
    """Instance normalization of ``(N, C, D, H, W)`` around the L^φ center, a replacement for InstanceNorm3d.

        z = x − α·c(x)        y = γ · z / √(s(z)² + eps) + β

    Over the positions of each channel of each sample; c is ``geonorm.functional.center``, s is
    ``geonorm.functional.spread``. At φ=2 it equals ``torch.nn.InstanceNorm3d``.

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        momentum: how far the running statistics move towards each batch, if they are tracked.
        affine: learn γ and β.
        track_running_stats: keep running statistics and use them in evaluation.
        device, dtype: of parameters and buffers.
        bias: with ``affine``, learn β too.
        phi: exponent of the center, from 1 (median) through 2 (mean) to ``math.inf`` (midrange).
        learn_phi: learn φ inside ``phi_range``, one per channel, from ``phi``.
        phi_range: the open range of a learned φ.
        alpha: how much of the center is removed.
        learn_alpha: learn one α per channel, from ``alpha``.
        spread: ``"rms"``, ``"mean_abs"``, ``"max_abs"``, ``"robust"``, or an exponent in [1, ∞].
        spread_phi: exponent of the robust spread.
        spread_floor: floor of the robust spread, as a fraction of the mean deviation; 0 for none.
        grad_floor: in backward, clamp distances to the center at this fraction of the spread; stabilizes training for
            φ < 1.5. 0 for the exact gradient.
        sweeps: a fixed number of sweeps of the solver, for compiled graphs; ``None`` for the adaptive stop.
        single_element: what to do with one value per channel and sample: ``"error"`` (as torch), ``"running"`` (use the
            running statistics) or ``"identity"`` (the affine part only).

    Shape:
        - Input and output: ``(N, C, D, H, W)``, or without N.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.AugInstanceNorm3d(4)
        >>> layer(torch.randn(2, 4, 3, 5, 5)).shape
        torch.Size([2, 4, 3, 5, 5])
    """

    spatial_dims = 3
    twin = nn.InstanceNorm3d
