"""The result of ``diagnose``: as text, as a page, as plain values."""

from __future__ import annotations

import shutil
import sys
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ...html import notebook
from ...html.result import Result, figure, plain
from ...html.text import visible
from ..activation_effect import ActivationEffect
from ..batch_width import BatchWidth
from ..behaviour import percent
from ..sphere import Sphere
from .evaluation import Evaluation
from .finding import SEVERITIES, Finding, layer_list

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_LISTED = 10  # of the faults that would have been noticed
_COLORS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1;34m", "good": "\x1b[1;32m"}


@dataclass
class Overview:
    """One norm, in one line.

    Attributes:
        name: its name in the model.
        kind: its class.
        channels: number of channels; ``None`` if unknown.
        operation: name of the operation before it, if known.
        calls: how often it ran.
        tracked: whether it keeps running statistics.
        findings: number of findings about it or about that operation.
        worst: the highest severity among them; empty if there are none.
        input: histogram of its input.
        gamma: histogram of γ; ``None`` without γ.
    """

    name: str
    kind: str
    channels: int | None
    operation: str | None
    calls: int
    tracked: bool
    findings: int
    worst: str
    input: Histogram | None = None
    gamma: Histogram | None = None


@dataclass
class Histogram:
    """Counts of values in bins of equal width from the lowest to the highest."""

    low: float
    high: float
    counts: list[int]

    @staticmethod
    def of(values: Tensor | None, steps: int = 32) -> Histogram | None:
        """Histogram of the finite values; ``None`` if there are none, or if all are equal."""
        if values is None:
            return None
        values = values.detach().flatten().float().cpu()
        values = values[values.isfinite()]
        if len(values) < 2 or float(values.min()) == float(values.max()):
            return None
        low, high = float(values.min()), float(values.max())
        return Histogram(low, high, [int(n) for n in values.histc(steps, low, high)])


@dataclass(repr=False)
class Diagnosis(Result):
    """What ``diagnose`` found.

    Attributes:
        findings: faults and notes, one for each root cause, the most severe and harmful first.
        layers: the norms, one line each.
        evaluation: outputs in evaluation compared with outputs in training.
        sphere, batch_width, activation_effect: the underlying diagnostics; ``None`` if one failed.
        missing: diagnostics that failed, with the reason.
        noticed: the faults that the checks would have noticed.
        model: class of the model.
        samples: number of samples.
        passes: how often the batches went through the model.
        synthetic: whether the inputs were random.
        done: with ``fix=True``, the changes made to the copy.
        after: with ``fix=True``, the diagnosis of the copy.
        fixed: with ``fix=True``, the copy.
    """

    findings: list[Finding]
    layers: list[Overview]
    evaluation: Evaluation
    sphere: Sphere | None
    batch_width: BatchWidth | None
    activation_effect: ActivationEffect | None
    missing: dict[str, str]
    noticed: list[str]
    model: str
    samples: int
    passes: int
    synthetic: bool
    done: list[str] = field(default_factory=list)
    after: Diagnosis | None = None
    fixed: nn.Module | None = field(default=None, repr=False)

    @property
    def survival(self) -> ActivationEffect | None:
        """The old name of ``activation_effect``, until 0.3."""
        message = "Diagnosis.survival is now Diagnosis.activation_effect; survival will be removed in 0.3"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return self.activation_effect

    def alarms(self) -> list[Finding]:
        """Errors and warnings; a healthy network has none."""
        return [finding for finding in self.findings if finding.severity != "note"]

    def counts(self) -> dict[str, int]:
        """Number of findings of each severity."""
        return {severity: sum(f.severity == severity for f in self.findings) for severity in SEVERITIES}

    def head(self) -> Sequence[str]:
        """Names of the columns."""
        return ("severity", "layer", "fault", "evidence")

    def rows(self) -> Sequence[Sequence[Any]]:
        """A row for each finding."""
        return [(f.severity, f.layer, f.kind, f.evidence) for f in self.findings]

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain Python values, ready for JSON; without the copy of the model."""
        shown = {name: value for name, value in vars(self).items() if name not in ("fixed", "after")}
        found = {name: plain(value) for name, value in shown.items()}
        return {**found, "after": None if self.after is None else self.after.to_dict()}

    def __str__(self) -> str:
        return self.text()

    def headline(self) -> str:
        """The model, the data, and the number of findings."""
        counts = ", ".join(f"{number} {severity}{'s' * (number != 1)}" for severity, number in self.counts().items())
        made_up = " of random numbers" if self.synthetic else ""
        norms = f"{len(self.layers)} norm{'s' * (len(self.layers) != 1)}"
        return f"{self.model}, {norms}, {self.samples} samples{made_up}: {counts}"

    def text(self, width: int | None = None, color: bool = False) -> str:
        """The findings as text, wrapped to a width (that of the terminal, or 100), in colour if requested."""
        width = width or _terminal_width()
        write = _Writer(width, color)
        write.line(self.headline())
        agreement = self.agreement()
        if agreement:
            write.line(agreement)
        if not self.alarms():
            write.healthy(self)
        for finding in self.findings:
            write.finding(finding)
        if self.after is not None:
            write.fixed(self)
        if self.missing:
            write.line("")
        for name, reason in self.missing.items():
            write.line(f"* {name} failed: {reason}")
        return visible("\n".join(write.lines).rstrip())

    def _repr_html_(self) -> str:
        """The findings, for a notebook."""
        verdict = "" if self.alarms() else notebook.paragraph("Healthy: no fault was found.", "good")
        cards = [
            f'<p><b class="{f.severity}">{escape(f.severity.upper())}</b> <b>{escape(f"{f.layer}: {f.kind}")}</b><br>'
            f"{escape(f'{f.what[:1].upper()}{f.what[1:]}')}.<br>"
            f'<span class="soft">Evidence: {escape(f.evidence)}.</span><br>What to do: {escape(f.advice)}.</p>'
            for f in self.findings
        ]
        fixed = [f"Fixed in a copy: {'; '.join(self.done)}."] if self.done else []
        after = [] if self.after is None else [f"The copy: {self.after.headline()}"]
        head = [notebook.paragraph(text) for text in (self.headline(), self.agreement()) if text]
        return notebook.frame([*head, verdict, *cards, *[notebook.paragraph(text) for text in (*fixed, *after)]])

    def agreement(self) -> str:
        """One sentence on how far evaluation and training agree; empty if there is nothing to compare."""
        found = self.evaluation.agreement
        if found is None or self.synthetic:
            return ""
        sentence = (
            f"Evaluation and training agree on {percent(1 - found.predictions.share)} of the samples"
            if (found.predictions is not None)
            else f"Outputs in evaluation and in training differ by {percent(found.moved)} of their spread"
        )
        now = self.evaluation.now
        return sentence + ("." if now is None else f"; accuracy in evaluation {percent(now.share)}.")

    def plot(self) -> Figure:
        """Number of findings of each layer, by severity."""
        drawn = figure(7.0, 1.0 + 0.25 * max(len(self.layers), 4))
        axes = drawn.subplots()
        named = list(dict.fromkeys([*[layer.name for layer in self.layers], *[f.layer for f in self.findings]]))
        left = [0] * len(named)
        for severity, color in zip(SEVERITIES, ("tab:red", "tab:orange", "tab:blue"), strict=True):
            numbers = [sum(f.layer == name and f.severity == severity for f in self.findings) for name in named]
            axes.barh(range(len(named)), numbers, left=left, color=color, label=severity)
            left = [a + b for a, b in zip(left, numbers, strict=True)]
        axes.set_yticks(range(len(named)), named)
        axes.invert_yaxis()
        axes.legend(loc="best")
        return drawn

    def to_html(self, path: str | Path) -> Path:
        """Write one self-contained page, and return its path."""
        from ...html.whole import write_whole
        from .page import page

        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, page(self))
        return path


def _terminal_width() -> int:
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return max(40, min(shutil.get_terminal_size().columns, 120)) if is_terminal else 100


class _Writer:
    """Writes a diagnosis line by line."""

    def __init__(self, width: int, color: bool) -> None:
        self.width, self.color = width, color
        self.lines: list[str] = []

    def line(self, text: str, indent: int = 0) -> None:
        """Add a sentence, wrapped between words."""
        space = " " * indent
        wrapped = textwrap.wrap(
            text.replace(" %", "\u00a0%"),  # a line does not begin with %
            self.width,
            initial_indent=space,
            subsequent_indent=space,
            break_long_words=False,
            break_on_hyphens=False,
        )
        self.lines += [line.replace("\u00a0%", " %") for line in wrapped] or [""]

    def colored(self, text: str, kind: str) -> str:
        """The text in the colour of a severity."""
        return f"{_COLORS[kind]}{text}\x1b[0m" if self.color else text

    def finding(self, finding: Finding, indent: int = 0) -> None:
        """Add a finding with its consequences."""
        others = [layer for layer in finding.layers if layer != finding.layer]
        also = f" (and in {layer_list(others, 3)})" if others else ""
        head = f"{self.colored(finding.severity.upper(), finding.severity)}  {finding.layer}: {finding.kind}"
        self.lines += ["", f"{' ' * indent}{head}"]
        self.line(f"{finding.what[:1].upper()}{finding.what[1:]}{also}.", indent + 2)
        self.line(f"Evidence: {finding.evidence}.", indent + 2)
        self.line(f"What to do: {finding.advice}.", indent + 2)
        if finding.consequences:
            follows = "; ".join(f"{f.kind} at {f.layer} ({f.what})" for f in finding.consequences)
            self.line(f"It also explains: {follows}.", indent + 2)

    def healthy(self, diagnosis: Diagnosis) -> None:
        """Add what was checked, and how small a fault would have been noticed."""
        if not diagnosis.layers:
            self.lines += ["", "The model has no norms; no fault was found elsewhere."]
            return
        self.lines += ["", self.colored("Healthy", "good") + ": no fault was found."]
        first, rest = diagnosis.noticed[:_MOST_LISTED], len(diagnosis.noticed) - _MOST_LISTED
        more = f"; and {rest} other faults (`noticed` lists them)" if rest > 0 else ""
        self.line(f"Would have noticed: {'; '.join(first)}{more}.", 2)

    def fixed(self, diagnosis: Diagnosis) -> None:
        """Add the state before and after the fixes."""
        after = diagnosis.after
        assert after is not None
        self.lines.append("")
        if not diagnosis.done:
            self.line("None of these faults can be fixed safely without your decision; the copy is unchanged.")
            return
        self.line(f"Fixed in a copy: {'; '.join(diagnosis.done)}.")
        now, then = diagnosis.evaluation.now, after.evaluation.now
        if now is not None and then is not None:
            self.line(f"Accuracy in evaluation: {percent(now.share)} before, {percent(then.share)} after.", 2)
        elif (one := diagnosis.evaluation.agreement) and (other := after.evaluation.agreement):
            self.line(f"Evaluation against training: before, {one}; after, {other}.", 2)
        left = after.alarms()
        self.line(
            f"Remaining: {', '.join(f'{f.kind} at {f.layer}' for f in left)}."
            if left
            else "No errors or warnings remain.",
            2,
        )
