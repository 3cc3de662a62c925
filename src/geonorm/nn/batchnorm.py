"""AugNorm over the batch: replaces torch's BatchNorm1d, 2d and 3d."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..distributed import Group, group_name
from ..ops import Axes, TooFewValues
from ._base import AugOptions, along_channels, check_batch_input, mask_or_weight, pass_through
from ._running import RunningNormLayer, values_per_channel


class _AugBatchNorm(RunningNormLayer):
    axes = "batch"
    shared_arguments = ("eps", "momentum", "affine", "track_running_stats")

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        process_group: Group | None = None,
        guard: float | None = None,
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
        self.process_group = group_name(process_group)
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
        self._set_guard(guard, device)
        self._absent_buffers_last()
        self.reset_parameters()

    def forward(self, input: Tensor, *, mask: Tensor | None = None, element_weight: Tensor | None = None) -> Tensor:
        """Normalize ``input``; ``mask`` or ``element_weight`` (broadcast to it) say how much each element counts."""
        if mask is None and element_weight is None and (output := self._repeat(input)) is not None:
            return output
        check_batch_input(self, input)
        element_weight = mask_or_weight(mask, element_weight)
        if input.numel() and not self._uses_batch_statistics():
            return self._evaluate(input, element_weight)
        groups = self._groups(input)
        values = values_per_channel(input, groups)
        if values < 2:
            return self._few_values(input, element_weight, values)
        try:
            return self._normalized(input, element_weight, groups)
        except TooFewValues as found:
            return self._few_values(input, element_weight, found.number)

    def _few_values(self, input: Tensor, element_weight: Tensor | None, values: float) -> Tensor:
        """The output for a batch with one value per channel, or none."""
        if values == 1 and self.training and self.single_element == "error":
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {tuple(input.shape)}; use a "
                "larger batch, drop the last one, or choose single_element='running' or 'identity'"
            )
        if values == 1 and self.training and self.single_element == "running":
            return self._evaluate(input, element_weight)
        if values == 0:
            self._count_batch()
        if values == 0 or self.single_element == "identity":
            return pass_through(input, along_channels(self.weight, input), along_channels(self.bias, input))
        return self._normalized(input, element_weight, self._groups(input))

    def _normalized(self, input: Tensor, element_weight: Tensor | None, groups: Axes) -> Tensor:
        return self._normalize(
            input,
            groups,
            along_channels(self._alpha(), input),
            along_channels(self.weight, input),
            along_channels(self.bias, input),
            element_weight,
            self._running(),
            self.guard,
            self._guard_counts(),
        )

    def extra_repr(self) -> str:
        """Torch's arguments, then ours."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}, {self._describe()}"
            + ("" if self.guard is None else f", guard={self.guard:g}")
            + ("" if self.process_group is None else f", process_group={self.process_group!r}")
        )


class AugBatchNorm1d(_AugBatchNorm):
    """Batch normalization of ``(N, C)`` or ``(N, C, L)`` around the L^φ center, a replacement for BatchNorm1d.

        z = x − α·c(x)        y = γ · z / √(s(z)² + eps) + β

    Per channel; c is ``geonorm.functional.center``, s is ``geonorm.functional.spread``. At φ=2 it equals BatchNorm1d.

    Buffers ``running_mean``, ``running_var`` and ``num_batches_tracked`` are those of BatchNorm. ``running_center``, if
    φ is not 2, tracks the center, and ``running_scale``, if the spread is not rms, its square. Evaluation is affine.
    A BatchNorm state_dict loads strictly. A channel whose statistics are not finite does not change its buffers.

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        momentum: how far the running statistics move towards each batch; ``None`` for the average over all batches.
        affine: learn γ and β.
        track_running_stats: keep running statistics for evaluation.
        device, dtype: of parameters and buffers.
        bias: with ``affine``, learn β too.
        process_group: in training, compute the statistics over all processes of this group; ``"world"`` for torch's
            default group. See ``geonorm.sync``.
        guard: before the statistics of a batch are computed, pull samples farther than this many median distances from
            the joint center onto a ball of that radius, so that broken ones cannot spoil them; 3.0 is a common choice.
            ``None`` for no guard. Evaluation uses running statistics and needs none. See ``geonorm.functional.guard``.
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
        single_element: what to do in training with one value per channel: ``"error"`` (as torch), ``"running"`` (use
            the running statistics) or ``"identity"`` (the affine part only).

    Shape:
        - Input and output: ``(N, C)`` or ``(N, C, L)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.AugBatchNorm1d(4)
        >>> layer(torch.randn(20, 4)).shape
        torch.Size([20, 4])
    """

    spatial_dims = 1
    twin = nn.BatchNorm1d


