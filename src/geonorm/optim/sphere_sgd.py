"""``SphereSGD``: SGD with momentum that keeps the length of scale-invariant weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD
from torch.optim.sgd import sgd

from .spheres import NO_SPHERE, Sphere

_UNITS = ("row", "group", "matrix", None)


class SphereSGD(SGD):
    """SGD on spheres for scale-invariant weights, torch's SGD for all others.

        g ← (I − ŵŵᵗ)∇        m ← μ(I − ŵŵᵗ)m + (1 − d)g        w ← r · (w − ηm)/‖w − ηm‖

    for each part w of an invariant weight: a row, a group of rows or the whole matrix. r is the length that the part
    has at its first step. The momentum is carried to the new point by projection onto its tangent space. Weight decay
    has no effect on these weights, since it points along w; learning rates act as η/r². Parts of length 0 take a plain
    step first. Torch's own SGD updates all other parameters, and a weight whose joint bias has no gradient, for example
    because it was frozen: then the size of the weight matters.

    Args:
        params: parameters or groups, as from ``project_scale_invariant(model)``. A group on spheres has the key
            ``unit``: ``"row"``, ``"group"`` (with ``parts``, the number of groups) or ``"matrix"``; ``dim`` is the
            dimension that counts rows, and ``joint`` makes its parameters one system, such as a weight with its bias.
        lr: learning rate.
        momentum, dampening, weight_decay, nesterov, maximize: as in ``torch.optim.SGD``.

    Examples:
        >>> import torch
        >>> from geonorm.optim import SphereSGD
        >>> weight, bias = torch.nn.Parameter(torch.tensor([[3.0, 4.0]])), torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = SphereSGD([{"params": [weight], "unit": "row"}, {"params": [bias]}], lr=0.1)
        >>> (weight.sum() + bias).sum().backward()
        >>> optimizer.step()
        >>> print(f"{weight.norm().item():.4f} {bias.item():.1f}")
        5.0000 -0.1
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, maximize=maximize, foreach=False)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; see the class for its keys."""
        for key, value in NO_SPHERE.items():
            param_group.setdefault(key, value)
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            _check(group)
        except ValueError:
            self.param_groups.pop()
            raise

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of another SphereSGD; that of an SGD does not say which weights are on spheres."""
        if not all("unit" in group for group in state_dict["param_groups"]):
            raise ValueError(
                "expected a state_dict of SphereSGD (got one whose groups have no unit); start a new optimizer"
            )
        super().load_state_dict(state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; returns the result of ``closure``, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["unit"] is None:
                self._plain_step(group)
            else:
                for parameters, dims in _systems(group):
                    self._step_on_sphere(parameters, dims, group)
        return loss

    def _plain_step(self, group: dict[str, Any]) -> None:
        parameters: list[Tensor] = [p for p in group["params"] if p.grad is not None]
        if not parameters:
            return
        buffers: list[Tensor | None] = [self.state[p].get("momentum_buffer") for p in parameters]
        sgd(
            parameters,
            [p.grad for p in parameters if p.grad is not None],
            buffers,
            has_sparse_grad=any(p.grad is not None and p.grad.is_sparse for p in parameters),
            foreach=False,
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=group["lr"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
        )
        if group["momentum"]:
            for parameter, buffer in zip(parameters, buffers, strict=True):
                self.state[parameter]["momentum_buffer"] = buffer

    def _step_on_sphere(self, parameters: list[Tensor], dims: list[int], group: dict[str, Any]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        if len(gradients) < len(parameters):
            # If the bias has been frozen since, the size of the weight matters: leave the sphere.
            self._plain_step({**group, "params": parameters})
            if gradients:
                self.state[parameters[0]].pop("radius", None)
            return
        if any(g.is_sparse for g in gradients):
            raise RuntimeError(
                "expected dense gradients for weights on spheres (got sparse ones); set unit=None for them"
            )
        states = [self.state[p] for p in parameters]
        sphere = Sphere(parameters, dims, _number(group, parameters[0]), states[0].get("radius"))
        directions = sphere.tangent([-g if group["maximize"] else g for g in gradients])
        if group["momentum"]:
            if "momentum_buffer" in states[0]:
                carried = sphere.tangent([state["momentum_buffer"] for state in states])
                keep = 1 - group["dampening"]
                moments = [group["momentum"] * m + keep * d for m, d in zip(carried, directions, strict=True)]
            else:
                moments = [d.clone() for d in directions]
            for state, moment in zip(states, moments, strict=True):
                state["momentum_buffer"] = moment
            nesterov = [d + group["momentum"] * m for d, m in zip(directions, moments, strict=True)]
            directions = nesterov if group["nesterov"] else moments
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.sub_(direction * group["lr"])
        sphere.project()
        states[0]["radius"] = sphere.radius


def _systems(group: dict[str, Any]) -> Iterator[tuple[list[Tensor], list[int]]]:
    """The sets of tensors that share spheres."""
    if group["joint"]:
        # Only the weight may count its rows elsewhere; biases have one dimension.
        yield group["params"], [group["dim"] if p.dim() > 1 else 0 for p in group["params"]]
    else:
        for parameter in group["params"]:
            yield [parameter], [group["dim"]]


def _number(group: dict[str, Any], weight: Tensor) -> int:
    if group["unit"] == "group":
        return int(group["parts"])
    return 1 if group["unit"] == "matrix" else int(weight.shape[group["dim"]])


def _check(group: dict[str, Any]) -> None:
    if group["unit"] not in _UNITS:
        raise ValueError(f"expected unit to be one of {_UNITS} (got {group['unit']!r})")
    if group["unit"] is None:
        return
    if group["unit"] == "group" and (group["parts"] is None or group["parts"] < 1):
        raise ValueError(f"expected the number of groups of rows with unit='group' (got {group['parts']}); pass parts=")
    for parameters, dims in _systems(group):
        for parameter, dim in zip(parameters, dims, strict=True):
            if not 0 <= dim < parameter.dim() or parameter.shape[dim] % _number(group, parameters[0]):
                raise ValueError(
                    f"expected dimension {dim} to be divisible into parts (got shape {tuple(parameter.shape)} in a "
                    f"group with unit={group['unit']!r}, parts={group['parts']}); set unit=None for parameters that "
                    "are not on spheres"
                )
