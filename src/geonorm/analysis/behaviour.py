"""The outputs of a network, and how far they move when something in it is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..introspect.observe import Forward, call_model, state_restored, uncompiled
from ..robust.accuracy import Accuracy, wilson


class Change(NamedTuple):
    """How far two outputs for the same samples are from each other.

    Attributes:
        predictions: share of samples whose predicted class changes, with its interval; ``None`` without classes.
        moved: rms of the difference, relative to the spread of the outputs over samples.
        samples: number of samples compared.
    """

    predictions: Accuracy | None
    moved: float
    samples: int

    def __str__(self) -> str:
        if self.predictions is None:
            return f"outputs move by {percent(self.moved)} of their spread"
        p = self.predictions
        return f"{percent(p.share)} of predictions change (95 % interval {percent(p.low)} to {percent(p.high)})"


def percent(share: float) -> str:
    """A share as a percentage with two digits: ``3.1 %``, ``41 %``."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.5 or value == 0 else f"{value:.2g} %"


def answer_of(given: Any) -> Tensor | None:
    """The output tensor in what a model returned, one row per sample; ``None`` if there is none.

    Of several outputs, the one called logits, or else the first.
    """
    if isinstance(given, Mapping) and isinstance(given.get("logits"), Tensor):
        given = given["logits"]
    elif isinstance(getattr(given, "logits", None), Tensor):
        given = given.logits
    for leaf in tree_leaves(given):
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dim() and leaf.numel():
            return leaf.detach().float().cpu()
    return None


def answers(model: nn.Module, batches: Sequence[Any], forward: Forward | None = None) -> list[Tensor | None]:
    """The outputs of a model for each batch, in its current mode; the model is not changed."""
    with state_restored(model), torch.no_grad(), uncompiled():
        return [answer_of((forward or call_model)(model, batch)) for batch in batches]


def compare(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> Change | None:
    """How far two lists of outputs are from each other; ``None`` if they cannot be compared."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None and a.shape == b.shape]
    if not pairs or len({a.shape[1:] for a, _ in pairs}) != 1:
        return None
    first, second = (torch.cat(list(parts)).double() for parts in zip(*pairs, strict=True))
    if len(first) < 2:
        return None
    rows, others = first.flatten(1) if first.dim() > 1 else first[:, None], second.reshape(len(second), -1)
    usable = rows.isfinite().all(1) & others.isfinite().all(1)
    broken = int((~usable).sum())
    spread = rows[usable].std(0, correction=0).square().mean().sqrt() if bool(usable.any()) else torch.tensor(0.0)
    moved = (rows - others)[usable].square().mean().sqrt() if bool(usable.any()) else torch.tensor(0.0)
    if broken:
        relative = float("inf")
    else:
        relative = 0.0 if float(moved) == 0 else float(moved / spread.clamp_min(1e-12 + 1e-6 * float(rows.abs().max())))
    predictions = None
    if first.dim() == 2 and first.shape[1] > 1:
        changed = (first.argmax(1) != second.argmax(1)) | ~usable
        predictions = wilson(int(changed.sum()), len(first))
    return Change(predictions, relative, len(first))


def accuracy(given: Sequence[Tensor | None], batches: Sequence[Any]) -> Accuracy | None:
    """The share of correct predictions; ``None`` if the batches have no matching labels."""
    right = total = 0
    for scores, batch in zip(given, batches, strict=True):
        labels = labels_of(batch)
        if scores is None or labels is None or scores.dim() != 2 or len(scores) != len(labels):
            return None
        if int(labels.max()) >= scores.shape[1] or int(labels.min()) < 0:
            return None
        right += int(((scores.argmax(1) == labels.cpu()) & scores.isfinite().all(1)).sum())
        total += len(labels)
    return wilson(right, total) if total else None


def labels_of(batch: Any) -> Tensor | None:
    """The class numbers of a batch ``(input, labels, ...)``, or of one with ``labels``; ``None`` if it has none."""
    found: Any = None
    if isinstance(batch, Mapping):
        found = batch.get("labels", batch.get("label"))
    elif isinstance(batch, (tuple, list)) and len(batch) >= 2:
        found = batch[1]
    elif isinstance(getattr(batch, "y", None), Tensor):
        found = batch.y
    whole = isinstance(found, Tensor) and not found.is_floating_point() and not found.is_complex()
    return found if whole and found.dim() == 1 and found.numel() else None