class AugBatchNorm2d(_AugBatchNorm):
    """Batch normalization of ``(N, C, H, W)`` around the L^φ center, a replacement for ``torch.nn.BatchNorm2d``.

        z = x − α·c(x)        y = γ · z / √(s(z)² + eps) + β

    Per channel; c is ``geonorm.functional.center``, s is ``geonorm.functional.spread``. At φ=2 it equals BatchNorm2d.

    Buffers ``running_mean``, ``running_var`` and ``num_batches_tracked`` are those of BatchNorm. ``running_center``, if
    φ is not 2, tracks the center, and ``running_scale``, if the spread is not rms, its square. Evaluation is affine.
    A BatchNorm state_dict loads strictly. A channel whose statistics are not finite does not change its buffers.

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        momentum: how far the running statistics move towards each batch; ``None`` for the average over all batches.
        affine: learn γ and β.
        track_running_stats: keep running statistics for evaluation.
        device, dtype: of parameters and buffers.
        bias: with ``affine``, learn β too.
        process_group: in training, compute the statistics over all processes of this group; ``"world"`` for torch's
            default group. See ``geonorm.sync``.
        guard: before the statistics of a batch are computed, pull samples farther than this many median distances from
            the joint center onto a ball of that radius, so that broken ones cannot spoil them; 3.0 is a common choice.
            ``None`` for no guard. Evaluation uses running statistics and needs none. See ``geonorm.functional.guard``.
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
        single_element: what to do in training with one value per channel: ``"error"`` (as torch), ``"running"`` (use
            the running statistics) or ``"identity"`` (the affine part only).

    Shape:
        - Input and output: ``(N, C, H, W)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.AugBatchNorm2d(4, learn_phi=True)
        >>> layer(torch.randn(20, 4, 5, 5)).shape
        torch.Size([20, 4, 5, 5])
    """

    spatial_dims = 2
    twin = nn.BatchNorm2d


class AugBatchNorm3d(_AugBatchNorm):
    """Batch normalization of ``(N, C, D, H, W)`` around the L^φ center, a replacement for ``torch.nn.BatchNorm3d``.

        z = x − α·c(x)        y = γ · z / √(s(z)² + eps) + β

    Per channel; c is ``geonorm.functional.center``, s is ``geonorm.functional.spread``. At φ=2 it equals BatchNorm3d.

    Buffers ``running_mean``, ``running_var`` and ``num_batches_tracked`` are those of BatchNorm. ``running_center``, if
    φ is not 2, tracks the center, and ``running_scale``, if the spread is not rms, its square. Evaluation is affine.
    A BatchNorm state_dict loads strictly. A channel whose statistics are not finite does not change its buffers.

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        momentum: how far the running statistics move towards each batch; ``None`` for the average over all batches.
        affine: learn γ and β.
        track_running_stats: keep running statistics for evaluation.
        device, dtype: of parameters and buffers.
        bias: with ``affine``, learn β too.
        process_group: in training, compute the statistics over all processes of this group; ``"world"`` for torch's
            default group. See ``geonorm.sync``.
        guard: before the statistics of a batch are computed, pull samples farther than this many median distances from
            the joint center onto a ball of that radius, so that broken ones cannot spoil them; 3.0 is a common choice.
            ``None`` for no guard. Evaluation uses running statistics and needs none. See ``geonorm.functional.guard``.
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
        single_element: what to do in training with one value per channel: ``"error"`` (as torch), ``"running"`` (use
            the running statistics) or ``"identity"`` (the affine part only).

    Shape:
        - Input and output: ``(N, C, D, H, W)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.AugBatchNorm3d(4, spread="robust")
        >>> layer(torch.randn(2, 4, 3, 5, 5)).shape
        torch.Size([2, 4, 3, 5, 5])
    """

    spatial_dims = 3
    twin = nn.BatchNorm3d
