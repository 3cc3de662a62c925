"""Corruptions of samples: outliers, noise, wrong labels, a minority, a spurious attribute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from .task import Split, Task, statistics

# Names of the two groups by a spurious attribute.
SPURIOUS_GROUPS = ("agrees", "disagrees")
MINORITY_GROUPS = ("majority", "minority")
_STRENGTHS = {
    "offset": 10.0,
    "gain": 20.0,
    "heavy_tails": 1.0,
    "feature": 100.0,
    "noise": 0.1,
    "stuck": 1.0,
    "minority": 6.0,
}


def corrupt(split: Split, kind: str, share: float = 0.1, seed: int = 0, strength: float | None = None) -> Split:
    """Corrupt a fraction of the samples, in a copy.

        offset        x + strength·std             a sensor that saturates; strength 10
        gain          strength·x                   a wrong unit; 20
        heavy_tails   x + strength·std·Cauchy      independently for each value; 1
        feature       one value of x = strength    the same one in all samples; 100
        noise         x + strength·N(0, 1)         0.1
        stuck         every value of x = strength  a dead sensor, a white frame; 1
        minority      strength·x                   valid, and in the test samples too; 6
        labels        y replaced by another label, all equally likely
        spurious      an attribute that shows the label, but a wrong one in this fraction; see below

    std is that of all values. A minority is ``gain`` that is not a fault: the groups become
    ``MINORITY_GROUPS``. The spurious attribute is a patch in the corner of images, a quarter of their width, as
    bright as label/(classes − 1); features get one more column. All samples have it, it is wrong in the fraction, and
    the groups become ``SPURIOUS_GROUPS``.

    Args:
        split: samples that are tensors.
        kind: one of the above.
        share: the fraction of corrupted samples, chosen at random.
        seed: of the choice and of the noise.
        strength: of the corruption.

    Examples:
        >>> import torch
        >>> from geonorm.lab.data import Split, corrupt
        >>> clean = Split(torch.zeros(10, 2), torch.zeros(10, dtype=torch.int64))
        >>> corrupt(clean, "feature", share=0.3, strength=5).x.sum()
        tensor(15.)
    """
    x = _checked(split, kind, share, strength)
    if kind == "spurious":
        return _with_attribute(split, x, share, seed, int(split.y.max()))
    generator = torch.Generator().manual_seed(seed)
    chosen = _chosen(split, share, generator)
    if kind == "labels":
        return replace(split, y=_other_labels(split.y, chosen, generator))
    amount = _STRENGTHS[kind] if strength is None else strength
    changed = x.clone()
    changed[chosen] = _ACTIONS[kind](x[chosen], amount, x.std().item(), generator)
    if kind != "minority":
        return replace(split, x=changed)
    few = torch.zeros(len(split), dtype=torch.bool)
    few[chosen] = True
    return Split(changed, split.y, torch.stack([~few, few], 1))


def corrupt_task(task: Task, kind: str, share: float = 0.1, seed: int = 0, strength: float | None = None) -> Task:
    """A task with corrupted training samples; the test samples stay clean.

    A spurious attribute is part of every sample: test and validation samples have it too, wrong in half of them, so
        that
    both groups are measured equally well. Likewise, half of the test samples belong to a minority.

    Args:
        task, kind, share, seed, strength: as in ``corrupt``.

    Examples:
        >>> from geonorm.lab.data import corrupt_task, load
        >>> task = corrupt_task(load("subpopulations"), "spurious", share=0.1)
        >>> task.input_shape, task.group_names, task.test.groups.sum(0)
        ((12,), ('agrees', 'disagrees'), tensor([1000, 1000]))
    """
    if kind == "minority":
        train, test = (corrupt(part, kind, of, seed, strength) for part, of in ((task.train, share), (task.test, 0.5)))
        valid = None if task.valid is None else corrupt(task.valid, kind, 0.5, seed, strength)
        return replace(task, train=train, test=test, valid=valid, group_names=MINORITY_GROUPS)
    if kind != "spurious":
        return replace(task, train=corrupt(task.train, kind, share, seed, strength))

    def marked(split: Split, share: float, seed: int) -> Split:
        return _with_attribute(split, _checked(split, kind, share, strength), share, seed, task.classes - 1)

    train = marked(task.train, share, seed)
    mean, std = (None, None) if task.mean is None else statistics(train.tensor())
    return replace(
        task,
        train=train,
        test=marked(task.test, 0.5, seed),
        valid=None if task.valid is None else marked(task.valid, 0.5, seed),
        input_shape=tuple(train.tensor().shape[1:]),
        mean=mean,
        std=std,
        group_names=SPURIOUS_GROUPS,
    )


def _checked(split: Split, kind: str, share: float, strength: float | None) -> Tensor:
    """The samples; raises if this corruption does not apply to them."""
    if kind not in CORRUPTIONS:
        raise ValueError(f"unknown corruption {kind!r}; known: {', '.join(CORRUPTIONS)}")
    if not 0 <= share <= 1:
        raise ValueError(f"expected share to be from 0 to 1 (got {share})")
    if strength is not None and kind not in _STRENGTHS:
        raise ValueError(f"{kind!r} has no strength (got {strength})")
    if not isinstance(split.x, Tensor):
        raise ValueError(
            f"expected samples that are tensors (got {type(split.x).__name__}); for images in files make "
            "Split(split.tensor(), split.y, split.groups) first"
        )
    if kind != "labels" and not split.x.is_floating_point():
        raise ValueError(f"expected floating-point samples for {kind!r} (got {split.x.dtype}); 'labels' takes any")
    return split.x


def _chosen(split: Split, share: float, generator: torch.Generator) -> Tensor:
    return torch.randperm(len(split), generator=generator)[: round(share * len(split))]


def _offset(x: Tensor, strength: float, std: float, generator: torch.Generator) -> Tensor:
    return x + strength * std


def _gain(x: Tensor, strength: float, std: float, generator: torch.Generator) -> Tensor:
    return x * strength


def _heavy_tails(x: Tensor, strength: float, std: float, generator: torch.Generator) -> Tensor:
    return x + strength * std * torch.empty_like(x).cauchy_(generator=generator)


def _noise(x: Tensor, strength: float, std: float, generator: torch.Generator) -> Tensor:
    return x + strength * torch.randn(x.shape, generator=generator)


def _feature(x: Tensor, strength: float, std: float, generator: torch.Generator) -> Tensor:
    flat = x.flatten(1).clone()
    flat[:, torch.randint(flat.shape[1], (1,), generator=generator)] = strength
    return flat.view_as(x)


def _stuck(x: Tensor, strength: float, std: float, generator: torch.Generator) -> Tensor:
    return torch.full_like(x, strength)


_ACTIONS: dict[str, Callable[[Tensor, float, float, torch.Generator], Tensor]] = {
    "offset": _offset,
    "gain": _gain,
    "heavy_tails": _heavy_tails,
    "feature": _feature,
    "noise": _noise,
    "stuck": _stuck,
    "minority": _gain,
}
JUNK = tuple(kind for kind in _ACTIONS if kind != "minority")  # samples that nothing can be learned from
CORRUPTIONS = (*_ACTIONS, "labels", "spurious")


def _other_labels(y: Tensor, chosen: Tensor, generator: torch.Generator) -> Tensor:
    """Labels, with some replaced by another label that occurs."""
    labels, place = y.unique(return_inverse=True)
    if len(labels) < 2:
        raise ValueError("expected at least two different labels")
    steps = torch.randint(1, len(labels), (len(chosen),), generator=generator)
    place = place.clone()
    place[chosen] = (place[chosen] + steps) % len(labels)
    noisy: Tensor = labels[place]
    return noisy


def _with_attribute(split: Split, x: Tensor, share: float, seed: int, largest: int) -> Split:
    """Add the spurious attribute. ``largest``: the label that is shown as 1."""
    generator = torch.Generator().manual_seed(seed)
    shown = _other_labels(split.y, _chosen(split, share, generator), generator)
    value = shown.to(x.dtype) / max(1, largest)
    if x.dim() == 2:
        x = torch.cat([x, value.unsqueeze(1)], 1)
    else:
        size = max(1, x.shape[-1] // 4)
        x = x.clone()
        x[..., :size, :size] = value.view(-1, *[1] * (x.dim() - 1))
    agrees = shown == split.y
    return Split(x, split.y, torch.stack([agrees, ~agrees], 1))
