"""Losses, corruptions and evaluations by name, written like norms: ``name(argument=value, ...)``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import robust
from ..analysis.pruning.prune import RULES
from ..nn.specs import parse_call, unknown
from .data import DEGRADATIONS, Split, Task, corrupt, corrupt_task
from .data.cifar_c import CORRUPTIONS as OFFICIAL
from .data.corrupt import CORRUPTIONS as OURS
from .repository import import_if_of_studies

Loss = Callable[[Tensor], robust.RobustLoss]
LOSSES: dict[str, Callable[..., robust.RobustLoss]] = {
    name: getattr(robust, name) for name in ("erm", "cvar", "chi_square", "cvar_doro", "chi_square_doro")
}
CORRUPTIONS = ("clean", *OURS)
ATTACKS: dict[str, Callable[..., Tensor]] = {name: getattr(robust, name) for name in ("fgsm", "bim", "pgd")}
_EVERY = ("recalibrated", "rescaled", "samples", "top", "worst_group")  # arguments that every evaluation takes
# Examples of arguments that have no default.
_REQUIRED = {"severity": "3", "rule": "gamma", "share": "0.1", "corruption": "fog"}
EVALUATIONS: dict[str, tuple[str, ...]] = {
    "clean": (),
    "noise": ("std",),
    **{name: ("severity",) for name in DEGRADATIONS if name != "noise"},
    "cifar10c": ("corruption", "severity"),
    "fgsm": ("eps",),
    "bim": ("eps", "step", "steps"),
    "pgd": ("eps", "step", "steps"),
    "pruned": ("rule", "share"),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """Whether an argument is a whole number from 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


Check = tuple[str, Callable[[Any], bool]]
# The valid values of each argument, in words and as a test, so that a wrong value raises before anything is trained.
_VALUES: dict[str, Check] = {
    "recalibrated": ("true or false", lambda value: isinstance(value, bool)),
    "worst_group": ("true or false", lambda value: isinstance(value, bool)),
    "rescaled": ("a number over 0", lambda value: _is_number(value) and value > 0),
    "samples": ("a whole number from 1", is_whole),
    "top": ("a whole number from 1", is_whole),
    "steps": ("a whole number from 1", is_whole),
    "severity": ("1, 2, 3, 4 or 5", lambda value: is_whole(value) and value <= 5),
    "corruption": (f"one of {', '.join(OFFICIAL)}", lambda value: value in OFFICIAL),
    "std": ("a number from 0", lambda value: _is_number(value) and value >= 0),
    "eps": ("a number from 0", lambda value: _is_number(value) and value >= 0),
    "step": ("a number from 0", lambda value: _is_number(value) and value >= 0),
    "alpha": ("a number", _is_number),
    "share": ("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1),
    "strength": ("a number", _is_number),
    "rule": (f"one of {', '.join(RULES)}", lambda value: value in RULES),
    "trim": (f"one of {', '.join(robust.losses.TRIMS)}", lambda value: value in robust.losses.TRIMS),
}


class Evaluation(NamedTuple):
    """How a trained model is tested.

    Attributes:
        name: the kind, such as ``"noise"``.
        arguments: of this kind.
        recalibrated: first recompute the running statistics on training samples.
        samples: test only this many samples; all by default.
        rescaled: first multiply all scale-invariant weights by this factor, and recompute the running statistics.
        top: a sample counts as correct if its class is among this many with the highest scores.
        worst_group: report the accuracy of the worst group instead of that of all samples.
    """

    name: str
    arguments: Mapping[str, Any]
    recalibrated: bool = False
    samples: int | None = None
    rescaled: float | None = None
    top: int = 1
    worst_group: bool = False


class Registered(NamedTuple):
    """What a registered evaluation of images does.

    Attributes:
        prepare: changes the trained model in place; called with the model, the training samples, the seed of the run
            and the arguments of the evaluation.
        change: from the test samples to those that the model is tested on.
    """

    prepare: Callable[..., None]
    change: Callable[[Split], Split]


REGISTERED: dict[str, Registered] = {}


def register_evaluation(
    name: str, does: Registered, takes: Mapping[str, Check | None], required: Mapping[str, str] | None = None
) -> None:
    """Make an evaluation of images known by a name.

    Args:
        name: for recipes.
        does: what it does.
        takes: its arguments, each with what it must be, in words and as a test; None for one that the lab knows.
        required: arguments without a default, each with an example.
    """
    REGISTERED[name], EVALUATIONS[name] = does, tuple(takes)
    _VALUES.update({argument: check for argument, check in takes.items() if check is not None})
    _REQUIRED.update(required or {})


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

    loss(torch.ones(2))  # raise for a wrong value now, not after the data are loaded
    return loss


def parse_corruption(text: str) -> Callable[[Task, int], Task]:
    """A corruption of the training samples, such as ``offset(share=0.1)``, as a function of the task and a seed."""
    name, arguments = parse_call(text, "'clean' or 'offset(share=0.1)'")
    known(name, CORRUPTIONS, "corruption")
    _check(text, arguments, () if name == "clean" else ("share", "strength"))
    if name == "clean":
        return lambda task, seed: task
    corrupt(Split(torch.zeros(2, 1), torch.arange(2)), name, **arguments)
    return lambda task, seed: corrupt_task(task, name, seed=seed, **arguments)


def parse_evaluation(text: str) -> Evaluation:
    """An evaluation of the trained model, such as ``noise(std=0.25)`` or ``bim(eps=0.03, samples=500)``."""
    name, arguments = parse_call(text, "'clean' or 'noise(std=0.25)'")
    if name not in EVALUATIONS:
        elsewhere = import_if_of_studies("evaluation", name)
        if name not in EVALUATIONS:
            raise ValueError(elsewhere or unknown("evaluation", name, EVALUATIONS))
    own = EVALUATIONS[name]
    _check(text, arguments, (*own, *_EVERY), required=[key for key in own if key in _REQUIRED])
    given = {key: value for key, value in arguments.items() if key in own}
    common = {key: value for key, value in arguments.items() if key in _EVERY}
    return Evaluation(name, given, **common)


def canonical_spelling(text: str) -> str:
    """A choice as it is stored: one spelling, whatever the spaces and the format of numbers.

    Examples:
        >>> from geonorm.lab.choices import canonical_spelling
        >>> canonical_spelling(" augbn( phi = 1.50,learn_phi=True)")
        'augbn(phi=1.5, learn_phi=true)'
    """
    name, arguments = parse_call(text, "'bn' or 'cvar(alpha=0.2)'")
    inside = ", ".join(f"{key}={_word(value)}" for key, value in arguments.items())
    return f"{name}({inside})" if inside else name


def _word(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def known(name: str, names: Iterable[str], what: str) -> str:
    """Return the name if it is known; else raise an error with the closest one."""
    names = list(names)
    if name in names:
        return name
    raise ValueError(unknown(what, name, names))


def _check(text: str, arguments: Mapping[str, Any], takes: Iterable[str], required: Iterable[str] = ()) -> None:
    takes = list(takes)
    for key in arguments:
        if key not in takes:
            raise ValueError(f"unknown argument {key!r} in {text!r}; it takes {', '.join(takes) or 'none'}")
        expected, fits = _VALUES[key]
        if not fits(arguments[key]):
            raise ValueError(f"expected {key} in {text!r} to be {expected} (got {arguments[key]!r})")
    missing = [key for key in required if key not in arguments]
    if missing:
        example = _REQUIRED.get(missing[0], "0.1")
        raise ValueError(
            f"expected {', '.join(missing)} in {text!r}, as in {text.split('(')[0]}({missing[0]}={example})"
        )
