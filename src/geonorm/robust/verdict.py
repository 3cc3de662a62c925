"""Decides from the figures at each place which samples look broken, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .places import INPUT, Places
from .reasons import Facts, Far, explain, usual_facts
from .sample_reference import STATISTICS, roughness_score, valley_threshold
from .screening import Broken, Screening

_ENOUGH = 64  # positions; with fewer the roughness is not reliable
_MANY = 1 / 3  # with a larger fraction of broken samples, a note is added


@dataclass
class _Scored:
    """Scores of all samples, also without scaling, the first place where each is above the cut, or −1, and the figures.

    ``figures`` and ``skipped`` are by place.
    """

    scores: Tensor
    plain: Tensor
    first: Tensor
    figures: dict[str, Tensor] = field(default_factory=dict)
    farthest: Tensor | None = None
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def verdict(places: Places, facts: Tensor | None, shape: tuple[int, ...], cut: float, model: str) -> Screening:
    """The result. ``facts`` are those of the input, ``shape`` that of a sample."""
    if not places.by_name:
        reasons = "; ".join(f"{name}: {why}" for name, why in places.skipped.items()) or "it has no layers"
        raise ValueError(f"expected a model with an input or layers to check (got none: {reasons})")
    samples = next(iter(places.by_name.values())).samples
    found = _scored(places, facts, shape, cut, torch.ones(samples, dtype=torch.bool))
    sound = found.plain <= cut
    if not sound.all() and sound.sum() > samples / 2:
        # Many broken samples widen the usual range: score again, against the others alone.
        found = _scored(places, facts, shape, cut, sound)
    is_broken = found.scores > cut
    names = list(found.figures)
    usual = None if facts is None else usual_facts(facts[~is_broken])
    broken = []
    for i in found.scores.argsort(descending=True, stable=True)[: int(is_broken.sum())].tolist():
        layer = names[int(found.first[i])]
        explanation = None
        if facts is not None and usual is not None:
            far = None if found.farthest is None else Far(*found.farthest[i].tolist())
            explanation = explain(Facts(*facts[i].tolist()), usual, shape, far)
        why, evidence = explanation or _by_layer(layer, found.figures[layer][i])
        broken.append(Broken(i, float(found.scores[i]), layer, why, evidence))
    if len(broken) > _MANY * samples:
        found.notes.append("so many look broken that the others may be the broken ones: look at both")
    return Screening(broken, found.scores, cut, names, {**places.skipped, **found.skipped}, found.notes, model)


def _scored(places: Places, facts: Tensor | None, shape: tuple[int, ...], cut: float, sound: Tensor) -> _Scored:
    """Scores against the sound samples."""
    found = _Scored(torch.zeros(len(sound)), torch.zeros(len(sound)), torch.full((len(sound),), -1))
    for name, place in places.by_name.items():
        figures, farthest = place.compared(sound)
        own = figures.amax(1)
        if not place.usable:
            found.skipped[name] = "fewer than four samples are finite there, or more than half are the same"
        elif name != INPUT and bool(own.isinf().double().mean() > 0.5):
            found.skipped[name] = "more than half of the samples are not finite there"
        if name == INPUT:
            if facts is not None and math.prod(shape[1:]) >= _ENOUGH:
                own = torch.maximum(own, roughness_score(facts[:, Facts._fields.index("rough")], sound))
            if len(shape) == 1 and place.usable:
                found.farthest = farthest
        elif name in found.skipped:
            continue
        found.plain = torch.maximum(found.plain, own)
        threshold = valley_threshold(own, cut)
        if threshold > cut:
            found.notes.append(f"{name}: scores fall off slowly; divided by {threshold / cut:.3g}")
            own = own * (cut / threshold)
        if place.reference < place.samples:
            found.notes.append(f"{name}: compared with the first {place.reference:,} samples, to save memory")
        found.first = torch.where((own > cut) & (found.first < 0), len(found.figures), found.first)
        found.scores = torch.maximum(found.scores, own)
        found.figures[name] = figures
    return found


def _by_layer(layer: str, figures: Tensor) -> tuple[str, str]:
    """The reason and evidence for a sample whose own values are ordinary."""
    if bool(figures.isinf().all()):
        return "not finite", f"its values overflow on the way to {layer}"
    most = int(figures.argmax())
    return "unusual", f"{STATISTICS[most]} in {layer}: {float(figures[most]):.3g}"
