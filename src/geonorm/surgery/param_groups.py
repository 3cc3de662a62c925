"""``param_groups``: parameter groups with weight decay only where it is useful."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn import Parameter
from torch.nn.utils.parametrizations import _WeightNorm

from ..html.text import table
from ..introspect.layouts import is_norm
from ..introspect.select import check_model


class ParamGroups(list[dict[str, Any]]):
    """Parameter groups for an optimizer. Prints as a table."""

    def __init__(self, groups: Iterable[dict[str, Any]], names: dict[str, list[str]]) -> None:
        super().__init__(groups)
        self._names = names

    def __str__(self) -> str:
        rows = [
            (
                group["name"],
                str(len(group["params"])),
                str(sum(p.numel() for p in group["params"])),
                f"{group['weight_decay']:g}",
                f"{group['lr']:g}" if "lr" in group else "",
                _shortened(self._names[group["name"]]),
            )
            for group in self
        ]
        return "\n".join(table(("group", "tensors", "values", "weight decay", "lr", "such as"), rows))


def param_groups(model: nn.Module, weight_decay: float, phi_lr: float | None = None) -> ParamGroups:
    """Parameter groups for an optimizer, with weight decay for the weights of operations only.

        decay: weights of operations        no_decay: biases, and all parameters of norms        phi: learned φ

    On γ, β, φ or α, weight decay does not regularize the network. Works with torch's norms and those of this
    library; the length of a weight-normalized weight counts as a parameter of a norm. Frozen parameters are left out.

    Args:
        model: any model.
        weight_decay: of the decayed group.
        phi_lr: the learning rate of learned φ; by default φ is in the group without decay.

    Examples:
        >>> import torch, geonorm
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), geonorm.AugBatchNorm1d(8, learn_phi=True))
        >>> groups = geonorm.param_groups(model, 1e-4, phi_lr=0.01)
        >>> print(groups)
        group     tensors  values  weight decay  lr    such as
        --------  -------  ------  ------------  ----  ------------------------
        decay     1        32      0.0001              0.weight
        no_decay  3        24      0                   0.bias, 1.weight, 1.bias
        phi       1        8       0             0.01  1.phi_offset
        >>> optimizer = torch.optim.SGD(groups, lr=0.1)
    """
    check_model(model, "group the parameters of")
    for what, value in (("weight_decay", weight_decay), ("phi_lr", 0.0 if phi_lr is None else phi_lr)):
        if not value >= 0:
            raise ValueError(f"expected {what} >= 0 (got {value})")
    params: dict[str, list[Parameter]] = {"decay": [], "no_decay": [], "phi": []}
    names: dict[str, list[str]] = {key: [] for key in params}
    kinds: dict[int, tuple[str, str, Parameter]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        kind = _kind(model, name, phi_lr is not None)
        # A parameter that is shared with a norm, or used as a bias anywhere, is not decayed.
        known = kinds.get(id(parameter))
        if known is None or known[0] == "decay":
            kinds[id(parameter)] = (kind, name if known is None else known[1], parameter)
    for kind, name, parameter in kinds.values():
        if parameter.requires_grad:
            params[kind].append(parameter)
            names[kind].append(name)
    settings: dict[str, dict[str, Any]] = {
        "decay": {"weight_decay": weight_decay},
        "no_decay": {"weight_decay": 0.0},
        "phi": {"weight_decay": 0.0, "lr": phi_lr},
    }
    return ParamGroups(
        [{"name": kind, "params": params[kind], **settings[kind]} for kind in params if params[kind]], names
    )


def _kind(model: nn.Module, full_name: str, phi_apart: bool) -> str:
    owner, _, name = full_name.rpartition(".")
    module = model.get_submodule(owner)
    is_length = False  # of a weight-normalized weight
    if isinstance(module, nn.utils.parametrize.ParametrizationList):
        # owner.parametrizations.weight.original1: the owner's weight, in parts
        normed = any(isinstance(step, _WeightNorm) for step in module)
        owner, _, name = owner.rpartition(".")
        is_length = normed and full_name.endswith(".original0")
        module = model.get_submodule(owner.rpartition(".")[0])
    if name == "phi_offset" and phi_apart:
        return "phi"
    is_bias = name.startswith("bias") or "_bias" in name
    return "no_decay" if is_norm(module) or is_bias or is_length or name == "weight_g" else "decay"


def _shortened(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
