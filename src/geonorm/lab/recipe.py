"""A recipe: everything that defines a comparison: data, model, norms, losses, corruptions, seeds and training."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from ..nn.specs import create_norm, parse_spec
from .augment import AUGMENTS
from .choices import REGISTERED, canonical_spelling, known, parse_corruption, parse_evaluation, parse_loss
from .devices import CPU, DEVICES, FLOAT32, MPS, PRECISIONS, find_device
from .extras import require
from .repository import OF_STUDIES
from .store import key_of

OWN = "own"  # instead of a norm: keep those of the user's model
DIGITS = Path(__file__).with_name("digits.toml")  # the default comparison of `geonorm compare`
OPTIMIZERS = ("sgd", "adam", "sphere_sgd")
DECAYS = ("constant", "linear", "cosine", "step")


def _check_norm(spec: str) -> None:
    if spec == OWN:
        return
    if spec in OF_STUDIES["norm"]:
        raise ValueError(
            f"the norm {spec!r} is of a study: geonorm reproduce carries it out, in a clone of the repository"
        )
    parsed = parse_spec(spec)
    if parsed.norm.build is not None:
        create_norm(parsed)  # raise for a wrong argument now


_PARSERS: dict[str, Callable[[str], Any]] = {
    "norms": _check_norm,
    "losses": parse_loss,
    "corruptions": parse_corruption,
    "evaluations": parse_evaluation,
}


@dataclass(frozen=True)
class Recipe:
    """The definition of a comparison.

    With the same seed, every norm starts from the same weights and gets the same batches in the same order.

    Attributes:
        data: name of the data, see ``geonorm.lab.data.sources()``; or ``file.py:function``, as ``make_data`` of
            ``compare``.
        data_options: its options.
        model: name of the network, see ``geonorm.lab.models.models()``; or ``file.py:function``.
        model_options: its options, such as width.
        norms: specs, see ``geonorm.norms()``; ``"own"`` leaves the norms of a model of your own.
        losses: ``"erm"``, ``"cvar(alpha=0.2)"``, ...
        corruptions: of the training samples: ``"clean"``, ``"offset(share=0.1)"``, ...
        evaluations: of the trained model: ``"clean"``, ``"noise(std=0.25)"``, ``"bim(eps=0.03)"``, ...; with
            ``recalibrated=true``, after its statistics were recomputed on the training samples; with
            ``rescaled=10``, also after its scale-invariant weights were multiplied by 10; with
            ``worst_group=true``, the accuracy of the worst group of the data.
        seeds: one training each.
        folds: number of folds for cross-validation; 0 for the data's own training and test samples.
        epochs, batch_size, lr, momentum, weight_decay: the training.
        optimizer: ``"sgd"``, ``"adam"``, which ignores ``momentum``, or ``"sphere_sgd"``.
        decay: of the learning rate: ``"constant"``, ``"linear"``, ``"cosine"``, or ``"step"``: divide it by
            ten at each milestone.
        milestones: fractions of the epochs.
        augment: of the training images: ``"flip"``, ``"crop"``, ``"window"``.
        clip_inputs: bound on the distance of inputs from their mean, in standard deviations of the samples before they
            were corrupted; 0 for no bound.
        clip_gradients: bound on the norm of the gradient; 0 for no bound.
        skip_nonfinite: leave samples with a loss that is not finite out of the mean, and skip the step if none is left.
        threads: threads per process; part of the recipe, because the last digits of sums depend on it.
        processes: how many train one model together, each with a part of every batch; more than one need torchrun.
        device: where models are trained and tested: ``"cpu"``, ``"cuda"`` or ``"mps"``; ``"auto"`` becomes the first
            of CUDA, MPS and the CPU that is here. Part of the recipe, because the last digits depend on it.
        precision: of the forward passes in training: ``"float32"``, or ``"bf16"`` for torch's autocast. Tests are in
            float32.

    Examples:
        >>> from geonorm.lab import Recipe
        >>> recipe = Recipe(norms=("bn", "robustbn"), seeds=(0, 1, 2))
        >>> len(recipe.runs())
        6
    """

    data: str = "digits"
    data_options: Mapping[str, Any] = field(default_factory=dict)
    model: str = "mlp"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    norms: tuple[str, ...] = ("bn", "augbn(phi=1.5)")
    losses: tuple[str, ...] = ("erm",)
    corruptions: tuple[str, ...] = ("clean",)
    evaluations: tuple[str, ...] = ("clean",)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    folds: int = 0
    epochs: int = 20
    batch_size: int = 64
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 0.0
    decay: str = "constant"
    milestones: tuple[float, ...] = (0.5, 0.75)
    augment: tuple[str, ...] = ()
    clip_inputs: float = 0.0
    clip_gradients: float = 0.0
    skip_nonfinite: bool = False
    threads: int = 1
    processes: int = 1
    device: str = CPU
    precision: str = FLOAT32

    # Fields that older stores do not have: with these values they are not part of a run's key.
    LATER: ClassVar[Mapping[str, Any]] = {
        "clip_inputs": 0.0,
        "clip_gradients": 0.0,
        "skip_nonfinite": False,
        "device": CPU,
        "precision": FLOAT32,
    }
    # Norms that are no specs: the source of the runs builds them.
    OTHER_NORMS: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name, parse in _PARSERS.items():
            specs = tuple(canonical_spelling(spec) for spec in listed(name, getattr(self, name)))
            for spec in specs:
                if name != "norms" or spec not in self.OTHER_NORMS:
                    parse(spec)
            self._set_once(name, specs)
        seeds = listed("seeds", self.seeds)
        for seed in seeds:
            if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
                raise ValueError(f"expected seeds to be whole numbers from 0 to 2**32 - 1 (got {seed!r})")
        self._set_once("seeds", seeds)
        augment = tuple(known(one, AUGMENTS, "augment") for one in listed("augment", self.augment))
        object.__setattr__(self, "augment", augment)
        shares = tuple(number("milestones", share) for share in listed("milestones", self.milestones))
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"expected milestones as fractions of the epochs, from 0 to 1 (got {list(shares)})")
        object.__setattr__(self, "milestones", shares)
        for name in ("epochs", "batch_size", "threads", "processes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"expected {name} to be a whole number from 1 (got {value!r})")
        if not isinstance(self.folds, int) or isinstance(self.folds, bool) or self.folds < 0 or self.folds == 1:
            raise ValueError(f"expected folds to be 0, or at least 2 (got {self.folds!r})")
        for name in (*_NUMBERS, *_BOUNDS):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        if not self.lr > 0 or not 0 <= self.momentum < 1 or self.weight_decay < 0:
            raise ValueError(
                "expected lr > 0, momentum from 0 to below 1 and weight_decay from 0 "
                f"(got {self.lr}, {self.momentum} and {self.weight_decay})"
            )
        self._check_cures()
        known(self.optimizer, OPTIMIZERS, "optimizer")
        known(self.decay, DECAYS, "decay")
        object.__setattr__(self, "device", known(find_device(self.device), DEVICES, "device"))
        known(self.precision, PRECISIONS, "precision")
        if self.device == MPS:
            self._check_mps()
        for name in ("data", "model"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"expected {name} to be a name (got {getattr(self, name)!r})")
            object.__setattr__(self, f"{name}_options", _plain(f"{name}_options", getattr(self, f"{name}_options")))

    def _check_cures(self) -> None:
        for name in _BOUNDS:
            if getattr(self, name) < 0:
                raise ValueError(f"expected {name} above 0, or 0 for none (got {getattr(self, name)})")
        if not isinstance(self.skip_nonfinite, bool):
            raise ValueError(f"expected skip_nonfinite to be true or false (got {self.skip_nonfinite!r})")
        if self.skip_nonfinite and (self.losses != ("erm",) or self.processes > 1):
            raise ValueError(
                "expected the loss 'erm' alone and one process with skip_nonfinite "
                f"(got {', '.join(self.losses)} and {self.processes})"
            )

    def _check_mps(self) -> None:
        if self.processes > 1:
            raise ValueError(f"expected one process with device 'mps' (got {self.processes}); a Mac has one GPU")
        for text in self.evaluations:
            how = parse_evaluation(text)
            if how.recalibrated or how.rescaled is not None or how.name in (*REGISTERED, "pruned"):
                raise ValueError(f"{text!r} needs float64, which device 'mps' does not have; use the CPU")

    def _set_once(self, name: str, values: tuple[Any, ...]) -> None:
        if not values:
            raise ValueError(f"expected at least one of {name} (got none)")
        if len(set(values)) < len(values):
            raise ValueError(f"expected each of {name} once (got {values})")
        object.__setattr__(self, name, values)

    def runs(self) -> list[Run]:
        """All trainings of the recipe: seed by seed, so that results can be compared early."""
        settings = dict(FORMER) | {key: value for key, value in self.to_dict().items() if key not in _LISTS}
        for key, without in self.LATER.items():
            if settings[key] == without:
                del settings[key]
        folds = range(self.folds) if self.folds else [None]
        return [
            Run({**settings, "norm": norm, "loss": loss, "corruption": corruption, "seed": seed, "fold": fold})
            for seed, fold, corruption, loss, norm in product(
                self.seeds, folds, self.corruptions, self.losses, self.norms
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, ready for JSON."""
        values = dataclasses.asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """A recipe from plain values; the error for an unknown field suggests the closest one."""
        for name in values:
            known(name, [field.name for field in dataclasses.fields(cls)], "field of a recipe")
        return cls(**values)

    @classmethod
    def from_toml(cls, path: str | Path) -> Recipe:
        """A recipe from a TOML file with these fields."""
        reader = require("tomllib" if sys.version_info >= (3, 11) else "tomli", "tomli")
        try:
            return cls.from_dict(reader.loads(Path(path).read_text(encoding="utf-8")))
        except reader.TOMLDecodeError as error:
            raise ValueError(f"{path} is not valid TOML: {error}") from error


