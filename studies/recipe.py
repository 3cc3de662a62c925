"""Recipes of studies, with settings that only the papers' questions need, and the source of their trainings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from geonorm.lab.choices import known
from geonorm.lab.data import Task
from geonorm.lab.ddp_team import Team
from geonorm.lab.models.parts import MakeNorm
from geonorm.lab.recipe import FORMER, Recipe, Run, listed, number
from geonorm.lab.runner import Named
from geonorm.lab.train import Training
from geonorm.surgery.placement import is_pre_norm

from .models.newton import NEWTON, NewtonNorm
from .models.standardized import FOLLOWED_BY, standardize_convolutions
from .probes import PROBES


@dataclass(frozen=True)
class StudyRecipe(Recipe):
    """A recipe with settings that only studies use.

    Attributes:
        weight_scale: factor on the initial weights of convolutions and linear layers.
        weights_as_kappa: imitate this κ of POP-Norm by weights: those after a POP-Norm start at w/κ and learn at the
            rate lr/κ² with weight_decay·κ².
        probes: measurements inside the model after every epoch, see ``studies.probes``.
    """

    weight_scale: float = 1.0
    weights_as_kappa: float = 1.0
    probes: tuple[str, ...] = ()

    LATER: ClassVar[Mapping[str, Any]] = {**Recipe.LATER, "weights_as_kappa": 1.0}
    OTHER_NORMS: ClassVar[tuple[str, ...]] = (NEWTON, *FOLLOWED_BY)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("weight_scale", "weights_as_kappa"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        object.__setattr__(self, "probes", tuple(known(one, PROBES, "probes") for one in listed("probes", self.probes)))
        if not self.weight_scale > 0:
            raise ValueError(f"expected weight_scale > 0 (got {self.weight_scale})")
        if not self.weights_as_kappa > 0 or (self.weights_as_kappa != 1 and self.optimizer != "sgd"):
            raise ValueError(
                "expected weights_as_kappa above 0, and other than 1 only with the optimizer 'sgd' "
                f"(got {self.weights_as_kappa} with {self.optimizer!r})"
            )


@dataclass(frozen=True)
class StudySource(Named):
    """Data and models by the names in the run, with the settings of studies applied."""

    def model(self, run: Run, task: Task) -> nn.Module:
        """The model, with its initial weights scaled."""
        plain = {name: value for name, value in run.choices.items() if name != "weights_as_kappa"}
        model = super().model(Run(plain | dict(FORMER)), task)
        if run["norm"] in FOLLOWED_BY:
            standardize_convolutions(model)
        _scale_weights(model, run["weight_scale"])
        return model

    def norm(self, run: Run) -> str | MakeNorm:
        """The norm for a network of the lab."""
        if run["norm"] == NEWTON:
            return lambda channels: NewtonNorm(channels, learned=True)
        return FOLLOWED_BY.get(run["norm"]) or super().norm(run)

    def training(self, run: Run, task: Task, team: Team) -> Training:
        """The training, with weights that imitate κ and with the probes."""
        kappa = run.choices.get("weights_as_kappa", 1.0)

        def groups(model: nn.Module) -> list[dict[str, Any]]:
            return _imitating_kappa(model, kappa, run["weight_decay"])

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
