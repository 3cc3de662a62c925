"""One finding per root cause: consequences go under their cause, and the same fault is reported once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .finding import Finding, by_harm, layer_list

# Each cause with its possible consequences; earlier causes take precedence.
_CONSEQUENCES: dict[str, tuple[str, ...]] = {
    "bad data": ("not finite", "not read", "stale statistics", "outliers", "does not run"),
    "parameter not finite": ("not finite", "not read", "buffer not finite", "overflow"),
    "overflow": ("not finite", "not read", "buffer not finite", "exploded activations"),
    "buffer not finite": ("stale statistics",),
    "negative variance": ("stale statistics",),
    "lost statistics": ("stale statistics",),
    "momentum": ("stale statistics",),
    "variance shift": ("stale statistics",),
    "outliers": ("stale statistics", "exploded activations", "input not normalized"),
    "sorted batches": ("stale statistics",),
    "padding counts": ("stale statistics", "outliers"),
    "input not normalized": ("stale statistics", "exploded activations", "eps dominates", "saturated", "dead channels"),
    "huge weights": ("stale statistics", "exploded activations"),
    "tiny weights": ("stale statistics", "eps dominates", "collapsed channels"),
    "exploded gamma": ("exploded activations", "saturated", "stale statistics", "one feature", "dead channels"),
    "one feature": ("dead channels", "stale statistics"),
    "collapsed channels": ("stale statistics", "dead channels", "eps dominates"),
    "single value": ("does not run", "two values", "small batch", "eps dominates", "stale statistics"),
    "two values": ("stale statistics",),
    "small batch": ("stale statistics",),
    "shared norm": ("stale statistics",),
    "wrong axis": ("stale statistics", "small batch", "one feature"),
    "norm after norm": ("stale statistics", "lost statistics"),
    "duplicate channels": ("stale statistics",),
    "silent branches": ("collapsed channels", "eps dominates", "stale statistics"),
    "eps dominates": ("dead channels", "stale statistics"),
    "dead channels": ("stale statistics",),
    "stale statistics": (),
}
# These affect only their own layer and later ones.
_HERE_OR_LATER = {
    "momentum",
    "variance shift",
    "collapsed channels",
    "duplicate channels",
    "dead channels",
    "tiny weights",
    "one feature",
    "huge weights",
    "shared norm",
    "norm after norm",
    "small batch",
    "two values",
    "exploded gamma",
    "eps dominates",
}
# These consequences are in the same layer as their cause, if the cause is one of those above.
_SAME_LAYER = {"collapsed channels", "eps dominates", "lost statistics"}


def group_by_cause(findings: Iterable[Finding], before: dict[str, str], layers: Sequence[str]) -> list[Finding]:
    """The findings that are causes, each with its consequences; the most severe and harmful first.

    Args:
        findings: all of them, in the order of the checks.
        before: for each norm, the operation before it: they count as one place.
        layers: the names of all layers, in the order of the model.
    """
    position = {name or "(model)": i for i, name in enumerate(layers)}
    kept = _merged(findings)
    order = {kind: i for i, kind in enumerate(_CONSEQUENCES)}
    causes = sorted((f for f in kept if f.kind in order), key=lambda finding: order[finding.kind])
    under: set[int] = set()
    for cause in causes:
        if id(cause) in under:
            continue
        for finding in kept:
            if finding is cause or finding.is_root or id(finding) in under:
                continue
            if finding.kind not in _CONSEQUENCES[cause.kind]:
                continue
            if not _explains(cause, finding, before, position):
                continue
            cause.consequences.append(finding)
            cause.raise_to(finding)
            cause.cure = cause.cure or finding.cure
            under.add(id(finding))
    return by_harm(f for f in kept if id(f) not in under)


def _explains(cause: Finding, finding: Finding, before: dict[str, str], position: dict[str, int]) -> bool:
    if cause.kind not in _HERE_OR_LATER:
        return True
    if finding.kind in _SAME_LAYER:
        return bool(_places(cause, before) & _places(finding, before))
    first = min(position.get(layer, 0) for layer in (cause.layer, *cause.layers))
    return position.get(finding.layer, len(position)) >= first


def _places(finding: Finding, before: dict[str, str]) -> set[str]:
    layers = {finding.layer, *finding.layers}
    return layers | {norm for norm, operation in before.items() if operation in layers}


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of one kind merged into one, about the layer with the most harm."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.severity), []).append(finding)
    found = []
    for group in groups.values():
        if len(group) == 1:
            found += group
            continue
        worst = max(group, key=lambda finding: finding.harm)
        layers = list(dict.fromkeys(layer for finding in group for layer in (finding.layers or [finding.layer])))
        others = [layer for layer in layers if layer != worst.layer]
        worst.evidence += f"; the same in {len(others)} other layer{'s' * (len(others) != 1)}: {layer_list(others)}"
        worst.layers = layers
        found.append(worst)
    return found
