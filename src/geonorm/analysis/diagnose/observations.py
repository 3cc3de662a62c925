"""Everything that the checks read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ...introspect.layouts import keeps_statistics
from ...introspect.observe import Forward
from ..activation_effect import ActivationEffect
from ..batch_width import BatchWidth
from ..readings import NormReading, Readings
from .evaluation import Evaluation

# With fewer samples, stale statistics and dead channels may be chance.
FEW_SAMPLES = 16


@dataclass
class Observations:
    """A model, the batches, and the measurements.

    Attributes:
        model: the model, unchanged.
        batches: the batches that were run.
        forward: how to call the model on a batch.
        readings: measurements of one pass with the statistics of each batch.
        evaluation: outputs in evaluation compared with outputs in training.
        widths, activation_effect: these diagnostics; ``None`` if one failed.
        synthetic: the inputs are random: checks that depend on the data are skipped.
        lr: the learning rate of the training, if known.
    """

    model: nn.Module
    batches: Sequence[Any]
    forward: Forward | None
    readings: Readings
    evaluation: Evaluation
    widths: BatchWidth | None
    activation_effect: ActivationEffect | None
    synthetic: bool
    lr: float | None

    @cached_property
    def modules(self) -> dict[str, nn.Module]:
        """All modules by name."""
        return dict(self.model.named_modules())

    @property
    def has_data(self) -> bool:
        """Whether there are enough real samples to judge the data."""
        return not self.synthetic and self.readings.samples >= FEW_SAMPLES and not self.readings.bad_data

    @cached_property
    def ran(self) -> list[NormReading]:
        """The norms that ran and could be read, in the order of the model."""
        return [r for r in self.readings.norms.values() if r.calls and not r.bad and not r.unread]

    @cached_property
    def is_trained(self) -> bool:
        """Whether γ or β of some norm have left their initial values."""
        return any(affine_moved(reading.norm) for reading in self.readings.norms.values())


def affine_moved(norm: Any) -> bool:
    """Whether γ or β have left their initial values: γ all 1, or all 0 as in residual branches, and β all 0."""
    gamma, beta = getattr(norm, "weight", None), getattr(norm, "bias", None)
    if isinstance(gamma, Tensor) and gamma.dim() == 1 and gamma.is_floating_point() and gamma.numel():
        gamma = gamma.detach()
        if float((gamma - gamma[0]).abs().max()) > 1e-6:
            return True
    return isinstance(beta, Tensor) and bool((beta.detach().abs() > 1e-6).any())


def never_measured(norm: Any) -> bool:
    """Whether the running statistics still have their initial values."""
    if not keeps_statistics(norm):
        return False
    return bool((norm.running_mean == 0).all()) and bool((norm.running_var == 1).all())


def gamma_of(norm: Any) -> Tensor | None:
    """|γ| in float64 on the CPU; ``None`` if there is none, or if it is not finite."""
    gamma = getattr(norm, "weight", None)
    if not isinstance(gamma, Tensor) or not gamma.numel() or not gamma.is_floating_point():
        return None
    gamma = gamma.detach().double().cpu().abs().flatten()
    return gamma if bool(torch.isfinite(gamma).all()) else None
