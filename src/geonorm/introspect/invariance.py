"""Which weights are scale invariant: found by scaling them and comparing the outputs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .candidate_weights import Weight, candidates, weights_of
from .graph import trace
from .known_invariances import Known, known_units
from .observe import (
    Forward,
    as_double,
    check_readable,
    double_copy,
    first_batch,
    outputs,
    random_state_restored,
    samples_of,
)
from .progress import progress

# With eps this much smaller, its effect is below float64's rounding error for any spread above 1e-6.
_EPS_FACTOR = 1e-12


class Unit(NamedTuple):
    """One scale-invariant weight: the outputs do not depend on the length of its parts.

    Attributes:
        parameter: its name in the model.
        kind: ``"row"`` (each output row separately), ``"group"`` (blocks of consecutive rows) or ``"matrix"``.
        groups: how many parts may be scaled separately: the number of rows, of blocks, or 1.
        change: change of the outputs when each part is scaled by a factor from 1/2 to 2, without eps, relative to
            the change by random noise of half the weight's size. Rounding is about 1e-15.
        product: the largest |⟨w, ∇w⟩| of a part, relative to the largest ‖w‖·‖∇w‖; 0 for invariant parts.
        eps_change: ``change`` with the model's own eps.
        bias: name of the bias that must be scaled with the weight, or ``None``.
        dim: the dimension of the weight that counts its output rows; 1 for transposed convolutions.
        expected: the kind according to the known table, or ``None`` if it has no entry.
        expected_bias: the bias that must be scaled with the weight according to the known table.
    """

    parameter: str
    kind: str
    groups: int
    change: float
    product: float
    eps_change: float
    bias: str | None
    dim: int
    expected: str | None
    expected_bias: str | None = None


class Measured(NamedTuple):
    """The weights of a model, sorted by whether their size matters.

    Attributes:
        units: the weights that are scale invariant.
        others: names of weights whose size matters.
        idle: names of weights that have no effect on the outputs.
    """

    units: list[Unit]
    others: list[str]
    idle: list[str]


def measure_invariance(
    model: nn.Module, batches: Any, forward: Forward | None = None, *, samples: int = 8, tolerance: float = 1e-4
) -> Measured:
    """Scale each weight in a float64 copy and sort the weights by the effect; see ``analysis.invariance``."""
    check_readable(model, "read the invariances of")
    batch = as_double(first_batch(batches) if forward else samples_of(first_batch(batches), samples))
    with random_state_restored(model):
        prober = _Prober(double_copy(model, _EPS_FACTOR), double_copy(model), batch, forward)
        graph = trace(model)
        expected = known_units(model, graph, as_trained=True)
        measured = Measured([], [], [])
        for weight in progress(list(weights_of(model, graph)), "invariance"):
            found = prober.unit_of(weight, expected.get(weight.name), tolerance)
            if isinstance(found, Unit):
                measured.units.append(found)
            else:
                (measured.idle if found == "idle" else measured.others).append(weight.name)
    return measured


class _Prober:
    """Scales and restores the weights of a copy of the model, and compares the outputs."""

    def __init__(self, twin: nn.Module, with_eps: nn.Module, batch: Any, forward: Forward | None) -> None:
        self.twin, self.with_eps, self.batch, self.forward = twin, with_eps, batch, forward
        self.plain = {id(model): self._run(model) for model in (twin, with_eps)}
        if not all(bool(plain.isfinite().all()) for plain in self.plain.values()):
            raise ValueError(
                "expected finite outputs to compare (got NaN or Inf); find the cause with geonorm.analysis.diagnose"
            )
        self.size = float(self.plain[id(twin)].norm())
        self.gradients = self._gradients()

    @torch.no_grad()
    def _run(self, model: nn.Module) -> Tensor:
        torch.manual_seed(0)  # random operations in the model do the same each time
        return outputs(model, self.batch, self.forward)

    def _gradients(self) -> dict[str, Tensor]:
        """The gradients of a random linear function of the outputs."""
        with torch.enable_grad():
            self.twin.requires_grad_(True)
            torch.manual_seed(0)
            y = outputs(self.twin, self.batch, self.forward)
            if not y.requires_grad:
                raise ValueError(
                    "expected outputs that depend on the weights (got none); is there a no_grad in forward?"
                )
            y.backward(torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1)).to(y.device))
        found = {name: parameter.grad for name, parameter in self.twin.named_parameters()}
        self.twin.requires_grad_(False)
        return {name: gradient for name, gradient in found.items() if gradient is not None}

    def unit_of(self, weight: Weight, expected: Known | None, tolerance: float) -> Unit | str:
        """The finest unit in which a weight is invariant, ``"no"``, or ``"idle"`` if it has no effect."""
        effect = self._change(self.twin, weight.name, None, noise=True)
        if effect <= 1e-10 * self.size:
            return "idle"
        rows = self.twin.get_parameter(weight.name).shape[weight.dim]
        for bias in self._biases(weight, expected):
            for groups in candidates(rows, weight):
                change = self._scaled(self.twin, weight, bias, groups, 1.0) / effect
                if change <= tolerance:
                    break
                if groups == rows and self._scaled(self.twin, weight, bias, 1, 1.0) / effect > tolerance:
                    break  # not even as a whole: no need to test blocks
            if change > tolerance:
                continue
            kind = "row" if groups == rows else "matrix" if groups == 1 else "group"
            return Unit(
                weight.name,
                expected.kind if rows == 1 and expected is not None else kind,  # one row: all kinds are the same
                groups,
                max(change, self._scaled(self.twin, weight, bias, groups, -1.0) / effect),
                self._product(weight, bias, groups),
                self._scaled(self.with_eps, weight, bias, groups, 1.0) / effect,
                bias,
                weight.dim,
                None if expected is None else expected.kind,
                None if expected is None else expected.bias,
            )
        return "no"

    def _biases(self, weight: Weight, expected: Known | None) -> list[str | None]:
        """The biases to try to scale with the weight. A bias of 0, or a learned α of 1, hides a dependence."""
        if weight.bias is None:
            return [None]
        is_joint = expected is not None and expected.bias == weight.bias
        return [weight.bias, None] if is_joint else [None, weight.bias]

    def _scaled(self, model: nn.Module, weight: Weight, bias: str | None, groups: int, power: float) -> float:
        """Change of the outputs when each block of rows is multiplied or divided by a factor of its own."""
        steps = torch.arange(groups, dtype=torch.float64) * 0.5 * (math.sqrt(5) - 1)  # spread out
        factors = 2.0 ** (power * (1 - 2 * (steps - steps.floor())))
        return self._change(model, weight.name, bias, factors, dim=weight.dim)

    @torch.no_grad()
    def _change(
        self,
        model: nn.Module,
        name: str,
        bias: str | None,
        factors: Tensor | None = None,
        *,
        dim: int = 0,
        noise: bool = False,
    ) -> float:
        parameters = [model.get_parameter(n) for n in (name, bias) if n is not None]
        kept = [parameter.clone() for parameter in parameters]
        try:
            if noise:
                (w,) = parameters
                generator = torch.Generator().manual_seed(2)
                change = torch.randn(w.shape, dtype=w.dtype, generator=generator).to(w.device)
                w.add_(change * 0.5 * w.square().mean().sqrt().clamp_min(1e-12))
            else:
                assert factors is not None
                for p, along in zip(parameters, (dim, 0), strict=False):
                    rows = factors.to(p.device).repeat_interleave(p.shape[along] // len(factors))
                    p.mul_(rows.view([-1 if d == along else 1 for d in range(p.dim())]))
            return float((self._run(model) - self.plain[id(model)]).norm())
        finally:
            for parameter, old in zip(parameters, kept, strict=True):
                parameter.copy_(old)

    def _product(self, weight: Weight, bias: str | None, groups: int) -> float:
        """The largest |⟨w, ∇w⟩| of the parts, relative to the largest ‖w‖·‖∇w‖."""
        products = torch.zeros(groups, dtype=torch.float64)
        w_squares, g_squares = torch.zeros_like(products), torch.zeros_like(products)
        for name, dim in ((weight.name, weight.dim), (bias, 0)):
            if name is None or name not in self.gradients:
                continue
            w = self.twin.get_parameter(name).detach().movedim(dim, 0).reshape(groups, -1).cpu()
            g = self.gradients[name].movedim(dim, 0).reshape(groups, -1).cpu()
            products += (w * g).sum(1)
            w_squares += w.square().sum(1)
            g_squares += g.square().sum(1)
        largest = float((w_squares * g_squares).sqrt().max())
        return float(products.abs().max()) / largest if largest else 0.0
