"""Backward of this process by the compiled kernels: its sums, and the gradient of x once all sums are known."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import problem
from ..cpu import library
from ..cpu.library import Task
from ..cpu.normalize import dense, laid_out
from ..grouping import Axes
from ..problem import Incoming, Inputs, Rule
from .kernels import Kernels, kernels_for
from .torch_backward import Flow, Sums


class KernelBackward:
    """Like ``TorchBackward``, for parameters that are the same for all values of a group."""

    def __init__(self, grads: Incoming, of: Inputs, saved: Tensor, needs: tuple[bool, ...], kernels: Kernels) -> None:
        self.of, self.saved, self.needs, self.kernels, self.grads = of, saved, needs, kernels, grads
        self.g = dense(grads.output, of.x, kernels.plan.strides)
        a = kernels.plan.arrangement
        shape, groups = a.statistics_shape, kernels.groups
        self.shape = shape

        def per_group(value: Any, otherwise: float) -> Tensor:
            if not isinstance(value, Tensor):
                return torch.full((groups, 1), otherwise if value is None else value, dtype=torch.float64, device="cpu")
            return value.detach().double().expand(shape).reshape(-1, 1)

        self.alpha, self.gamma = per_group(of.alpha, 1.0), per_group(of.gamma, 1.0)
        self.phi = per_group(of.phi, 2.0)
        self.d_phi = torch.empty(max(1, a.phi_count), dtype=kernels.plan.dtype, device="cpu") if needs[1] else None

    def sums(self) -> Sums:
        """The sums over the values of this process."""
        k = self.kernels
        found = torch.empty(k.groups, library.PARTS, dtype=torch.float64, device="cpu")
        library.part(
            k.plan.encoded_spec, Task.ADD_UP, k.x, k.parameters, self.saved, None, found, g=self.g, d_phi=self.d_phi
        )
        g, gx, direction, slope, moment, divisor = found[:, :, None].unbind(1)
        self.sum_g, self.sum_gx, self.direction = g, gx, direction
        ends = (self.phi == 1) | (self.phi == math.inf)
        moment = torch.where(ends, moment, moment * math.log(2))  # the kernels count in powers of two
        given = [
            torch.zeros_like(g) if part is None else part.reshape(-1, 1).double()
            for part in (self.grads.center, self.grads.spread)
        ]
        weight = self.alpha * self.gamma
        return Sums(weight * g, self.gamma * gx, self.alpha * direction, slope, moment, divisor, *given)

    def gradients(self, here: Sums, flow: Flow) -> tuple[Tensor | None, ...]:
        """Gradients of the inputs, in their order."""
        k, of = self.kernels, self.of
        dx = torch.empty_strided(k.x.shape, k.plan.strides, dtype=k.x.dtype, device="cpu")
        points = torch.cat(flow[:4], 1)
        library.part(
            k.plan.encoded_spec,
            Task.SPREAD_OUT,
            k.x,
            k.parameters,
            self.saved,
            points,
            None,
            g=self.g,
            dx=dx,
            d_phi=self.d_phi,
        )
        rho, center = self.saved[:, problem.RHO, None], self.saved[:, problem.CENTER, None]
        dz = rho * self.gamma * self.sum_g + flow.spread * self.direction
        d_phi = None
        if self.needs[1]:
            own = here.by_center - (rho * here.center + flow.spread * here.directions)
            d_phi = torch.where(center.isfinite() | (own != 0), own * flow.by_phi, 0.0)
        found = (d_phi, -center * dz, dz, self.sum_gx, self.sum_g)
        parts = [
            self._like(part, value) if need and part is not None else None
            for part, value, need in zip(found, of[1:6], self.needs[1:6], strict=True)
        ]
        return laid_out(dx, of.x), *parts, None

    def _like(self, grad: Tensor, value: Any) -> Tensor:
        grad = grad.reshape(self.shape)
        return grad.sum_to_size(value.shape).to(value.dtype)


def kernel_backward(
    grads: Incoming, of: Inputs, groups: Axes, rule: Rule, saved: Tensor, needs: tuple[bool, ...]
) -> KernelBackward | None:
    """None if forward did not run on the kernels in this process, or if they do not support the requested gradients."""
    if not of.x.numel() or not saved.is_cpu or float(saved[0, problem.BY]) != problem.BY_CPU:
        return None
    phi = of.phi if isinstance(of.phi, Tensor) else torch.tensor(of.phi, dtype=torch.float64)
    inside = (phi == 1) | (phi == math.inf) | ((phi >= 1.01) & (phi <= 4))
    mixed = isinstance(of.phi, Tensor) and bool(((phi == 1) | (phi == math.inf)).any())
    if rule.centered and (mixed or not bool(inside.all())):
        return None
    kernels = kernels_for(of, groups, rule, saved)
    return None if kernels is None else KernelBackward(grads, of, saved, needs, kernels)
