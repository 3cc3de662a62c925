"""``screen``: the broken samples of a data set, found without labels in a model's own layers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from ..introspect.observe import Forward, call_model, check_readable, each_batch, input_of, state_restored, uncompiled
from ..introspect.progress import progress
from ..introspect.select import Where
from .places import INPUT, Places
from .reasons import facts_of
from .screening import Screening
from .verdict import verdict

_SHUFFLES = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def screen(
    model: nn.Module,
    batches: Any,
    forward: Forward | None = None,
    *,
    layers: Where = None,
    cut: float = 6.0,
) -> Screening:
    """Find the broken samples of a data set, without labels, by how far they are from the others.

        score = max over places of  2·d/median d,  median over channels of |m − median m|  and of |log σ − median log σ|

    m and σ are the mean and standard deviation of a sample in a channel, deviations are in MADs, and d is the distance
    to the joint center that the guard uses. Places are the model's input and the inputs of its first eight norms; in a
    model without norms, of its first eight convolutions and linear layers. All medians are those of the data set
    itself, so data that differ as a whole from the training data are fine. Where the scores at a place fall off slowly,
    as in tables with long tails, they are scaled down until only samples separate from all others are above the cut.

    It finds samples that are not finite, unscaled, offset, constant or noisy. It does not find faults that leave the
    values in their usual range and order: a wrong crop, a mirrored image, a wrong label. It cannot work if more than
    half of the data are broken, because then the broken samples are the usual ones. It makes one pass over the batches,
    in evaluation mode, and leaves the model unchanged.

    Args:
        model: any model, in any mode; trained or not, though a trained one finds more.
        batches: a batch or an iterable of batches in a fixed order, such as a DataLoader that does not shuffle:
            tensors, tuples whose first entry is the input, or
            dicts of the model's arguments.
        forward: how to call the model on a batch, ``forward(model, batch)``, where its first entry is not enough.
        layers: which layers to check besides the input: a name pattern, several, or a function of (name, module).
        cut: the score above which a sample looks broken.

    Examples:
        >>> import torch, geonorm
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
        >>> images = torch.rand(100, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        >>> images[17] *= 255
        >>> images[40, 0, 3, 3] = float("nan")
        >>> found = geonorm.screen(model, images)
        >>> print(found.headline())
        2 of 100 samples look broken: 1 not finite, 1 too large.
        >>> found.indices
        [40, 17]
    """
    check_readable(model, "screen")
    if isinstance(cut, bool) or not isinstance(cut, (int, float)) or not 1 <= cut < math.inf:
        raise ValueError(f"expected cut to be a number from 1 (got {cut!r}); 6 is the default")
    _check_order(batches)
    places = Places(model, layers)
    facts, shape = _run(model, each_batch(batches), forward or call_model, places)
    return verdict(places, facts, shape, float(cut), type(model).__name__)


def _check_order(batches: Any) -> None:
    """Raise if sample indices would be meaningless: shuffled batches, or several batches passed as one."""
    if isinstance(batches, tuple) and len(batches) > 2 and _are_alike(batches):
        raise TypeError(
            f"expected a batch or an iterable of batches (got a tuple of {len(batches)} tensors of one kind, which "
            "would be one batch with the first as its input); pass a list of them"
        )
    if isinstance(batches, DataLoader):
        samplers = (batches.sampler, getattr(batches.batch_sampler, "sampler", None))
        if any(isinstance(sampler, _SHUFFLES) for sampler in samplers):
            raise ValueError(
                "expected batches in a fixed order (got a DataLoader that shuffles, so an index would not identify a "
                "sample); make one with shuffle=False"
            )


def _are_alike(parts: tuple[Any, ...]) -> bool:
    return all(isinstance(part, Tensor) and part.is_floating_point() and part.dim() > 1 for part in parts) and (
        len({part.shape[1:] for part in parts}) == 1
    )


def _run(
    model: nn.Module, batches: Iterable[Any], forward: Forward, places: Places
) -> tuple[Tensor | None, tuple[int, ...]]:
    """Run all batches through the model once; returns the facts about each input sample, and the shape of a sample."""
    facts: list[Tensor] = []
    shape: tuple[int, ...] = ()
    number = 0
    with state_restored(model), torch.no_grad(), uncompiled():
        model.eval()
        with places.watching():
            for batch in progress(batches, "screen"):
                x = values_of(batch)
                if not x.numel():
                    continue
                places.add_input(x, len(x))
                if INPUT in places.by_name:
                    shape = tuple(x.shape[1:]) or (1,)
                    facts.append(facts_of(x if x.dim() > 1 else x[:, None]))
                forward(model, batch)
                places.end_batch()
                number += len(x)
    if not number:
        raise ValueError("expected at least one batch with a sample in it (got none)")
    return (torch.cat(facts) if facts else None), shape


def values_of(batch: Any) -> Tensor:
    """The input of a batch; for a dict or another structure, its first floating-point tensor, or else the first."""
    x: Any = input_of(batch)
    if not isinstance(x, Tensor):
        tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()]
        x = next((leaf for leaf in tensors if leaf.is_floating_point()), tensors[0] if tensors else None)
    if x is None or not x.dim():
        raise TypeError(f"expected batches that hold a tensor with a dimension of samples (got {type(batch).__name__})")
    found: Tensor = x
    return found
