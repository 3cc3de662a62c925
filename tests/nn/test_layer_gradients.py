"""gradcheck of every layer in x, γ, β, φ and α; second order where it is defined."""

import math
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from helpers.layer_cases import CASE_NAMES, CASES, OPTION_CASE_NAMES, OPTION_CASES, LayerCase, randomize_parameters


def spaced_input(case: LayerCase) -> torch.Tensor:
    """Values at least 1/40 apart: finite differences need a gap from the center."""
    generator = torch.Generator().manual_seed(0)
    count = math.prod(case.shape)
    grid = torch.arange(count, dtype=torch.float64) + 0.4 * torch.rand(count, generator=generator, dtype=torch.float64)
    values = (grid[torch.randperm(count, generator=generator)] - 0.4 * count) / 15
    return values.reshape(case.shape).requires_grad_()


def as_function(case: LayerCase, options: dict[str, Any]):
    layer = randomize_parameters(case.make(**options, dtype=torch.float64)).train()
    names = [name for name, _ in layer.named_parameters()]
    buffers = {name: value.clone() for name, value in layer.named_buffers()}

    def f(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        state = {**dict(zip(names, parameters, strict=True)), **{k: v.clone() for k, v in buffers.items()}}
        extra = case.call(lambda *a, **k: (a, k), x)
        return functional_call(layer, state, *extra)

    return f, [p.detach().clone().requires_grad_() for _, p in layer.named_parameters()]


@pytest.mark.parametrize(("case", "options"), OPTION_CASES, ids=OPTION_CASE_NAMES)
def test_gradcheck(case: LayerCase, options: dict[str, Any]) -> None:
    if options.get("grad_floor") or options.get("sweeps"):
        options = {k: v for k, v in options.items() if k not in ("grad_floor", "sweeps")}  # not exact derivatives
    f, parameters = as_function(case, options)
    assert gradcheck(f, (spaced_input(case), *parameters), fast_mode=True, atol=1e-4)


# The 2d and 3d layers run the same code as the 1d ones on more elements.
lighter = [pytest.param(case, marks=pytest.mark.slow if case.name[-2:] in ("2d", "3d") else ()) for case in CASES]


@pytest.mark.parametrize("case", lighter, ids=CASE_NAMES)
def test_all_derivatives_at_once(case: LayerCase) -> None:
    """The elementwise gradcheck, for learned φ and α."""
    options = {"learn_phi": True, "phi": 1.6} if case.pop else {"learn_phi": True, "phi": 1.6, "learn_alpha": True}
    f, parameters = as_function(case, options)
    assert gradcheck(f, (spaced_input(case), *parameters))


@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
@pytest.mark.parametrize("spread", ["rms", "mean_abs", "robust"])
def test_second_order(case: LayerCase, spread: str) -> None:
    f, parameters = as_function(case, {"learn_phi": True, "phi": 1.7, "spread": spread})
    assert gradgradcheck(f, (spaced_input(case), *parameters), fast_mode=True, atol=1e-4)