_LISTS = ("norms", "losses", "corruptions", "seeds")
# Settings of all runs in older stores: part of their keys, but no longer fields of a recipe.
FORMER: Mapping[str, Any] = {"weight_scale": 1.0, "probes": []}
_NUMBERS = ("lr", "momentum", "weight_decay")
_BOUNDS = ("clip_inputs", "clip_gradients")
AXES = ("norm", "loss", "corruption", "seed", "fold")  # in which runs of one comparison may differ


def study_settings(settings: Mapping[str, Any]) -> list[str]:
    """The names of settings that are not in a recipe but belong to a study of the repository."""
    fields = {field.name for field in dataclasses.fields(Recipe)}
    ours = {*fields, *AXES, "code"}
    return [name for name, value in settings.items() if name not in ours and FORMER.get(name) != value]


def listed(name: str, values: Any) -> tuple[Any, ...]:
    """The values as a tuple; a single value counts as one."""
    if isinstance(values, str | int):
        return (values,)
    if not isinstance(values, Iterable) or isinstance(values, Mapping):
        raise ValueError(f"expected {name} to be a list (got {values!r})")
    return tuple(values)


def number(name: str, value: Any) -> float:
    """A number as a float, so that 1 and 1.0 give the same recipe."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"expected {name} to be a number (got {value!r})")
    return float(value)


def _plain(name: str, options: Any) -> dict[str, Any]:
    """Options as plain values that can be stored."""
    try:
        if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
            raise TypeError("it is not a table")
        json.dumps(dict(options))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"expected {name} to be a table of texts, numbers, truth values and lists (got {options!r}: {error})"
        ) from error
    return dict(options)


@dataclass(frozen=True)
class Run:
    """One training: all its settings, and their key in a store."""

    choices: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The hash of the choices."""
        return key_of(self.choices)

    @property
    def device(self) -> str:
        """Where it is trained. Runs of older stores, which do not say so, were trained on the CPU."""
        found: str = self.choices.get("device", CPU)
        return found

    def __getitem__(self, name: str) -> Any:
        return self.choices[name]
