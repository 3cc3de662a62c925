"""Layers under torch.func, on tensors that are shapes alone, and on nested tensors."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, grad, vmap

import geonorm
from helpers.layer_cases import CASE_NAMES, CASES, OPTION_CASE_NAMES, OPTION_CASES, LayerCase, randomize_parameters


@pytest.mark.parametrize(
    ("case", "options"),
    [(case, options) for case, options in OPTION_CASES if not case.graph],
    ids=[name for name, (case, _) in zip(OPTION_CASE_NAMES, OPTION_CASES, strict=True) if not case.graph],
)
def test_gradients_of_each_sample_in_evaluation(case: LayerCase, options: dict[str, Any]) -> None:
    """vmap(grad) gives what a loop over the samples gives."""
    layer = randomize_parameters(case.make(**options, dtype=torch.float64))
    case.call(layer, case.input())
    layer.eval()
    x = case.input(seed=1)[:3]
    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    buffers = dict(layer.named_buffers())

    def loss(parameters: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
        y = functional_call(layer, (parameters, buffers), (sample.unsqueeze(0),))
        return (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)).sum()

    found, by_input = vmap(grad(loss, (0, 1)), in_dims=(None, 0))(parameters, x)
    for i in range(len(x)):
        twin, sample = copy.deepcopy(layer), x[i : i + 1].clone().requires_grad_()
        y = twin(sample)
        (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)).sum().backward()
        torch.testing.assert_close(by_input[i], sample.grad[0])
        for name, parameter in twin.named_parameters():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(found[name][i], expected)


@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
@pytest.mark.parametrize("options", [{}, {"phi": 2.0}, {"spread": "robust"}, {"learn_phi": True}], ids=str)
def test_shapes_alone(case: LayerCase, options: dict[str, Any]) -> None:
    """Fake tensors have no values: shapes and gradients come out, and nobody looks."""
    with FakeTensorMode():
        layer = case.make(**options)
        for training in (True, False):
            layer.train(training)
            x = torch.empty(case.shape, requires_grad=True)
            batch = (torch.zeros(len(x), dtype=torch.int64), 5) if case.graph else ()
            y = layer(x, *batch)
            assert y.shape == x.shape
            y.sum().backward()
            assert x.grad.shape == x.shape
            assert layer(x, *batch, mask=torch.ones(case.shape, dtype=torch.bool)).shape == x.shape


def ragged(*lengths: int, grad: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(length, 8, generator=generator, dtype=torch.float64) for length in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=grad)


@pytest.mark.parametrize("phi", [1.5, 2.0])
def test_jagged_tokens(phi: float) -> None:
    """Each token is normalized by itself, wherever it stands; torch's LayerNorm at φ=2."""
    x = ragged(3, 1, 5, grad=True)
    layer = randomize_parameters(geonorm.AugLayerNorm(8, phi=phi, dtype=torch.float64))
    y = layer(x)
    torch.testing.assert_close((y + x).values(), layer(x.values()) + x.values())  # of one shape with what went in
    (y * y).values().sum().backward()
    dense = x.detach().values().clone().requires_grad_()
    layer(dense).square().sum().backward()
    torch.testing.assert_close(x.grad.values(), dense.grad)
    if phi == 2:
        theirs = nn.LayerNorm(8, dtype=torch.float64)
        theirs.load_state_dict(layer.state_dict())
        torch.testing.assert_close(y.values(), theirs(x).values())


def test_jagged_masks() -> None:
    x = ragged(3, 1, 5)
    layer = geonorm.AugLayerNorm(8, dtype=torch.float64)
    mask = torch.nested.nested_tensor_from_jagged(torch.arange(9)[:, None].expand(9, 8) != 4, x.offsets())
    found = layer(x, mask=mask).values()
    torch.testing.assert_close(found, layer(x.values(), mask=mask.values()))
    with pytest.raises(ValueError, match="jagged nested tensor of the same shape"):
        layer(x, mask=torch.ones(3, 5, 8))


def test_nested_tensors_that_do_not_work_say_so() -> None:
    x = ragged(3, 1, 5)
    with pytest.raises(RuntimeError, match="not ragged"):
        geonorm.AugLayerNorm((5, 8), dtype=torch.float64)(x)
    with pytest.raises(TypeError, match="to_padded_tensor"):
        geonorm.functional.center(x, 1.5)
