"""Recipes of studies, with settings that only the papers' questions need, and the source of their trainings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from geonorm.lab.choices import known
from geonorm.lab.data import Task
from geonorm.lab.ddp_team import Team
from geonorm.lab.models.parts import MakeNorm
from geonorm.lab.recipe import FORMER, Recipe, Run, listed, number
from geonorm.lab.runner import Named
from geonorm.lab.train import Training
from geonorm.nn._base import NormLayer
from geonorm.surgery.placement import is_pre_norm

from .models.joint import JOINT, JointNorm
from .models.newton import NEWTONS, NewtonNorm
from .models.standardized import FOLLOWED_BY, standardize_convolutions
from .probes import PROBES

_OF_TRAINING = ("weights_as_kappa", "own_statistics", "phi_rate")  # settings that the lab itself does not know
_NORMS: dict[str, str | MakeNorm] = {
    **{name: partial(NewtonNorm, learned=learned, closed=closed) for name, (learned, closed) in NEWTONS.items()},
    JOINT: JointNorm,
    **FOLLOWED_BY,
}


@dataclass(frozen=True)
class StudyRecipe(Recipe):
    """A recipe with settings that only studies use.

    Attributes:
        weight_scale: factor on the initial weights of convolutions and linear layers.
        weights_as_kappa: imitate this κ of POP-Norm by weights: those after a POP-Norm start at w/κ and learn at the
            rate lr/κ² with weight_decay·κ².
        own_statistics: with several processes, normalize the part of a batch on each of them by itself.
        phi_rate: factor on the learning rate of φ's parameter. At the start φ moves (dφ/dθ)² = 1/16 as far in a step of
            SGD as a φ without bounds, so that 16 gives it the same rate. Its weight decay is divided by this factor.
        probes: measurements inside the model after every epoch, see ``studies.probes``.
    """

    weight_scale: float = 1.0
    weights_as_kappa: float = 1.0
    own_statistics: bool = False
    phi_rate: float = 1.0
    probes: tuple[str, ...] = ()

    LATER: ClassVar[Mapping[str, Any]] = {
        **Recipe.LATER,
        "weights_as_kappa": 1.0,
        "own_statistics": False,
        "phi_rate": 1.0,
    }
    OTHER_NORMS: ClassVar[tuple[str, ...]] = tuple(_NORMS)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("weight_scale", "weights_as_kappa", "phi_rate"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        object.__setattr__(self, "probes", tuple(known(one, PROBES, "probes") for one in listed("probes", self.probes)))
        if not self.weight_scale > 0:
            raise ValueError(f"expected weight_scale > 0 (got {self.weight_scale})")
        if not self.weights_as_kappa > 0 or (self.weights_as_kappa != 1 and self.optimizer != "sgd"):
            raise ValueError(
                "expected weights_as_kappa above 0, and other than 1 only with the optimizer 'sgd' "
                f"(got {self.weights_as_kappa} with {self.optimizer!r})"
            )
        if not self.phi_rate > 0 or (self.phi_rate != 1 and self.optimizer != "sgd"):
            raise ValueError(
                "expected phi_rate above 0, and other than 1 only with the optimizer 'sgd' "
                f"(got {self.phi_rate} with {self.optimizer!r})"
            )


@dataclass(frozen=True)
class OwnStatistics(Team):
    """Processes whose norms do not share statistics, as with torch's BatchNorm. Tests use those of the first one."""

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model to call in training: gradients are averaged."""
        return model if self.size == 1 else DistributedDataParallel(model)


@dataclass(frozen=True)
class StudySource(Named):
    """Data and models by the names in the run, with the settings of studies applied."""

    def model(self, run: Run, task: Task) -> nn.Module:
        """The model, with its initial weights scaled."""
        plain = {name: value for name, value in run.choices.items() if name not in _OF_TRAINING}
        model = super().model(Run(plain | dict(FORMER)), task)
        if run["norm"] in FOLLOWED_BY:
            standardize_convolutions(model)
        _scale_weights(model, run["weight_scale"])
        return model

    def norm(self, run: Run) -> str | MakeNorm:
        """The norm for a network of the lab."""
        return _NORMS.get(run["norm"]) or super().norm(run)

    def training(self, run: Run, task: Task, team: Team) -> Training:
        """The training, with weights that imitate κ, with the rate of φ, and with the probes."""
        kappa, phi_rate = (run.choices.get(name, 1.0) for name in ("weights_as_kappa", "phi_rate"))
        if run.choices.get("own_statistics", False):
            team = OwnStatistics(team.rank, team.size)

        def groups(model: nn.Module) -> list[dict[str, Any]]:
            rest, *others = _imitating_kappa(model, kappa, run["weight_decay"])
            return [*_with_phi_apart(model, rest, phi_rate, run["weight_decay"]), *others]

        def measure(model: nn.Module, task: Task) -> dict[str, Any]:
            return {name: PROBES[name](model, task) for name in run["probes"]}

        return Training(self.model(run, task), task, run.choices, team, groups, measure)


def _scale_weights(model: nn.Module, factor: float) -> None:
    if factor == 1:
        return
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                module.weight *= factor


def _imitating_kappa(model: nn.Module, kappa: float, decay: float) -> list[dict[str, Any]]:
    """Groups of parameters for SGD, with weights after POP-Norms changed: F(w/κ) from w is F(v) from v = w/κ."""
    behind = [module.get_parameter("weight") for module in model.modules() if is_pre_norm(module) and kappa != 1]
    with torch.no_grad():
        for weight in behind:
            weight.div_(kappa)
    chosen = {id(weight) for weight in behind}
    groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if id(p) not in chosen]}]
    if behind:
        groups.append({"params": behind, "weight_decay": decay * kappa**2, "share": 1 / kappa**2})
    return groups


def _with_phi_apart(model: nn.Module, group: dict[str, Any], rate: float, decay: float) -> list[dict[str, Any]]:
    """The group, with the parameters of learned exponents in another one that has its own rate."""
    exponents = [layer.phi_offset for layer in model.modules() if isinstance(layer, NormLayer) and layer.learn_phi]
    if rate == 1 or not exponents:
        return [group]
    chosen = {id(one) for one in exponents}
    rest = [parameter for parameter in group["params"] if id(parameter) not in chosen]
    return [{**group, "params": rest}, {"params": exponents, "weight_decay": decay / rate, "share": rate}]
