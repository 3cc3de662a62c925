"""Layers with running statistics: their buffers, how these are updated, and how a torch state_dict is loaded."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..distributed import grouping
from ..functional import affine_norm
from ..functional._arguments import spread_power
from ..functional._aug import affine_of
from ..functional._guard import check_k
from ..ops import Axes, Running, Seen, can_read_values, statistics_paused
from ._base import NormLayer, along_channels


class BufferPair(NamedTuple):
    """A buffer of ours, the torch buffer it belongs to, and the copies of both from the layer's last update."""

    own: str
    source: str
    seen_own: str
    seen_source: str


CENTER = BufferPair("running_center", "running_mean", "seen_center", "seen_mean")
SCALE = BufferPair("running_scale", "running_var", "seen_scale", "seen_var")


class RunningNormLayer(NormLayer):
    """A layer that normalizes with its own groups in training and with running statistics in evaluation.

    ``running_mean`` and ``running_var`` track the plain moments; ``running_center``, only if φ is not 2, the center;
    ``running_scale``, only for spreads other than rms, the squared spread as used in training. For rms the variance
    around the removed center is running_var + (running_mean − α·running_center)², which stays right while α is learned.

    Tools made for torch write only ``running_mean`` and ``running_var``. ``seen_mean`` and ``seen_center`` are copies
    from this layer's last update. If the mean has changed since then and the center has not, the center is stale, and
    the mean is the better estimate. The same holds for scale and variance.
    """

    _version = 2  # torch's: since 2 a state_dict has num_batches_tracked

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
        """The values of each channel, over the process group in training. Evaluation never synchronizes."""
        dims = (0, *range(2, input.dim()))
        fewest = 0 if torch.compiler.is_compiling() else 2  # a compiled graph cannot take another branch
        return grouping(dims, self.process_group if self.training else None, fewest)

    def _running_buffers(self, channels: int, track: bool, factory: dict[str, Any]) -> None:
        self.track_running_stats = track
        if self.single_element == "running" and not track:
            raise ValueError("expected track_running_stats=True with single_element='running' (got False)")
        own = {"center": self.learn_phi or self.phi_start != 2, "scale": spread_power(self.spread) != 2}
        for name in ("mean", "var", "center", "scale"):
            wanted = track and own.get(name, True)
            self.register_buffer(f"running_{name}", torch.empty(channels, **factory) if wanted else None)
        for pair, wanted in ((CENTER, own["center"]), (SCALE, own["scale"])):
            for name in (pair.seen_own, pair.seen_source):
                seen = torch.empty(channels, **factory) if track and wanted else None
                self.register_buffer(name, seen, persistent=False)
        count = torch.tensor(0, dtype=torch.long, device=factory["device"]) if track else None
        self.register_buffer("num_batches_tracked", count)

    def _set_guard(self, k: float | None, device: torch.device | str | None) -> None:
        """Set the radius of the guard and its counts, which are not part of the state_dict."""
        check_k(k, "guard")
        self.guard = None if k is None else float(k)
        counts = None if k is None else torch.zeros(4, dtype=torch.long, device=device)
        self.register_buffer("guard_counts", counts, persistent=False)

    def _may_repeat(self) -> bool:
        """Batches may be counted although there are no statistics to update."""
        return self._buffers["running_mean"] is not None or self._buffers["num_batches_tracked"] is None

    def _guard_counts(self) -> Tensor | None:
        """The counts to update from this batch."""
        return self.guard_counts if self.guard is not None and self.training and not statistics_paused() else None

    def reset_running_stats(self) -> None:
        """Reset running statistics to those of standard normal data, as torch does."""
        if not self.track_running_stats:
            return
        for name, value in (("mean", 0.0), ("var", 1.0), ("center", 0.0), ("scale", 1.0)):
            for kind in ("running", "seen"):
                buffer = self._buffers[f"{kind}_{name}"]
                if buffer is not None:
                    nn.init.constant_(buffer, value)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def _absent_buffers_last(self) -> None:
        """Move buffers that are None after the others: torch.export miscounts them otherwise."""
        for name in [name for name, buffer in self._buffers.items() if buffer is None]:
            self._buffers[name] = self._buffers.pop(name)

    def reset_parameters(self) -> None:
        """Reset parameters and running statistics."""
        super().reset_parameters()
        self.reset_running_stats()

    def _uses_batch_statistics(self) -> bool:
        """Whether the input's own statistics are used: in training, and where there are no buffers."""
        return self.training or self._plain_statistics() is None

    def _plain_statistics(self) -> tuple[Tensor, Tensor] | None:
        mean, var = self._buffers["running_mean"], self._buffers["running_var"]
        if mean is None and var is None:
            return None
        if mean is None or var is None:
            there = "running_var" if mean is None else "running_mean"
            raise RuntimeError(
                f"expected running_mean and running_var, or neither (got {there} alone); set both or none"
            )
        return mean, var

    def _updates_running(self) -> bool:
        """Whether a batch updates the running statistics."""
        return self.training and self.track_running_stats and not statistics_paused()

    def _count_batch(self) -> None:
        """Count a batch without values, or without buffers to update."""
        batches = self._buffers["num_batches_tracked"]
        if batches is not None and self._updates_running():
            batches.add_(1)

    def _running(self) -> Running | None:
        """The buffers to update from this batch, and the counter."""
        if not self._updates_running():
            return None
        plain, batches = self._plain_statistics(), self._buffers["num_batches_tracked"]
        if plain is None:
            self._count_batch()
            return None
        factor: float | Tensor = self.momentum or 0.0
        if self.momentum is None and batches is not None:
            factor = 1.0 / (batches.double() + 1)
        return self._running_to_update(*plain, factor, (), batches)

    def _running_to_update(
        self, mean: Tensor, var: Tensor, factor: float | Tensor, over: tuple[int, ...], batches: Tensor | None
    ) -> Running:
        """The running statistics to update."""
        buffers = self._buffers
        center, scale = buffers["running_center"], buffers["running_scale"]
        seen = None
        if center is not None or scale is not None:
            seen = Seen(
                buffers["seen_mean"],
                buffers["seen_var"],
                buffers["seen_center"],
                buffers["seen_scale"],
                1.0 if scale is None else self._normal_scale(),
            )
        return Running(mean, var, center, scale, factor, over, batches, seen)

    def _stale(self, pair: BufferPair) -> bool | Tensor:
        """Whether another tool wrote only torch's buffer of a pair; a tensor where values cannot be read."""
        own, source, left, known = (_required(self._buffers[name]) for name in pair)
        if source.is_cpu and can_read_values(source, own):
            return not torch.equal(source, known) and torch.equal(own, left)
        return (source != known).any() & (own == left).all()

    def _current(self, pair: BufferPair) -> Tensor:
        """The running center or scale; an estimate if another tool wrote only torch's buffer."""
        own = self._buffers[pair.own]
        if own is None:
            return self._estimate(pair)
        stale = self._stale(pair)
        return own if stale is False else choose(stale, self._estimate(pair), own)

    def _estimate(self, pair: BufferPair) -> Tensor:
        """The center from the mean, the squared spread from the variance."""
        source = _required(self._buffers[pair.source])
        return source if pair is CENTER else source * self._normal_scale()

    def _normal_scale(self) -> float:
        """The squared spread of standard normal data."""
        return _squared_spread_of_normal_data(spread_power(self.spread))

    @torch.no_grad()
    def _mark_consistent(self) -> None:
        """Record that the running statistics, as they are now, are consistent."""
        buffers = self._buffers
        for pair in (CENTER, SCALE):
            for name, of in ((pair.seen_own, buffers[pair.own]), (pair.seen_source, buffers[pair.source])):
                seen = buffers[name]
                if seen is None or of is None:
                    continue
                if seen.is_meta == of.is_meta:
                    seen.copy_(of)
                else:
                    buffers[name] = of.detach().clone()

    def _evaluation(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Per channel: the value to subtract, the squared spread to divide by, γ and β.

        Copies of the buffers where there may be a backward, which a later update must not break.
        """
        mean, var = self._needed_statistics()
        alpha, removed = self._alpha(), self._current(CENTER)
        # A trace must be the same without gradients: torch checks that.
        keep = torch.is_grad_enabled() or torch._C._get_tracing_state() is not None
        if keep:
            removed = removed.clone()
        if isinstance(alpha, Tensor) or alpha != 1:
            removed = removed * alpha
        if self._buffers["running_scale"] is not None:
            scale = self._current(SCALE)
            return removed, scale.clone() if keep else scale, self.weight, self.bias
        gap = mean - removed
        return removed, torch.addcmul(var, gap, gap), self.weight, self.bias

    def _needed_statistics(self) -> tuple[Tensor, Tensor]:
        found = self._plain_statistics()
        if found is None:
            raise RuntimeError(
                f"expected running statistics in {type(self).__name__} (got None); construct it with "
                "track_running_stats=True, or set running_mean and running_var"
            )
        return found

    def _evaluate(self, input: Tensor, element_weight: Tensor | None = None) -> Tensor:
        """The input normalized with the running statistics; 0 for elements of weight 0, as in training."""
        if element_weight is not None:  # where() before and after: ignored elements may be NaN
            counts = element_weight > 0
            return torch.where(counts, self._evaluate(torch.where(counts, input, 0.0)), 0.0)
        center, variance, gamma, beta = self._evaluation()
        if _torch_can_evaluate(input, center, variance, gamma, beta):
            return torch.batch_norm(input, gamma, beta, center, variance, False, 0.0, self.eps, False)
        parts = [along_channels(part, input) for part in (gamma, beta)]
        center, variance = along_channels(center, input), along_channels(variance, input)
        return affine_norm(input, center, variance, weight=parts[0], bias=parts[1], eps=self.eps)

    def evaluation_affine(self) -> tuple[Tensor, Tensor]:
        """Evaluation is affine: scale and offset per channel, y = scale · x + offset."""
        return affine_of(*self._evaluation(), self.eps)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, metadata: Any, *rest: Any) -> None:
        """Also load the state_dict of a torch BatchNorm or InstanceNorm: the center starts at the mean."""
        mean, var = (state_dict.get(prefix + name) for name in ("running_mean", "running_var"))
        if self.running_center is None:  # the center is the mean
            state_dict.pop(prefix + "running_center", None)
        elif mean is not None:
            state_dict.setdefault(prefix + "running_center", mean.clone())
        if var is not None and self.running_scale is not None and prefix + "running_scale" not in state_dict:
            state_dict[prefix + "running_scale"] = var * self._normal_scale()
            if self.spread not in ("robust", "mean_abs"):
                warnings.warn(
                    f"running_scale of spread={self.spread!r} cannot be computed from a state_dict's running_var; it "
                    "was estimated for normal data and will be right after some training batches or a recalibration",
                    stacklevel=2,
                )
        batches = self.num_batches_tracked
        if batches is not None and (metadata.get("version") or 1) < 2:
            now = torch.zeros_like(batches, device="cpu") if batches.is_meta else batches.clone()
            state_dict.setdefault(prefix + "num_batches_tracked", now)
        super()._load_from_state_dict(state_dict, prefix, metadata, *rest)
        if mean is not None or var is not None:
            self._mark_consistent()


def choose(stale: bool | Tensor, estimate: Tensor, own: Tensor) -> Tensor:
    """The estimate where our own value is stale."""
    if isinstance(stale, Tensor):
        return torch.where(stale, estimate, own)
    return estimate if stale else own


def _required(buffer: Tensor | None) -> Tensor:
    assert buffer is not None
    return buffer


def _torch_can_evaluate(input: Tensor, center: Tensor, variance: Tensor, *affine: Tensor | None) -> bool:
    """Whether torch's BatchNorm can evaluate this: it has no gradient for its statistics, and needs one dtype.

    False for ``torch.jit.trace``, which requires the same graph with and without gradients.
    """
    if center.requires_grad or variance.requires_grad or torch._C._get_tracing_state() is not None:
        return False
    if not torch.compiler.is_compiling():  # a transform may need a gradient although requires_grad is False
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor
        if wrapped(center) or wrapped(variance):
            return False
    dtype, shape = input.dtype, center.shape
    for part in (center, variance, *affine):
        if part is not None and (part.dtype != dtype or part.shape != shape):
            return False
    return True


def _squared_spread_of_normal_data(power: float | None) -> float:
    """s² of standard normal values, (E|Z|^q)^(2/q). The robust spread is scaled to 1; max_abs has no limit, so 1."""
    if power is None or math.isinf(power):
        return 1.0
    moment = 2 ** (power / 2) * math.gamma((power + 1) / 2) / math.sqrt(math.pi)
    return float(moment ** (2 / power))


def values_per_channel(input: Tensor, groups: Axes) -> float:
    """How many values per channel a batch has; inf over several processes, which raise if there are too few."""
    return math.inf if groups.joint else input.numel() // max(1, input.shape[1])
