"""One fault or note about a network: in plain words, with the evidence and the cure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SEVERITIES = ("error", "warning", "note")


@dataclass
class Finding:
    """One fault or note.

    Attributes:
        severity: ``"error"`` (outputs are wrong or missing), ``"warning"`` (something is lost) or ``"note"``.
        kind: a short name of the fault, the same for all layers.
        layer: name of the layer in the model.
        what: the fault, in words.
        evidence: the figures that show it.
        advice: what to do.
        channels: the affected channels; empty if the whole layer is affected.
        cure: the name of the fix that ``fix=True`` applies; empty if a person has to decide.
        harm: how much damage it does, from 0 to 1, where that was measured.
        layers: all affected layers, if there are several.
        consequences: findings that this one causes.
        is_root: it has its own cause and is never listed under another finding.
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
        """Raise severity and harm to at least those of another finding."""
        self.severity = min(self.severity, other.severity, key=SEVERITIES.index)
        self.harm = max(self.harm, other.harm)


def by_harm(findings: Iterable[Finding]) -> list[Finding]:
    """The most severe first, and within a severity the most harmful; otherwise in the order of the model."""
    return sorted(findings, key=lambda finding: (SEVERITIES.index(finding.severity), -finding.harm))


def channel_list(numbers: Sequence[int], most: int = 6) -> str:
    """Channel numbers for a sentence: ``channels 1, 2, 3 and 4 more``."""
    rest = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return f"{'channel' if len(numbers) == 1 else 'channels'} {', '.join(map(str, numbers[:most]))}{rest}"


def layer_list(layers: Sequence[str], most: int = 4) -> str:
    """Names of layers for a sentence."""
    rest = f" and {len(layers) - most} more" if len(layers) > most else ""
    return ", ".join(layers[:most]) + rest


def channel_fraction(number: int, total: int) -> str:
    """``3 of 64 channels``."""
    return f"{number} of {total} channels"
