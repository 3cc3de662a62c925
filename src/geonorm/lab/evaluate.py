"""The final test of a trained model: clean, with noise, degraded, attacked, without some channels, or as registered."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from .. import robust
from ..analysis.pruning.channels import Drop, masked
from ..analysis.pruning.prune import prune
from ..introspect.scale_parts import parts_by_table, rescale
from ..surgery import recalibrate
from .batches import Inputs, in_order
from .choices import ATTACKS, REGISTERED, Evaluation
from .data import DEGRADATIONS, Split, Task, degrade
from .data.cifar_c import corrupted_images, opened
from .devices import home_of, moved
from .train import correct

_BATCH = 256
_CHOSEN_ON = 512  # training samples used to choose channels to prune
_AS_THEY_ARE = ("clean", "pruned", "cifar10c")


def evaluate(model: nn.Module, task: Task, how: Evaluation, seed: int, tested: Tensor | None = None) -> dict[str, Any]:
    """Accuracy of a model under one evaluation: correct samples, their total, and the worst group if there are groups.

    Args:
        model: the trained model; it is not changed.
        task: its data.
        how: the evaluation.
        seed: of the noise.
        tested: which clean test samples it classifies correctly, if that is known already.
    """
    split = corrupted_images(**how.arguments) if how.name == "cifar10c" else task.test
    if how.samples is not None:
        split = split.sample(how.samples)
    found: dict[str, Any] = {}
    if tested is not None and how._replace(worst_group=False) == Evaluation("clean", {}):
        right = tested
    else:
        right, found = _tested(copy.deepcopy(model), task, split, how, seed)
    found |= {"accuracy": float(right.double().mean()), "correct": int(right.sum()), "total": len(right)}
    if split.groups is not None:
        groups = robust.group_accuracy(right, split.groups)
        found |= {"worst_group": groups.worst, "groups": groups.per_group.tolist()}
        if how.worst_group:
            found["accuracy"] = groups.worst
    return found


def _tested(model: nn.Module, task: Task, split: Split, how: Evaluation, seed: int) -> tuple[Tensor, dict[str, Any]]:
    """Which samples are correct, and further figures. The model is changed as the evaluation requires."""
    if how.rescaled is not None:
        rescale(model, parts_by_table(model.train()), how.rescaled)
    if how.recalibrated or how.rescaled is not None:
        recalibrate(model, Inputs(task.train, _BATCH, home_of(model)), forward=lambda net, inputs: net(*inputs))
    if how.name in REGISTERED:
        REGISTERED[how.name].prepare(model, task.train, seed, **how.arguments)
    found: dict[str, Any] = {}
    drops: list[Drop] = []
    if how.name == "pruned":
        drops, found["similarity"] = _left_out(model, task.train, seed, **how.arguments)
    with masked(model, drops):
        return correct(model, _changed(model, split, how, seed), top=how.top), found


def _changed(model: nn.Module, split: Split, how: Evaluation, seed: int) -> Split:
    """The samples of this evaluation, with the model changed if it requires that."""
    if how.name in _AS_THEY_ARE:
        return split
    x = split.tensor()
    if how.name == "noise":
        return replace(
            split, x=robust.gaussian_noise(x, generator=torch.Generator().manual_seed(seed), **how.arguments)
        )
    if how.name in ATTACKS:
        torch.manual_seed(seed)
        batches = (moved(batch, home_of(model)) for batch in in_order(replace(split, x=x), _BATCH))
        parts = [ATTACKS[how.name](model, batch.inputs[0], batch.labels, **how.arguments).cpu() for batch in batches]
        return replace(split, x=torch.cat(parts))
    if how.name in REGISTERED:
        return REGISTERED[how.name].change(split)
    return degrade(replace(split, x=x), how.name, seed=seed, **how.arguments)


def _left_out(
    model: nn.Module, split: Split, seed: int, rule: str, share: float
) -> tuple[list[Drop], dict[str, float]]:
    """The channels that a rule leaves out, chosen on training samples; and how similar neighbours in (γ, β) are."""
    batches = [(*batch.inputs, batch.labels) for batch in in_order(split.sample(_CHOSEN_ON), _BATCH)]
    found = prune(model, batches, (share,), (rule,), seed=seed)
    return found.orders[rule], found.similarity


def check_evaluation(task: Task, how: Evaluation) -> None:
    """Raise if an evaluation is impossible on these samples: before the training, not after it."""
    if how.worst_group and task.test.groups is None:
        raise ValueError(f"expected data with groups for worst_group=true (got {task.name}, which has none)")
    if how.name == "clean":
        return
    if how.name == "cifar10c":
        if task.name != "cifar10" or task.input_shape != (3, 32, 32):
            raise ValueError(
                f"expected cifar10 at 32×32 for the evaluation 'cifar10c' (got {task.name} of shape {task.input_shape})"
            )
        opened(how.arguments["corruption"])
        return
    if isinstance(task.test.x, list):
        raise ValueError(f"expected samples that are tensors for the evaluation {how.name!r} (got graphs); use 'clean'")
    if not isinstance(task.test.x, Tensor):
        return  # images in files are valid
    x = task.test.x
    if not x.is_floating_point():
        raise ValueError(f"expected floating-point inputs for the evaluation {how.name!r} (got {x.dtype}); use 'clean'")
    if how.name in (*DEGRADATIONS, *REGISTERED) and how.name != "noise" and x.dim() != 4:
        raise ValueError(f"expected images for the evaluation {how.name!r} (got inputs of shape {tuple(x.shape[1:])})")
    if how.name not in ("noise", "pruned") and len(x) and not 0 <= float(x.min()) <= float(x.max()) <= 1:
        raise ValueError(
            f"expected inputs from 0 to 1 for the evaluation {how.name!r} (got {float(x.min()):.4g} to "
            f"{float(x.max()):.4g}); scale the data, and put geonorm.robust.Standardize into the model"
        )
