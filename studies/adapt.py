"""A trained BatchNorm network in another domain: statistics recomputed on images, some of which are junk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from geonorm.lab.batches import Inputs
from geonorm.lab.choices import Registered, is_whole, register_evaluation
from geonorm.lab.data import Split, corrupt
from geonorm.lab.data.corrupt import JUNK
from geonorm.lab.devices import home_of
from geonorm.surgery import convert, recalibrate

from .adapt_norms import IABN, MedBN, replace_norms

SAMPLES = 2048  # training images of the other domain, without labels
_FACTORS, _OFFSETS = (0.3, 0.4, 0.5), (0.5, 0.3, 0.1)  # of red, green and blue


def other_camera(split: Split) -> Split:
    """The same images from a camera with less contrast and another tint: a factor and an offset for each channel.

    Examples:
        >>> import torch
        >>> from studies.adapt import other_camera
        >>> from geonorm.lab.data import Split
        >>> white = Split(torch.ones(1, 3, 2, 2), torch.zeros(1, dtype=torch.int64))
        >>> other_camera(white).x[0, :, 0, 0]
        tensor([0.8000, 0.7000, 0.6000])
    """
    factors, offsets = (torch.tensor(values).view(3, 1, 1) for values in (_FACTORS, _OFFSETS))
    x: Tensor = split.tensor() * factors + offsets
    return replace(split, x=x)


def adapt(
    model: nn.Module,
    split: Split,
    seed: int,
    by: str,
    junk: str = "gain",
    share: float = 0.0,
    strength: float | None = None,
    batch: int = 64,
) -> None:
    """Adapt a model in place to images of another camera.

    Args:
        model: with BatchNorm2d.
        split: images of the camera that it was trained on; some of them are converted to the other camera.
        seed: of choosing these images, and of the junk among them.
        by: one of ``METHODS``.
        junk, share, strength: of ``corrupt``, on those images.
        batch: how many images are measured at a time.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        raise ValueError("expected a model with BatchNorm2d to adapt (got none); use the norm 'bn'")
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))[:SAMPLES]
    images = corrupt(other_camera(split.take(order)), junk, share, seed, strength)
    METHODS[by](model, Inputs(images, batch, home_of(model)))


def _nothing(model: nn.Module, batches: Inputs) -> None:
    """Keep the statistics of the training."""


def _plainly(model: nn.Module, batches: Inputs) -> None:
    recalibrate(model, batches)


def _robustly(model: nn.Module, batches: Inputs) -> None:
    convert(model, "robustbn")
    recalibrate(model, batches)


def _guarded(model: nn.Module, batches: Inputs) -> None:
    recalibrate(model, batches, guard=3.0)


def _medians(model: nn.Module, batches: Inputs) -> None:
    replace_norms(model, MedBN)
    model.train()
    with torch.no_grad():
        for inputs in batches:
            model(*inputs)
    model.eval()


def _instances(model: nn.Module, batches: Inputs) -> None:
    replace_norms(model, IABN)


def _measured_instances(model: nn.Module, batches: Inputs) -> None:
    recalibrate(model, batches)
    replace_norms(model, IABN)


METHODS: dict[str, Callable[[nn.Module, Inputs], None]] = {
    "nothing": _nothing,
    "plain": _plainly,
    "robust": _robustly,
    "medbn": _medians,
    "iabn": _instances,
    "iabn_measured": _measured_instances,
    "guard": _guarded,
}


def register() -> None:
    """Make the evaluation ``adapted`` known to the lab."""
    takes = {
        "by": (f"one of {', '.join(METHODS)}", lambda value: value in METHODS),
        "junk": (f"one of {', '.join(JUNK)}", lambda value: value in JUNK),
        "share": None,
        "strength": None,
        "batch": ("a whole number from 1", is_whole),
    }
    register_evaluation("adapted", Registered(adapt, other_camera), takes, required={"by": "guard"})
