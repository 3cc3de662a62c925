"""The size of one scale-invariant weight during training, and what theory predicts.

A gradient is orthogonal to the part w it belongs to, so plain SGD with weight decay λ gives exactly
    ‖w⁺‖² = (1 − ηλ)²‖w‖² + η²‖∇‖²,
and with ∇ = g̃/‖w‖ growth and decay balance at ‖w‖⁴ = ηE‖g̃‖²/(2λ). Momentum m multiplies the steps by 1/(1 − m).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from ...introspect.scale_parts import Parts, dots

# ‖g̃‖² is averaged over all records at first, later over about this many.
_MEMORY = 50


class _Rule(NamedTuple):
    """How an optimizer updates a weight.

    Attributes:
        rate, decay, momentum: η, λ and m.
        is_plain: SGD without momentum: growth can be predicted.
        is_sgd: SGD with or without momentum: growth and decay balance at a known size.
        follows_gradient: any SGD, including subclasses: a step is η times the gradient or its average.
    """

    rate: float
    decay: float
    momentum: float
    is_plain: bool
    is_sgd: bool
    follows_gradient: bool


class WeightWatch:
    """Measures one weight before and after a step."""

    def __init__(self, model: nn.Module, parts: Parts, optimizer: Optimizer | None) -> None:
        self.name, self.parts = parts.parameter, parts
        members = parts.members(model)
        self.tensors, self.dims = [p for p, _ in members], [dim for _, dim in members]
        self.optimizer = optimizer
        self._mean_square: Tensor | float = 0.0  # average of ‖g̃‖² of each part
        self._seen = 0
        self.forget()

    def forget(self) -> None:
        """Start a new step: earlier measurements belong to another one."""
        self._squares: Tensor | None = None
        self._gradients: Tensor | None = None
        self._squares_after: Tensor | None = None
        self._rule: _Rule | None = None
        self._has_closure = False

    @torch.no_grad()
    def before(self, has_closure: bool = False) -> None:
        """Right before the optimizer's step. With a closure, the current gradients are old: it computes new ones."""
        self._squares, self._rule, self._has_closure = self._sizes(), self._find_rule(), has_closure
        if not has_closure:
            self._read_gradients()

    @torch.no_grad()
    def after(self) -> None:
        """Right after the optimizer's step. SGD keeps the gradients that it used."""
        if self._has_closure and self._rule is not None and self._rule.follows_gradient:
            self._read_gradients()
        self._squares_after = self._sizes()

    def _read_gradients(self) -> None:
        gradients = [p.grad for p in self.tensors]
        if self._rule is None or self._squares is None:
            return
        if all(g is not None and not g.is_sparse for g in gradients):
            g = [gradient.double() for gradient in gradients if gradient is not None]
            self._gradients = dots(g, g, self.dims, self.parts.number)
            self._seen += 1
            new = self._gradients * self._squares
            self._mean_square = self._mean_square + (new - self._mean_square) / min(self._seen, _MEMORY)

    @torch.no_grad()
    def record(self) -> dict[str, Any]:
        """Values of this step; ``None`` if not measured."""
        squares = self._sizes() if self._squares_after is None else self._squares_after
        found: dict[str, Any] = {
            "unit": self.parts.kind,
            "norm": float(squares.sum().sqrt()),
            "smallest": float(squares.min().sqrt()),
            "largest": float(squares.max().sqrt()),
            "effective_rate": None,
            "growth": None,
            "predicted": None,
            "equilibrium": None,
        }
        rule = self._rule
        if rule is not None and rule.follows_gradient:  # a step of Adam or LBFGS is not η∇
            found["effective_rate"] = float((rule.rate / squares).median())
        before, after = self._squares, self._squares_after
        if before is not None and after is not None and self._gradients is not None and rule is not None:
            found["growth"] = float((after - before).sum())
            if rule.is_plain:
                shrunk = (2 - rule.rate * rule.decay) * rule.rate * rule.decay
                found["predicted"] = float((rule.rate**2 * self._gradients - shrunk * before).sum())
            if rule.is_sgd and rule.decay > 0:
                # ‖w‖² of each part from its ‖w‖⁴; their sum is ‖W‖².
                fourth = rule.rate * torch.as_tensor(self._mean_square) / (2 * rule.decay * (1 - rule.momentum))
                found["equilibrium"] = float(fourth.sqrt().sum().sqrt())
        return found

    def _sizes(self) -> Tensor:
        values = [p.detach().double() for p in self.tensors]
        return dots(values, values, self.dims, self.parts.number)

    def _find_rule(self) -> _Rule | None:
        """The settings that all members share; ``None`` if they differ, since the parts then follow two rules."""
        if self.optimizer is None:
            return None
        rules = set()
        for tensor in self.tensors:
            groups = [group for group in self.optimizer.param_groups if any(p is tensor for p in group["params"])]
            if not groups:
                return None
            group = groups[0]
            is_sgd = type(self.optimizer) is SGD and not group["dampening"] and not group["nesterov"]
            momentum = float(group.get("momentum", 0.0))
            decay = float(group.get("weight_decay", 0.0))
            rules.add(
                _Rule(
                    float(group["lr"]),
                    decay,
                    momentum,
                    is_sgd and not momentum,
                    is_sgd and momentum < 1,
                    isinstance(self.optimizer, SGD),
                )
            )
        return rules.pop() if len(rules) == 1 else None
