"""The base of all POP-Norm layers: their options, and the functional call."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from ..functional import NormStatistics
from ..functional._aug import normalize_in_layer
from ..functional._pop import check_choices, pop_parameters
from ..ops import Axes, Inputs, Running
from ._base import AugOptions, NormLayer


class PopOptions(TypedDict, total=False):
    """The keyword-only arguments of every POP-Norm layer, after torch's own; for annotating a dict of them.

    Attributes:
        kappa: the divisor κ. Default: 4.0.
        spread: ``"rms"``, ``"mean_abs"`` or ``"max_abs"`` (l2, l1, l∞), ``"robust"``, or an exponent in [1, ∞].
            Default: ``"rms"``.
        center: whether to subtract the center. Default: ``True``.
        scale: whether to divide by the spread. Default: ``True``.
        shift: ``"add"`` (z = x − c + β) or ``"mul"`` (z = x − (1 + β)c). Default: ``"add"``.
        order: ``"center_first"``, or ``"scale_first"`` to divide by the spread about 0. Default: ``"center_first"``.
        phi: exponent of the center; POP-Norm's own is 2, the mean. Default: 2.0.
        learn_phi, phi_range, spread_phi, spread_floor, grad_floor, sweeps, single_element: as in
            ``geonorm.nn.AugOptions``.
    """

    kappa: float
    spread: Literal["rms", "mean_abs", "max_abs", "robust"] | float
    center: bool
    scale: bool
    shift: Literal["add", "mul"]
    order: Literal["center_first", "scale_first"]
    phi: float
    learn_phi: bool
    phi_range: tuple[float, float]
    spread_phi: float
    spread_floor: float
    grad_floor: float
    sweeps: int | None
    single_element: Literal["error", "running", "identity"]


class PopLayer(NormLayer):
    """The parameters γ (``weight``) and β (``bias``, the shift), and POP-Norm's options."""

    placement = "before"

    kappa: float

    @classmethod
    def _no_such_argument(cls, name: str, known: list[str]) -> str:
        if name in ("alpha", "learn_alpha"):
            return f"{cls.__name__}() got an unexpected keyword argument {name!r}; POP-Norm has shift instead"
        return super()._no_such_argument(name, known)

    def _set_pop(self, options: PopOptions, phi_shape: tuple[int, ...], channels: int, factory: dict[str, Any]) -> None:
        self.kappa = float(options["kappa"])
        self.center, self.scale = options["center"], options["scale"]
        self.shift, self.order = options["shift"], options["order"]
        check_choices(self.kappa, self.shift, self.order)
        center_and_spread = AugOptions(
            phi=options["phi"],
            learn_phi=options["learn_phi"],
            phi_range=options["phi_range"],
            alpha=1.0,
            learn_alpha=False,
            spread=options["spread"],
            spread_phi=options["spread_phi"],
            spread_floor=options["spread_floor"],
            grad_floor=options["grad_floor"],
            sweeps=options["sweeps"],
            single_element=options["single_element"],
        )
        self._set_options(center_and_spread, phi_shape, (channels,), factory)

    def _pop(
        self,
        input: Tensor,
        groups: Axes,
        per_channel: Any,
        element_weight: Tensor | None,
        running: Running | None = None,
        measured: bool = False,
        guard: float | None = None,
        guard_counts: Tensor | None = None,
        whole: Tensor | None = None,
    ) -> tuple[Tensor, NormStatistics | None]:
        """The functional call. ``whole``: the layer's own input, if this one is a view of it."""
        phi = self.phi
        if isinstance(phi, Tensor):
            phi = phi.reshape([1, -1] + [1] * (input.dim() - 2))
        alpha, inside, gamma, outside = pop_parameters(
            input,
            per_channel(self.weight),
            per_channel(self.bias),
            self.kappa,
            self.center,
            self.scale,
            self.shift,
            self.order,
        )
        rule = self._rule(guard, None, self.center, self.scale, self.order == "scale_first")
        whole = input if whole is None else whole
        if element_weight is None and not measured and not torch.compiler.is_compiling():
            own = self._parameters
            shift = None if inside is None else own.get("bias")
            values = (phi, alpha, shift, None if gamma is None else own.get("weight"), None)
            of = Inputs(input, phi, alpha, inside, gamma, outside, None)
            repeated = self._first(whole, values, of, groups, rule, running, guard_counts, self.kappa)
            if repeated is not None:
                return repeated, None
        output, statistics = normalize_in_layer(
            input, groups, rule, phi, alpha, inside, gamma, outside, element_weight, running, measured, guard_counts
        )
        return output.reshape(whole.shape), statistics

    def _describe(self) -> str:
        parts = [f"kappa={self.kappa:g}", super()._describe()]
        if not self.center:
            parts.append("center=False")
        if not self.scale:
            parts.append("scale=False")
        return ", ".join([*parts, f"shift={self.shift!r}, order={self.order!r}"])
