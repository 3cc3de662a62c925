"""Losses, corruptions and evaluations by name, written as norms are: ``name(argument=value, ...)``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import robust
from ..nn.specs import parse_call
from .data import DEGRADATIONS, Split, corrupt

Loss = Callable[[Tensor], robust.RobustLoss]
LOSSES: dict[str, Callable[..., robust.RobustLoss]] = {
    name: getattr(robust, name) for name in ("erm", "cvar", "chi_square", "cvar_doro", "chi_square_doro")
}
CORRUPTIONS = ("clean", "offset", "gain", "heavy_tails", "feature", "noise", "labels", "spurious")
ATTACKS: dict[str, Callable[..., Tensor]] = {name: getattr(robust, name) for name in ("fgsm", "bim", "pgd")}
_EVERY = ("recalibrated", "samples")  # arguments that every evaluation takes
EVALUATIONS: dict[str, tuple[str, ...]] = {
    "clean": (),
    "noise": ("std",),
    **{name: ("severity",) for name in DEGRADATIONS if name != "noise"},
    "fgsm": ("eps",),
    "bim": ("eps", "step", "steps"),
    "pgd": ("eps", "step", "steps"),
}


class Evaluation(NamedTuple):
    """How a trained model is tested.

    Attributes:
        name: of the kind.
        arguments: of the kind.
        recalibrated: measure the running statistics anew on training samples first.
        samples: test so many samples only; all by default.
    """

    name: str
    arguments: Mapping[str, Any]
    recalibrated: bool = False
    samples: int | None = None


def parse_loss(text: str) -> Loss:
    """A loss on per-sample losses, such as ``cvar_doro(alpha=0.2, eps=0.01)``.

    Examples:
        >>> import torch
        >>> from geonorm.lab.choices import parse_loss
        >>> parse_loss("cvar(alpha=0.5)")(torch.tensor([1.0, 2.0, 3.0, 4.0])).loss
        tensor(3.5000)
    """
    name, arguments = parse_call(text, "'erm' or 'cvar(alpha=0.2)'")
    function = LOSSES[known(name, LOSSES, "loss")]
    takes = list(inspect.signature(function).parameters)[1:]
    _check(text, arguments, takes, required=[key for key in takes if key != "trim"])

    def loss(losses: Tensor) -> robust.RobustLoss:
        return function(losses, **arguments)

    loss(torch.ones(2))  # a wrong value shows now, not after the data are loaded
    return loss


def parse_corruption(text: str) -> Callable[[Split, int], Split]:
    """What happens to the training samples, such as ``offset(share=0.1)``: a function of them and a seed."""
    name, arguments = parse_call(text, "'clean' or 'offset(share=0.1)'")
    known(name, CORRUPTIONS, "corruption")
    _check(text, arguments, () if name == "clean" else ("share", "strength"))
    if name == "clean":
        return lambda split, seed: split
    return lambda split, seed: corrupt(split, name, seed=seed, **arguments)


def parse_evaluation(text: str) -> Evaluation:
    """How the trained model is tested, such as ``noise(std=0.25)`` or ``bim(eps=0.03, samples=500)``."""
    name, arguments = parse_call(text, "'clean' or 'noise(std=0.25)'")
    known(name, EVALUATIONS, "evaluation")
    _check(text, arguments, (*EVALUATIONS[name], *_EVERY))
    own = {key: value for key, value in arguments.items() if key not in _EVERY}
    return Evaluation(name, own, bool(arguments.get("recalibrated", False)), arguments.get("samples"))


def known(name: str, names: Iterable[str], what: str) -> str:
    """The name, if it is known; else an error with the closest one."""
    names = list(names)
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ValueError(f"unknown {what} {name!r}; {hint}known are {', '.join(names)}")


def _check(text: str, arguments: Mapping[str, Any], takes: Iterable[str], required: Iterable[str] = ()) -> None:
    takes = list(takes)
    for key in arguments:
        if key not in takes:
            raise ValueError(f"unknown argument {key!r} in {text!r}; it takes {', '.join(takes) or 'none'}")
    missing = [key for key in required if key not in arguments]
    if missing:
        raise ValueError(f"expected {', '.join(missing)} in {text!r}, as in {text.split('(')[0]}({missing[0]}=0.1)")
