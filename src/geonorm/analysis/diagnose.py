"""``diagnose``: the cheap diagnostics on any model, and what they mean."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..surgery.layouts import keeps_statistics
from .batch_width import BatchWidth, batch_width
from .data_faults import data_faults
from .finding import SEVERITIES, Finding, by_severity
from .observe import Forward, check_readable, filled_batches
from .readings import read
from .result import Result, figure
from .sphere import Sphere, spheres_in
from .standing_faults import standing_faults
from .survival import Survival, survival

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_BATCHES = 16


@dataclass
class Overview:
    """One norm in a line.

    Attributes:
        name: its name in the model.
        kind: its class.
        channels: how many; ``None`` if it does not say.
        operation: name of the operation whose output it takes, where that is known.
        calls: how often it ran.
        tracked: whether it keeps running statistics.
        findings: how many findings are about it, or about that operation.
        worst: the highest severity among them; empty if there are none.
    """

    name: str
    kind: str
    channels: int | None
    operation: str | None
    calls: int
    tracked: bool
    findings: int
    worst: str


@dataclass
class Diagnosis(Result):
    """What ``diagnose`` found.

    Attributes:
        findings: what is wrong or worth knowing, the most severe first.
        layers: the norms, each in a line.
        sphere, batch_width, survival: the diagnostics it rests on; ``None`` where one could not be taken.
        missing: diagnostics that could not be taken, with the reason.
        model: class of the model.
        samples: how many samples were looked at.
        synthetic: whether the inputs were made up.
    """

    findings: list[Finding]
    layers: list[Overview]
    sphere: Sphere | None
    batch_width: BatchWidth | None
    survival: Survival | None
    missing: dict[str, str]
    model: str
    samples: int
    synthetic: bool

    def alarms(self) -> list[Finding]:
        """Errors and warnings: what a healthy network does not have."""
        return [finding for finding in self.findings if finding.severity != "note"]

    def counts(self) -> dict[str, int]:
        """How many findings of each severity."""
        return {severity: sum(f.severity == severity for f in self.findings) for severity in SEVERITIES}

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("severity", "layer", "fault", "evidence")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each finding."""
        return [(f.severity, f.layer, f.kind, f.evidence) for f in self.findings]

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {severity}{'s' * (number != 1)}" for severity, number in self.counts().items())
        made_up = " of random numbers" if self.synthetic else ""
        norms = f"{len(self.layers)} norm{'s' * (len(self.layers) != 1)}"
        lines = [f"{self.model}, {norms}, {self.samples} samples{made_up}: {counts}"]
        if not self.findings:
            lines += ["", "Healthy: nothing was found." if self.layers else "It has no norms; nothing else was found."]
        for f in self.findings:
            lines += ["", f"{f.severity.upper()}  {f.layer}: {f.kind}", f"  {f.what}."]
            lines += [f"  Seen by: {f.evidence}.", f"  What to do: {f.advice}."]
        lines += ["", *[f"* {name} was not taken: {reason}" for name, reason in self.missing.items()]]
        return "\n".join(lines).rstrip()

    def plot(self) -> Figure:
        """How many findings each layer has, by severity."""
        drawn = figure(7.0, 1.0 + 0.25 * max(len(self.layers), 4))
        axes = drawn.subplots()
        names = list(dict.fromkeys([*[layer.name for layer in self.layers], *[f.layer for f in self.findings]]))
        left = [0] * len(names)
        for severity, color in zip(SEVERITIES, ("tab:red", "tab:orange", "tab:blue"), strict=True):
            numbers = [sum(f.layer == name and f.severity == severity for f in self.findings) for name in names]
            axes.barh(range(len(names)), numbers, left=left, color=color, label=severity)
            left = [a + b for a, b in zip(left, numbers, strict=True)]
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.legend(loc="best")
        return drawn

    def to_html(self, path: str | Path) -> Path:
        """Write one self-contained page, and return its path."""
        from .page import page

        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(self), encoding="utf-8")
        return path


def diagnose(model: nn.Module, batches: Any, forward: Forward | None = None, *, synthetic: bool = False) -> Diagnosis:
    """What normalization does in a network, and whether it is healthy.

    Looks at parameters, buffers and settings, then lets the batches pass three times: as ``sphere``, ``batch_width``
    and ``survival`` do; ``batch_width`` also takes a spectrum for each operation, once. Each finding says what is
    wrong, in which layer, by which evidence, and what to do. Norms measure each batch as in training; everything else
    is in evaluation. The model is not changed.

    Args:
        model: any model, in the mode it is used in: a norm in evaluation inside a model in training is a finding.
        batches: a batch or an iterable of batches, of which the first 16 are used. Batches of the size and the kind
            that the model is trained with tell most; from 16 samples on, stale statistics are told from noise.
        forward: how to call the model on a batch, ``forward(model, batch)``, where its first entry is not enough.
        synthetic: the inputs are made up: leave out what depends on the data (stale statistics, dead channels,
            outliers).

    Examples:
        >>> import torch
        >>> from geonorm.analysis import diagnose
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6, momentum=0.0))
        >>> for finding in diagnose(model, torch.randn(32, 4)).findings:
        ...     print(finding.severity, finding.layer, finding.what)
        warning 1 momentum is 0: the running statistics never follow the data
        note 0 its bias is removed by 1, which subtracts the center: it gets no gradient and costs memory
    """
    with torch.inference_mode(False):  # within it nothing can be differentiated, which survival needs
        return _diagnose(model, batches, forward, synthetic)


def _diagnose(model: nn.Module, batches: Any, forward: Forward | None, synthetic: bool) -> Diagnosis:
    check_readable(model, "diagnose")
    kept = [_ordinary(batch) for batch in itertools.islice(filled_batches(batches), _MOST_BATCHES)]
    readings = read(model, kept, forward, strict=False)
    missing: dict[str, str] = {}
    widths = lasting = None
    if readings.failure:
        missing = dict.fromkeys(("batch_width", "survival"), readings.failure)
    else:
        widths = _attempt(batch_width, model, kept, forward, missing)
        lasting = _attempt(survival, model, kept, forward, missing)
    findings = [*standing_faults(model, readings.graph), *data_faults(readings, widths, synthetic)]
    layers = []
    for name, reading in readings.norms.items():
        norm: Any = reading.norm
        near = readings.graph.norms.get(name)
        operation = None if near is None else near.before
        own = [f for f in findings if f.layer in (reading.name, operation)]
        layers.append(
            Overview(
                reading.name,
                type(norm).__name__,
                getattr(norm, "num_features", getattr(norm, "num_channels", None)),
                operation,
                reading.calls,
                keeps_statistics(norm),
                len(own),
                by_severity(own)[0].severity if own else "",
            )
        )
    return Diagnosis(
        by_severity(findings),
        layers,
        spheres_in(readings),
        widths,
        lasting,
        missing,
        type(model).__name__,
        readings.samples,
        synthetic,
    )


def _ordinary(batch: Any) -> Any:
    """A batch whose tensors may take part in anything, also if they were made in inference mode."""
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) and leaf.is_inference() else leaf, batch)


def _attempt(
    function: Any, model: nn.Module, batches: list[Any], forward: Forward | None, missing: dict[str, str]
) -> Any:
    """A diagnostic; or ``None``, and in ``missing`` the reason why: the others are still worth having."""
    try:
        return function(model, batches, forward)
    except (RuntimeError, ValueError) as error:
        missing[function.__name__] = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        return None
