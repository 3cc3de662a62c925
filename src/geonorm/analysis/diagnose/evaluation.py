"""Evaluation against training: does a network give the same outputs with running statistics as with batch statistics?

Three outputs for the same samples are compared: in evaluation, with the network unchanged; with the statistics of each
batch, as in training; and in evaluation after a copy was recalibrated on these samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...introspect.layouts import is_frozen, keeps_statistics
from ...introspect.observe import Forward, copy_of, input_of
from ...introspect.progress import without_bars
from ...robust.accuracy import Accuracy
from ...surgery.recalibrate import recalibrate
from ..behaviour import Change, accuracy, answers, compare
from ..readings import NormReading, Readings

# Above these, a closer look is worth a few more passes.
_SUSPICIOUS_SHARE, _SUSPICIOUS_MOVE, _SUSPICIOUS_LAYER = 0.02, 0.1, 0.5


@dataclass
class Evaluation:
    """A network in evaluation compared with itself in training.

    Attributes:
        agreement: change of the outputs from evaluation to batch statistics; ``None`` if there is nothing to compare.
        gap: change of the outputs in evaluation after recalibration; ``None`` if that was not needed.
        cured: change from the recalibrated evaluation to batch statistics.
        noise: how far statistics from so few samples move the outputs: half the change between two halves of the
            samples. Share of predictions, and movement.
        now, then: accuracy in evaluation before and after recalibration; ``None`` without labels.
        local: for each norm, how far its output in evaluation is from its output in training on the same input: rms
            over channels, in units of γ.
        passes: how often the batches went through the model.
    """

    agreement: Change | None = None
    gap: Change | None = None
    cured: Change | None = None
    noise: tuple[float, float] = (0.0, 0.0)
    now: Accuracy | None = None
    then: Accuracy | None = None
    local: dict[str, float] = field(default_factory=dict)
    passes: int = 0

    def harm(self) -> float:
        """The share of outputs that stale statistics spoil, beyond what noise explains; 0 if that is unknown."""
        if self.gap is None:
            return 0.0
        share, moved = self.noise
        if self.now is not None and self.then is not None and self.then.share > self.now.share:
            lost = self.then.share - self.now.share
            if lost > max(0.03, self.now.high - self.now.share):
                return lost
        if self.gap.moved < max(0.25, 2 * moved):
            return 0.0
        if self.gap.predictions is None:
            return min(1.0, self.gap.moved / 2)
        return self.gap.predictions.share if self.gap.predictions.low > max(0.05, 2 * share) else 0.0


def evaluate(model: nn.Module, batches: Sequence[Any], forward: Forward | None, readings: Readings) -> Evaluation:
    """Compare evaluation with training; the model is not changed."""
    found = Evaluation()
    tracked = {name: r for name, r in readings.norms.items() if r.calls and keeps_statistics(r.norm)}
    if not tracked or readings.failure or not any(answer is not None for answer in readings.answers):
        return found
    found.local = {name: mismatch(reading) for name, reading in tracked.items()}
    twin = copy_of(model).eval()
    as_is = answers(twin, batches, forward)
    found.passes = 1
    found.agreement = compare(as_is, readings.answers)
    found.now = accuracy(as_is, batches)
    if found.agreement is None or not _is_suspicious(found):
        return found
    recalibrated = _recalibrated_answers(twin, batches, batches, forward)
    found.passes += 2
    found.gap, found.cured = compare(as_is, recalibrated), compare(recalibrated, readings.answers)
    found.then = accuracy(recalibrated, batches)
    halves = _halves(batches)
    if halves is not None:
        one, other = (_recalibrated_answers(twin, half, batches, forward) for half in halves)
        found.passes += 3
        between = compare(one, other)
        if between is not None:  # two estimates from half of the samples each: twice the noise of all samples
            share = 0.0 if between.predictions is None else between.predictions.share
            found.noise = share / 2, between.moved / 2
    return found


def mismatch(reading: NormReading) -> float:
    """How far a norm's output in evaluation is from its output in training, on the same input."""
    norm: Any = reading.norm
    if reading.axes != "batch" or not reading.moments.batches or is_frozen(norm):
        return 0.0
    mean, var = norm.running_mean.detach().double().cpu(), norm.running_var.detach().double().cpu()
    if not bool(mean.isfinite().all() and var.isfinite().all()):
        return math.inf
    seen = reading.moments
    divisor = (var.clamp_min(0) + norm.eps).sqrt()
    shift = (seen.mean - mean) / divisor
    ratio = (seen.var + norm.eps).sqrt() / divisor
    return float((shift.square() + (ratio - 1).square()).mean().sqrt())


def _is_suspicious(found: Evaluation) -> bool:
    assert found.agreement is not None
    changed = found.agreement.predictions
    if changed is not None and changed.share > _SUSPICIOUS_SHARE:
        return True
    return found.agreement.moved > _SUSPICIOUS_MOVE or max(found.local.values()) > _SUSPICIOUS_LAYER


def _recalibrated_answers(
    twin: nn.Module, measured: Sequence[Any], asked: Sequence[Any], forward: Forward | None
) -> list[Tensor | None]:
    """Outputs in evaluation for the batches ``asked``, of a copy recalibrated on the batches ``measured``."""
    copied = copy_of(twin)
    with without_bars():
        recalibrate(copied, [batch for batch in measured if not _is_single(batch)] or measured, forward)
    return answers(copied.eval(), asked, forward)


def _is_single(batch: Any) -> bool:
    """Whether a batch is one sample, which has no statistics of its own."""
    x = input_of(batch)
    return isinstance(x, Tensor) and x.dim() > 0 and len(x) == 1


def _halves(batches: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
    """Two halves of the samples; ``None`` if there are too few to estimate the noise."""
    if len(batches) >= 2:
        return list(batches[::2]), list(batches[1::2])
    x = input_of(batches[0])
    if isinstance(x, Tensor) and x.dim() and len(x) >= 8 and isinstance(batches[0], (Tensor, tuple, list)):
        whole = batches[0]
        if isinstance(whole, Tensor):
            return [whole[::2]], [whole[1::2]]
        if all(isinstance(entry, Tensor) and entry.dim() and len(entry) == len(x) for entry in whole):
            return [tuple(e[::2] for e in whole)], [tuple(e[1::2] for e in whole)]
    return None


def answers_with_one_recalibrated(
    model: nn.Module, name: str, batches: Sequence[Any], forward: Forward | None
) -> list[Tensor | None]:
    """Outputs in evaluation of a copy of the model in which only one norm is recalibrated."""
    copied = copy_of(model)
    with without_bars(), torch.no_grad():
        recalibrate(copied, batches, forward, where=lambda other, _: other == name)
    return answers(copied.eval(), batches, forward)
