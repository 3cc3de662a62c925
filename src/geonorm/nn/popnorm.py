"""POP-Norm over the batch: placed before a convolution or linear map, with the shift inside and a divisor κ."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from ..distributed import Group, group_name
from ..functional import NormStatistics
from ..functional._arguments import spread_power
from ..functional._pop import pop_parameters
from ..functional._pull import pull
from ..ops import Axes, Running, TooFewValues, move_towards_
from ..ops.torch.guard import judge_samples
from ._base import along_channels, check_batch_input, mask_or_weight
from ._pop import PopLayer, PopOptions
from ._running import CENTER, SCALE, RunningNormLayer, choose, values_per_channel


class _PopNorm(PopLayer, RunningNormLayer):
    axes = "batch"
    running_upper: Tensor | None
    running_lower: Tensor | None

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
        single_element: Literal["error", "running", "identity"] = "error",
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_features, self.eps, self.momentum, self.affine = num_features, eps, momentum, affine
        self.process_group = group_name(process_group)
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
        self._set_pop(options, (num_features,), num_features, factory)
        self._affine_parameters((num_features,), affine and self.scale, affine and bias and self.center, factory)
        self._running_buffers(num_features, track_running_stats, factory)
        self._set_guard(guard, device)
        extremes = track_running_stats and spread_power(self.spread) == math.inf
        for name in ("running_upper", "running_lower"):
            self.register_buffer(name, torch.empty(num_features, **factory) if extremes else None)
        self._absent_buffers_last()
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Reset running statistics to those of standard normal data, as torch does."""
        super().reset_running_stats()
        for buffer in (self.running_upper, self.running_lower):
            if buffer is not None:
                torch.nn.init.ones_(buffer)

    def forward(self, input: Tensor, *, mask: Tensor | None = None, element_weight: Tensor | None = None) -> Tensor:
        """Normalize ``input``; ``mask`` or ``element_weight`` (broadcast to it) say how much each element counts."""
        if mask is None and element_weight is None and (output := self._repeat(input)) is not None:
            return output
        check_batch_input(self, input)
        element_weight = mask_or_weight(mask, element_weight)
        groups = self._groups(input)
        values = values_per_channel(input, groups)
        if values == 0 or (values == 1 and self.training):
            return self._few_values(input, element_weight, values)
        if not self._uses_batch_statistics():
            return self._evaluate(input, element_weight)
        try:
            return self._normalized(input, element_weight, groups)
        except TooFewValues as found:
            return self._few_values(input, element_weight, found.number)

    def _few_values(self, input: Tensor, element_weight: Tensor | None, values: float) -> Tensor:
        """The output for a batch with one value per channel in training, or none."""
        if values == 0:
            self._count_batch()
            return input.clone()
        if self.single_element == "running":
            return self._evaluate(input, element_weight)
        if self.single_element == "identity":
            return input.clone()
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {tuple(input.shape)}; use a "
            "larger batch, drop the last one, or choose single_element='running' or 'identity'"
        )

    def _normalized(self, input: Tensor, element_weight: Tensor | None, groups: Axes) -> Tensor:
        running = self._running()
        extremes = running is not None and self.running_upper is not None
        output, statistics = self._pop(
            input,
            groups,
            lambda p: along_channels(p, input),
            element_weight,
            running,
            extremes,
            self.guard,
            self._guard_counts(),
        )
        if extremes and running is not None and statistics is not None:
            self._update_extremes(input, statistics, groups, element_weight, running.factor)
        return output

    @torch.no_grad()
    def _update_extremes(
        self,
        input: Tensor,
        statistics: NormStatistics,
        groups: Axes,
        element_weight: Tensor | None,
        factor: float | Tensor,
    ) -> None:
        """Update both running ends. The largest |z| depends on the shift, which evaluation adds to the ends."""
        if self.running_upper is None or self.running_lower is None:
            return
        center = statistics.center.detach()
        values = input.detach().to(center.dtype)
        if self.guard is not None:
            verdict = judge_samples(values, self.guard, element_weight, groups)
            values = pull(values, verdict.factor, verdict.center)
            values = torch.where(values.isnan(), center, values)
        if element_weight is not None:
            values = torch.where(
                (element_weight > 0).expand_as(values), values, center
            )  # ignored values must not be an end
        low, high = groups.extremes(values)
        for buffer, end in ((self.running_upper, high - center), (self.running_lower, center - low)):
            move_towards_(buffer, torch.where(statistics.mass > 0, end, math.nan), factor)

    def _running_to_update(
        self, mean: Tensor, var: Tensor, factor: float | Tensor, over: tuple[int, ...], batches: Tensor | None
    ) -> Running:
        """Also start both ends from the variance where another tool wrote that alone."""
        stale = False if self.running_upper is None else self._stale(SCALE)
        if stale is not False:
            with torch.no_grad():
                for end in (self.running_upper, self.running_lower):
                    if end is not None:
                        end.copy_(choose(stale, self._estimate(SCALE).sqrt(), end))
        return super()._running_to_update(mean, var, factor, over, batches)

    def _evaluation(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        mean, var = self._needed_statistics()
        center = self._current(CENTER).clone() if self.center else torch.zeros_like(mean)
        alpha, inside, gamma, outside = pop_parameters(
            center, self.weight, self.bias, self.kappa, self.center, self.scale, self.shift, self.order
        )
        removed = alpha * center
        removed = removed if inside is None else removed - inside
        if not self.scale:
            return removed, torch.ones_like(center) - self.eps, gamma, outside  # √(variance + ε) is 1
        # The spread is that of x itself if scaling comes first, else that of x − removed.
        about = torch.zeros_like(center) if self.order == "scale_first" else removed
        if self.running_upper is not None and self.running_lower is not None:
            gap = center - about
            ends = torch.maximum(self.running_upper + gap, self.running_lower - gap)
            variance = choose(self._stale(SCALE), self._estimate(SCALE), ends.square())
        elif self.running_scale is not None:
            variance = self._current(SCALE).clone()
        else:
            variance = var + (mean - about).square()
        return removed, variance, gamma, outside

    def extra_repr(self) -> str:
        """Torch's arguments, then ours."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}, {self._describe()}"
            + ("" if self.guard is None else f", guard={self.guard:g}")
            + ("" if self.process_group is None else f", process_group={self.process_group!r}")
        )


class PopNorm1d(_PopNorm):
    """POP-Norm of ``(N, C)`` or ``(N, C, L)`` over the batch, to be placed before a convolution or linear map.

        z = x − c(x) + β        y = (γ/κ) · z / √(s(z)² + eps)

    Per channel. With the rms spread the rms of the output is |γ|/κ whatever β is; β sets the angle between the output
    and a constant. In evaluation rms uses running_var + (running_mean − running_center + β)², max_abs the running ends
    shifted by β, other spreads ``running_scale``. The operation after it needs no bias.

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        momentum: how far the running statistics move towards each batch; ``None`` for the average over all batches.
        affine: learn γ and the shift β.
        track_running_stats: keep running statistics for evaluation.
        device, dtype: of parameters and buffers.
        bias: with ``affine``, learn the shift β too.
        process_group: in training, compute the statistics over all processes of this group; ``"world"`` for torch's
            default group. See ``geonorm.sync``.
        guard: before the statistics of a batch are computed, pull samples farther than this many median distances from
            the joint center onto a ball of that radius, so that broken ones cannot spoil them; 3.0 is a common choice.
            ``None`` for no guard. Evaluation uses running statistics and needs none. See ``geonorm.functional.guard``.
        kappa: the divisor κ.
        spread: ``"rms"``, ``"mean_abs"`` or ``"max_abs"`` (l2, l1, l∞), ``"robust"``, or an exponent in [1, ∞].
        center: whether to subtract the center.
        scale: whether to divide by the spread.
        shift: ``"add"`` (z = x − c + β) or ``"mul"`` (z = x − (1 + β)c).
        order: ``"center_first"``, or ``"scale_first"`` to divide by the spread about 0.
        phi: exponent of the center; POP-Norm's own is 2, the mean.
        learn_phi: learn φ inside ``phi_range``, one per channel, from ``phi``.
        phi_range: the open range of a learned φ.
        spread_phi: exponent of the robust spread.
        spread_floor: floor of the robust spread, as a fraction of the mean deviation; 0 for none.
        grad_floor: in backward, clamp distances to the center at this fraction of the spread; stabilizes training for
            φ < 1.5. 0 for the exact gradient.
        sweeps: a fixed number of sweeps of the solver, for compiled graphs; ``None`` for the adaptive stop.
        single_element: what to do in training with one value per channel: ``"error"`` (as torch), ``"running"`` (use
            the running statistics) or ``"identity"`` (return the input).

    Shape:
        - Input and output: ``(N, C)`` or ``(N, C, L)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.PopNorm1d(4, kappa=4.0)
        >>> layer(torch.randn(20, 4)).shape
        torch.Size([20, 4])
    """

    spatial_dims = 1


class PopNorm2d(_PopNorm):
    """POP-Norm of ``(N, C, H, W)`` over the batch, to be placed before a convolution or linear map.

        z = x − c(x) + β        y = (γ/κ) · z / √(s(z)² + eps)

    Per channel. With the rms spread the rms of the output is |γ|/κ whatever β is; β sets the angle between the output
    and a constant. In evaluation rms uses running_var + (running_mean − running_center + β)², max_abs the running ends
    shifted by β, other spreads ``running_scale``. The operation after it needs no bias.

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        momentum: how far the running statistics move towards each batch; ``None`` for the average over all batches.
        affine: learn γ and the shift β.
        track_running_stats: keep running statistics for evaluation.
        device, dtype: of parameters and buffers.
        bias: with ``affine``, learn the shift β too.
        process_group: in training, compute the statistics over all processes of this group; ``"world"`` for torch's
            default group. See ``geonorm.sync``.
        guard: before the statistics of a batch are computed, pull samples farther than this many median distances from
            the joint center onto a ball of that radius, so that broken ones cannot spoil them; 3.0 is a common choice.
            ``None`` for no guard. Evaluation uses running statistics and needs none. See ``geonorm.functional.guard``.
        kappa: the divisor κ.
        spread: ``"rms"``, ``"mean_abs"`` or ``"max_abs"`` (l2, l1, l∞), ``"robust"``, or an exponent in [1, ∞].
        center: whether to subtract the center.
        scale: whether to divide by the spread.
        shift: ``"add"`` (z = x − c + β) or ``"mul"`` (z = x − (1 + β)c).
        order: ``"center_first"``, or ``"scale_first"`` to divide by the spread about 0.
        phi: exponent of the center; POP-Norm's own is 2, the mean.
        learn_phi: learn φ inside ``phi_range``, one per channel, from ``phi``.
        phi_range: the open range of a learned φ.
        spread_phi: exponent of the robust spread.
        spread_floor: floor of the robust spread, as a fraction of the mean deviation; 0 for none.
        grad_floor: in backward, clamp distances to the center at this fraction of the spread; stabilizes training for
            φ < 1.5. 0 for the exact gradient.
        sweeps: a fixed number of sweeps of the solver, for compiled graphs; ``None`` for the adaptive stop.
        single_element: what to do in training with one value per channel: ``"error"`` (as torch), ``"running"`` (use
            the running statistics) or ``"identity"`` (return the input).

    Shape:
        - Input and output: ``(N, C, H, W)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.PopNorm2d(4, kappa=4.0)
        >>> layer(torch.randn(2, 4, 5, 5)).shape
        torch.Size([2, 4, 5, 5])
    """

    spatial_dims = 2


class PopNorm3d(_PopNorm):
    """POP-Norm of ``(N, C, D, H, W)`` over the batch, to be placed before a convolution or linear map.

        z = x − c(x) + β        y = (γ/κ) · z / √(s(z)² + eps)

    Per channel. With the rms spread the rms of the output is |γ|/κ whatever β is; β sets the angle between the output
    and a constant. In evaluation rms uses running_var + (running_mean − running_center + β)², max_abs the running ends
    shifted by β, other spreads ``running_scale``. The operation after it needs no bias.

    Args:
        num_features: number of channels C.
        eps: added to the squared spread.
        momentum: how far the running statistics move towards each batch; ``None`` for the average over all batches.
        affine: learn γ and the shift β.
        track_running_stats: keep running statistics for evaluation.
        device, dtype: of parameters and buffers.
        bias: with ``affine``, learn the shift β too.
        process_group: in training, compute the statistics over all processes of this group; ``"world"`` for torch's
            default group. See ``geonorm.sync``.
        guard: before the statistics of a batch are computed, pull samples farther than this many median distances from
            the joint center onto a ball of that radius, so that broken ones cannot spoil them; 3.0 is a common choice.
            ``None`` for no guard. Evaluation uses running statistics and needs none. See ``geonorm.functional.guard``.
        kappa: the divisor κ.
        spread: ``"rms"``, ``"mean_abs"`` or ``"max_abs"`` (l2, l1, l∞), ``"robust"``, or an exponent in [1, ∞].
        center: whether to subtract the center.
        scale: whether to divide by the spread.
        shift: ``"add"`` (z = x − c + β) or ``"mul"`` (z = x − (1 + β)c).
        order: ``"center_first"``, or ``"scale_first"`` to divide by the spread about 0.
        phi: exponent of the center; POP-Norm's own is 2, the mean.
        learn_phi: learn φ inside ``phi_range``, one per channel, from ``phi``.
        phi_range: the open range of a learned φ.
        spread_phi: exponent of the robust spread.
        spread_floor: floor of the robust spread, as a fraction of the mean deviation; 0 for none.
        grad_floor: in backward, clamp distances to the center at this fraction of the spread; stabilizes training for
            φ < 1.5. 0 for the exact gradient.
        sweeps: a fixed number of sweeps of the solver, for compiled graphs; ``None`` for the adaptive stop.
        single_element: what to do in training with one value per channel: ``"error"`` (as torch), ``"running"`` (use
            the running statistics) or ``"identity"`` (return the input).

    Shape:
        - Input and output: ``(N, C, D, H, W)``.

    Examples:
        >>> import torch, geonorm
        >>> layer = geonorm.PopNorm3d(4, kappa=4.0)
        >>> layer(torch.randn(2, 4, 3, 5, 5)).shape
        torch.Size([2, 4, 3, 5, 5])
    """

    spatial_dims = 3
