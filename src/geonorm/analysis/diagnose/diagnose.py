"""``diagnose``: what normalization does in a network, whether it is healthy, and what to do if it is not."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ...introspect.layouts import keeps_statistics
from ...introspect.observe import Forward, check_readable, filled_batches, random_state_restored
from ..activation_effect import activation_effect
from ..batch_width import batch_width
from ..readings import Readings
from ..sphere import spheres_in
from ..watch import read
from .checks import detectable_faults, findings
from .common_causes import group_by_cause
from .diagnosis import Diagnosis, Histogram, Overview
from .evaluation import Evaluation, evaluate
from .finding import Finding, by_harm
from .fixes import fixed_copy
from .observations import Observations

_MOST_BATCHES = 16


def diagnose(
    model: nn.Module,
    batches: Any,
    forward: Forward | None = None,
    *,
    synthetic: bool = False,
    lr: float | None = None,
    fix: bool = False,
) -> Diagnosis:
    """What normalization does in a network, whether it is healthy, and what to do if it is not.

    Looks at parameters, buffers and settings, and runs the batches: once with the statistics of each batch, once in
    evaluation, and once each for ``batch_width`` and ``activation_effect``. Where evaluation and training disagree,
    copies are recalibrated to see what that changes; ``passes`` counts all of it. A finding says what is wrong, where,
    the evidence for it, and what to do; consequences of another finding are listed under it. The model is not changed.

    Args:
        model: any model, in the mode it is used in: a norm in evaluation inside a model in training is a finding.
        batches: a batch or an iterable of batches, of which the first 16 are used. Batches of the size and the kind
            that the model is trained with tell most; with labels, ``(input, labels)``, accuracy is reported too. It
            takes 16 samples to distinguish stale statistics from noise, and 3 batches to notice sorted ones.
        forward: how to call the model on a batch, ``forward(model, batch)``, if it needs more than the first entry.
        synthetic: the inputs are random: skip the checks that depend on the data.
        lr: the learning rate of the training, to find weights that have grown too large for it.
        fix: apply the safe fixes to a copy and diagnose that too: ``fixed`` is the copy, ``after`` its diagnosis, and
            ``done`` lists what was changed.

    Examples:
        >>> import torch
        >>> from geonorm.analysis import diagnose
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6, momentum=0.0))
        >>> for finding in diagnose(model, torch.randn(32, 4)).findings:
        ...     print(finding.severity, finding.layer, finding.what)
        warning 1 momentum is 0: the running statistics never follow the data
        note 0 its bias has no effect, because the norm after it subtracts the mean; it only costs memory
    """
    check_readable(model, "diagnose")
    # activation_effect needs gradients, which inference mode does not allow.
    with torch.inference_mode(False), random_state_restored(model):
        kept = [_without_inference_tensors(batch) for batch in itertools.islice(filled_batches(batches), _MOST_BATCHES)]
        found = _diagnose(model, kept, forward, synthetic, lr)
        if fix:
            found.fixed, found.done, fitting = fixed_copy(model, found.findings, kept, forward)
            found.after = _diagnose(found.fixed, fitting, forward, synthetic, lr)
        return found


def _diagnose(
    model: nn.Module, batches: list[Any], forward: Forward | None, synthetic: bool, lr: float | None
) -> Diagnosis:
    readings = read(model, batches, forward, strict=False, spheres_once=True)
    missing: dict[str, str] = {}
    widths = effect = None
    evaluation = Evaluation()
    if readings.failure:
        missing = dict.fromkeys(("evaluation", "batch_width", "activation_effect"), readings.failure)
    else:
        widths = _run_or_note_error(batch_width, missing, model, batches, forward)
        effect = _run_or_note_error(activation_effect, missing, model, batches, forward)
        evaluation = _run_or_note_error(evaluate, missing, model, batches, forward, readings) or evaluation
    observed = Observations(model, batches, forward, readings, evaluation, widths, effect, synthetic, lr)
    before = {name: near.before for name, near in readings.graph.norms.items() if near.before}
    causes = group_by_cause(findings(observed), before, list(observed.modules))
    return Diagnosis(
        causes,
        _overview(readings, causes),
        evaluation,
        spheres_in(readings),
        widths,
        effect,
        missing,
        detectable_faults(synthetic),
        type(model).__name__,
        readings.samples,
        1 + (widths is not None) + (effect is not None) + evaluation.passes,
        synthetic,
    )


def _overview(readings: Readings, causes: Sequence[Finding]) -> list[Overview]:
    layers = []
    for name, reading in readings.norms.items():
        norm: Any = reading.norm
        near = readings.graph.norms.get(name)
        operation = None if near is None else near.before
        own = [f for f in causes if {reading.name, operation} & {f.layer, *f.layers}]
        layers.append(
            Overview(
                reading.name,
                type(norm).__name__,
                getattr(norm, "num_features", getattr(norm, "num_channels", None)),
                operation,
                reading.calls,
                keeps_statistics(norm),
                len(own),
                by_harm(own)[0].severity if own else "",
                Histogram.of(reading.sample),
                Histogram.of(getattr(norm, "weight", None)),
            )
        )
    return layers


def _without_inference_tensors(batch: Any) -> Any:
    """The batch with copies of tensors made in inference mode, which autograd refuses."""
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) and leaf.is_inference() else leaf, batch)


def _run_or_note_error(function: Any, missing: dict[str, str], *args: Any) -> Any:
    """The result of a diagnostic; if it fails, ``None``, and the error goes into ``missing``: the others still run."""
    name = {"evaluate": "evaluation"}.get(function.__name__, function.__name__)
    try:
        return function(*args)
    except (RuntimeError, ValueError, TypeError) as error:
        missing[name] = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        return None
