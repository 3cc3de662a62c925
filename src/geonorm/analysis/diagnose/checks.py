"""Every check, and how small a fault it would notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from . import channels, data, norm_order, settings, signal, statistics, values, weights
from .finding import Finding
from .observations import FEW_SAMPLES, Observations


class Check(NamedTuple):
    """One check.

    Attributes:
        find: returns the findings.
        notices: what it would have noticed, listed for a healthy network.
        needs_data: whether it is meaningless on random inputs.
    """

    find: Callable[[Observations], Iterator[Finding]]
    notices: str
    needs_data: bool = False


# The most common faults first.
CHECKS = (
    Check(statistics.stale, "statistics that change 5 % of the predictions, or a mean off by 1 σ", True),
    Check(settings.lost_statistics, "running statistics at their start in a model that is used or trained"),
    Check(channels.collapsed, "γ below 0.001 of the largest, or a variance below eps"),
    Check(channels.dead, f"channels that are 0 after a ReLU for all samples (from {FEW_SAMPLES} samples)", True),
    Check(statistics.eps, "an eps that is a tenth of the divisor"),
    Check(statistics.too_few_values, f"up to {statistics.FEW_VALUES} values per channel"),
    Check(channels.exploded_gamma, f"|γ| above {channels.LARGE:g}"),
    Check(signal.saturated, f"sigmoid or tanh flat for {100 * signal.FLAT_SHARE:.0f} % of the values", True),
    Check(data.outliers, "samples that are outliers in most channels", True),
    Check(norm_order.wrong_axis, "a norm over a different axis than the channels of the layer before it"),
    Check(values.failure, "errors while the model runs"),
    Check(values.bad_data, "NaN or Inf in the batches"),
    Check(values.bad_values, "NaN or Inf in a parameter or buffer, a negative running variance"),
    Check(values.bad_activations, "NaN or Inf in activations, and whether float16 is the cause"),
    Check(settings.momentum, f"momentum below {settings.SLOW:g} or above {settings.FAST:g}"),
    Check(settings.modes, "a norm in evaluation inside a model in training"),
    Check(settings.frozen_parameters, "frozen γ and β with statistics that still change"),
    Check(settings.not_synced, f"up to {settings.FEW_VALUES} values per channel in each of several processes"),
    Check(settings.few_features, "a LayerNorm over one value"),
    Check(channels.exploded_activations, f"activations {channels.LOUD:g} times as large as the input", True),
    Check(
        channels.silent_branches, "residual branches below 0.0001 of the stream they are added to, in a trained network"
    ),
    Check(signal.one_feature, f"one feature with {100 * signal.MOST_ENERGY:.0f} % of a LayerNorm's variance", True),
    Check(norm_order.norm_after_norm, "a norm right after another"),
    Check(norm_order.on_the_logits, "a norm on the logits"),
    Check(norm_order.shared, "a norm with running statistics in several places"),
    Check(norm_order.dropout, "dropout that raises a running variance by a tenth"),
    Check(norm_order.unused_norms, "norms that never ran"),
    Check(data.not_normalized, f"inputs with rms above {data.WIDE:g}, or features {data.UNLIKE:g} times apart", True),
    Check(data.padding, f"padding in {100 * data.PADDED:.0f} % of the positions of a batch norm", True),
    Check(data.sorted_batches, "batches sorted by class (from 3 batches)", True),
    Check(weights.redundant_bias, "biases that a norm subtracts again"),
    Check(weights.duplicates, "rows of weights that are parallel"),
    Check(weights.sizes, f"rows of weights longer than {weights.HUGE:g} or shorter than {weights.TINY:g}"),
)


def findings(observed: Observations) -> Iterator[Finding]:
    """The findings of all checks, in their order."""
    for check in CHECKS:
        yield from check.find(observed)


def detectable_faults(synthetic: bool) -> list[str]:
    """The faults that the checks would have noticed."""
    return [check.notices for check in CHECKS if not (synthetic and check.needs_data)]
