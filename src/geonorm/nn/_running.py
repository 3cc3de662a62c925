"""Layers with running statistics: which buffers they keep, how they follow, and how a torch state_dict becomes ours."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ..distributed import Across, grouping
from ..functional import affine_norm
from ..functional._arguments import spread_power
from ..functional._aug import affine_of
from ..functional._guard import check_k
from ..ops import Axes, Running, statistics_paused
from ._base import NormLayer, along_channels


class RunningNormLayer(NormLayer):
    """A layer that normalizes with its own groups in training and with running statistics in evaluation.

    ``running_mean`` and ``running_var`` follow the plain moments, ``running_center`` the center; ``running_scale``,
    only for spreads other than rms, the squared spread as used in training. For rms the variance about the removed
    center is running_var + (running_mean − α·running_center)², which stays right while α is learned.
    """

    momentum: float | None
    track_running_stats: bool
    running_mean: Tensor | None
    running_var: Tensor | None
    running_center: Tensor | None
    running_scale: Tensor | None
    num_batches_tracked: Tensor | None
    process_group: str | None = None  # by name; layers over the batch may have one
    guard: float | None = None
    guard_counts: Tensor | None

    def _groups(self, input: Tensor) -> Axes:
        """The values of each channel: here, or over the process group in training. Evaluation waits for nobody."""
        dims = (0, *range(2, input.dim()))
        groups = grouping(dims, self.process_group if self.training else None)
        if self.guard is not None and isinstance(groups, Across) and not torch.compiler.is_compiling():
            groups.ask_lengths(input)
        return groups

    def _running_buffers(self, channels: int, track: bool, factory: dict[str, Any]) -> None:
        self.track_running_stats = track
        if self.single_element == "running" and not track:
            raise ValueError("expected track_running_stats=True with single_element='running' (got False)")
        for name in ("running_mean", "running_var", "running_center", "running_scale"):
            wanted = track and (name != "running_scale" or spread_power(self.spread) != 2)
            self.register_buffer(name, torch.empty(channels, **factory) if wanted else None)
        count = torch.tensor(0, dtype=torch.long, device=factory["device"]) if track else None
        self.register_buffer("num_batches_tracked", count)

    def _set_guard(self, k: float | None, device: torch.device | str | None) -> None:
        """The radius of the guard, and its counts, which are no part of the state."""
        check_k(k, "guard")
        self.guard = None if k is None else float(k)
        counts = None if k is None else torch.zeros(4, dtype=torch.long, device=device)
        self.register_buffer("guard_counts", counts, persistent=False)

    def _guard_options(self) -> dict[str, Any]:
        """What the guard adds to the functional call."""
        counts = self.guard_counts if self.training and not statistics_paused() else None
        return {"guard": self.guard, "guard_counts": counts}

    def reset_running_stats(self) -> None:
        """Running statistics of standard normal data, as torch starts them."""
        for name, value in (
            ("running_mean", 0.0),
            ("running_var", 1.0),
            ("running_center", 0.0),
            ("running_scale", 1.0),
        ):
            buffer = getattr(self, name)
            if buffer is not None:
                nn.init.constant_(buffer, value)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Parameters and running statistics at their start."""
        super().reset_parameters()
        self.reset_running_stats()

    def _running(self, over: tuple[int, ...] = ()) -> Running | None:
        """The buffers that are to follow this batch, and the counter. ``over``: as in ``ops.Running``."""
        buffers = self._buffers  # attributes of a module are slow to find
        batches = buffers["num_batches_tracked"]
        if not self.training or batches is None or statistics_paused():
            return None
        mean, var, center = buffers["running_mean"], buffers["running_var"], buffers["running_center"]
        assert mean is not None
        assert var is not None
        assert center is not None
        factor = 1.0 / (batches.double() + 1) if self.momentum is None else self.momentum
        return Running(mean, var, center, buffers["running_scale"], factor, over, batches)

    def _evaluation(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Per channel, what evaluation subtracts, the squared spread it divides by, γ and β.

        Copies of the buffers, so that a later update harms no backward.
        """
        buffers, alpha = self._buffers, self._alpha()  # attributes of a module are slow to find
        mean, var, center, scale = (buffers[f"running_{name}"] for name in ("mean", "var", "center", "scale"))
        assert mean is not None
        assert var is not None
        assert center is not None
        removed = center.clone()
        if isinstance(alpha, Tensor) or alpha != 1:
            removed = removed * alpha
        if scale is not None:
            variance = scale.clone()
        else:
            gap = mean - removed
            variance = torch.addcmul(var, gap, gap)
        return removed, variance, self.weight, self.bias

    def _evaluate(self, input: Tensor, share: Tensor | None = None) -> Tensor:
        """The input normalized with the running statistics; 0 for elements of weight 0, as in training."""
        if share is not None:  # selected before and after: such elements may be NaN
            counts = share > 0
            return torch.where(counts, self._evaluate(torch.where(counts, input, 0.0)), 0.0)
        center, variance, gamma, beta = self._evaluation()
        if _is_torch_s(input, center, variance, gamma, beta):
            return torch.batch_norm(input, gamma, beta, center, variance, False, 0.0, self.eps, False)
        parts = [along_channels(part, input) for part in (gamma, beta)]
        center, variance = along_channels(center, input), along_channels(variance, input)
        return affine_norm(input, center, variance, weight=parts[0], bias=parts[1], eps=self.eps)

    def evaluation_affine(self) -> tuple[Tensor, Tensor]:
        """Evaluation is affine: scale and offset per channel, y = scale · x + offset."""
        return affine_of(*self._evaluation(), self.eps)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """A torch BatchNorm or InstanceNorm state_dict becomes ours: the mean is the first guess of the center."""
        mean, var = (state_dict.get(prefix + name) for name in ("running_mean", "running_var"))
        if mean is not None and self.running_center is not None:
            state_dict.setdefault(prefix + "running_center", mean.clone())
        if var is not None and self.running_scale is not None and prefix + "running_scale" not in state_dict:
            ratio = _squared_spread_of_normal_data(spread_power(self.spread))
            state_dict[prefix + "running_scale"] = var * ratio
            if self.spread not in ("robust", "mean_abs"):
                warnings.warn(
                    f"running_scale of spread={self.spread!r} cannot be known from a state_dict with running_var; it "
                    "was estimated from normal data and will be right after some training batches or a recalibration",
                    stacklevel=2,
                )
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _is_torch_s(input: Tensor, center: Tensor, variance: Tensor, *affine: Tensor | None) -> bool:
    """Whether torch's own BatchNorm can evaluate it: it takes no gradient to its statistics, and one dtype.

    Not for ``torch.jit.trace``, which compares a graph with gradients and one without: they must be the same.
    """
    if center.requires_grad or variance.requires_grad or torch._C._get_tracing_state() is not None:
        return False
    return all(
        part is None or (part.dtype == input.dtype and part.shape == center.shape)
        for part in (center, variance, *affine)
    )


def _squared_spread_of_normal_data(power: float | None) -> float:
    """s² of standard normal values, (E|Z|^q)^(2/q). The robust spread is scaled to 1; the largest has no limit."""
    if power is None or math.isinf(power):
        return 1.0
    moment = 2 ** (power / 2) * math.gamma((power + 1) / 2) / math.sqrt(math.pi)
    return float(moment ** (2 / power))


def values_per_channel(input: Tensor, groups: Axes) -> float:
    """How many values of a channel a batch has, in all processes; inf where a traced graph cannot know."""
    if not groups.joint:
        return input.numel() // max(1, input.shape[1])
    return math.inf if torch.compiler.is_compiling() else float(groups.count(input).flatten()[0])
