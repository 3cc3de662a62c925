"""One thing that is wrong, or worth knowing, in a network: in plain words, with the evidence and the cure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SEVERITIES = ("error", "warning", "note")


@dataclass
class Finding:
    """What was found.

    Attributes:
        severity: ``"error"`` (outputs are wrong or missing), ``"warning"`` (something is lost) or ``"note"``.
        kind: a short name of the fault, the same for all layers.
        layer: name of the layer in the model.
        what: the fault, in words.
        evidence: the figures it was seen by.
        advice: what to do.
        channels: numbers of the channels it is about; empty if it is about the layer.
        cure: the name of a cure that ``fix=True`` applies; empty if a person has to decide.
        harm: how much of the network's work it spoils, from 0 to 1, where that was measured.
        layers: all layers that have it, if there are several.
        consequences: findings that go away with this one.
        is_root: it has a cause of its own, and follows from no other finding.
    """

    severity: str
    kind: str
    layer: str
    what: str
    evidence: str
    advice: str
    channels: list[int] = field(default_factory=list)
    cure: str = ""
    harm: float = 0.0
    layers: list[str] = field(default_factory=list)
    consequences: list[Finding] = field(default_factory=list)
    is_root: bool = False

    def raise_to(self, other: Finding) -> None:
        """Be as severe and harmful as another finding, at least."""
        self.severity = min(self.severity, other.severity, key=SEVERITIES.index)
        self.harm = max(self.harm, other.harm)


def by_harm(findings: Iterable[Finding]) -> list[Finding]:
    """The most severe first, and within a severity the most harmful; otherwise in the order of the model."""
    return sorted(findings, key=lambda finding: (SEVERITIES.index(finding.severity), -finding.harm))


def some(numbers: Sequence[int], most: int = 6) -> str:
    """Channel numbers for a sentence."""
    rest = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return f"{'channel' if len(numbers) == 1 else 'channels'} {', '.join(map(str, numbers[:most]))}{rest}"


def names(layers: Sequence[str], most: int = 4) -> str:
    """Names of layers for a sentence."""
    rest = f" and {len(layers) - most} more" if len(layers) > most else ""
    return ", ".join(layers[:most]) + rest


def part(number: int, total: int) -> str:
    """``3 of 64 channels``."""
    return f"{number} of {total} channels"
