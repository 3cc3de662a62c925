"""One thing that is wrong, or worth knowing, in a network: in plain words, with the evidence and the cure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SEVERITIES = ("error", "warning", "note")


@dataclass
class Finding:
    """What was found in one layer.

    Attributes:
        severity: ``"error"`` (outputs are wrong or none), ``"warning"`` (something is lost) or ``"note"``.
        kind: a short name of the fault, the same for all layers.
        layer: name of the layer in the model.
        what: the fault, in words.
        evidence: the figures it was seen by.
        advice: what to do.
        channels: numbers of the channels it is about; empty if it is about the layer.
    """

    severity: str
    kind: str
    layer: str
    what: str
    evidence: str
    advice: str
    channels: list[int] = field(default_factory=list)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """The most severe first; within a severity in the order of the model."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def some(numbers: Sequence[int], most: int = 6) -> str:
    """Channel numbers for a sentence."""
    rest = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return f"{'channel' if len(numbers) == 1 else 'channels'} {', '.join(map(str, numbers[:most]))}{rest}"


def part(number: int, total: int) -> str:
    """``3 of 64 channels``."""
    return f"{number} of {total} channels"
