"""Torch's own cases for its norms, as `torch.testing._internal` has them, through our layers at φ=2.

Each case is one of torch's checks of modules, for one module, in training or in evaluation, over all inputs that torch
declares for it. What torch skips for a module, or does for other devices, is left out.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import geonorm

modules = pytest.importorskip("torch.testing._internal.common_modules", reason="torch came without its tests")

OURS: dict[type[nn.Module], type[nn.Module]] = {
    nn.GroupNorm: geonorm.AugGroupNorm,
    nn.LayerNorm: geonorm.AugLayerNorm,
    **{
        getattr(nn, f"{kind}Norm{n}d"): getattr(geonorm, f"Aug{kind}Norm{n}d")
        for kind in ("Batch", "Instance")
        for n in (1, 2, 3)
    },
}
INFOS = [info for info in modules.module_db if info.module_cls in OURS]
KEEPS_FORMAT = {nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm}  # torch skips the others

each_module = pytest.mark.parametrize("info", INFOS, ids=lambda info: info.module_cls.__name__)
both_modes = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def inputs(info: Any, training: bool, dtype: torch.dtype = torch.float64, grad: bool = False) -> Iterator[Any]:
    torch.manual_seed(0)
    yield from info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=grad, training=training)


def make(info: Any, given: Any, training: bool, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Our layer for torch's arguments, with parameters that are not all 1 and 0."""
    arguments = given.constructor_input
    layer = OURS[info.module_cls](*arguments.args, **arguments.kwargs, phi=2.0, dtype=dtype).train(training)
    return randomized(layer)


def randomized(layer: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype))
    return layer


def pair(info: Any, given: Any, training: bool, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, nn.Module]:
    """Torch's layer and ours in one state."""
    arguments = given.constructor_input
    theirs = info.module_cls(*arguments.args, **arguments.kwargs, dtype=dtype).train(training)
    ours = make(info, given, training, dtype)
    assert not any(theirs.load_state_dict(ours.state_dict(), strict=True))
    return theirs, ours


def call(layer: nn.Module, given: Any) -> Tensor:
    found: Tensor = layer(*given.forward_input.args, **given.forward_input.kwargs)
    return found


def same_buffers(ours: nn.Module, theirs: nn.Module) -> None:
    for name, buffer in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], buffer, equal_nan=True, msg=lambda t, n=name: f"{n}: {t}")


@each_module
@both_modes
def test_forward(info: Any, training: bool) -> None:
    """Against torch's reference if it has one, and against torch's module: outputs and buffers."""
    for dtype in info.dtypes:
        if dtype in (torch.float16, torch.bfloat16):
            continue  # compared in the test of dtypes below
        for given in inputs(info, training, dtype):
            theirs, ours = pair(info, given, training, dtype)
            y = call(ours, given)
            torch.testing.assert_close(y, call(theirs, given))
            same_buffers(ours, theirs)
            if given.reference_fn is not None:
                args, kwargs = given.forward_input.args, given.forward_input.kwargs
                torch.testing.assert_close(y, given.reference_fn(copy.deepcopy(ours), *args, **kwargs))


@each_module
@both_modes
def test_half_precision(info: Any, training: bool) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        for given in inputs(info, training, dtype):
            theirs, ours = pair(info, given, training, dtype)
            y = call(ours, given)
            assert y.dtype == dtype
            wide = call(theirs.double(), _with(given, lambda x: x.double()))
            torch.testing.assert_close(
                y.double(), wide, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps
            )


def _with(given: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The case with other tensors."""
    forward = given.forward_input
    args = [change(value) if isinstance(value, Tensor) else value for value in forward.args]
    kwargs = {k: change(value) if isinstance(value, Tensor) else value for k, value in forward.kwargs.items()}
    return modules.ModuleInput(given.constructor_input, modules.FunctionInput(*args, **kwargs), given.desc)


@each_module
@both_modes
def test_factory_arguments(info: Any, training: bool) -> None:
    for given in inputs(info, training):
        arguments = given.constructor_input
        for options in ({"device": "meta"}, {"dtype": torch.float16}, {"device": "cpu", "dtype": torch.float64}):
            theirs = info.module_cls(*arguments.args, **arguments.kwargs, **options)
            ours = OURS[info.module_cls](*arguments.args, **arguments.kwargs, **options, phi=2.0)
            for name, value in theirs.state_dict().items():
                assert (ours.state_dict()[name].device, ours.state_dict()[name].dtype) == (value.device, value.dtype)
        with torch.device("meta"):
            assert all(value.is_meta for value in make_meta(info, arguments).state_dict().values())


def make_meta(info: Any, arguments: Any) -> nn.Module:
    return OURS[info.module_cls](*arguments.args, **arguments.kwargs, phi=2.0)


@each_module
@both_modes
def test_pickle_and_state(info: Any, training: bool) -> None:
    for given in inputs(info, training):
        layer = make(info, given, training)
        call(layer, given)
        file = io.BytesIO()
        torch.save(layer.state_dict(), file)
        file.seek(0)
        fresh = OURS[info.module_cls](
            *given.constructor_input.args, **given.constructor_input.kwargs, phi=2.0, dtype=torch.float64
        ).train(training)
        assert not any(fresh.load_state_dict(torch.load(file), strict=True))
        others = [fresh, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
        expected = call(layer, given)
        for other in others:
            assert torch.equal(call(other, given), expected)
            same_buffers(other, layer)


@each_module
@both_modes
def test_repr(info: Any, training: bool) -> None:
    for given in inputs(info, training):
        text = repr(make(info, given, training))
        assert text.startswith(OURS[info.module_cls].__name__)


@each_module
@both_modes
def test_non_contiguous(info: Any, training: bool) -> None:
    """Inputs, parameters and gradients with gaps between their values give what dense ones give, bit for bit or so."""
    for given in inputs(info, training, grad=True):
        layer = make(info, given, training)
        sparse = copy.deepcopy(layer)
        with torch.no_grad():
            for parameter in sparse.parameters():
                parameter.data = gaps(parameter.data)
        results = []
        for each, change in ((layer, lambda x: x), (sparse, gaps)):
            case = _with(given, lambda x, change=change: change(x.detach().clone()).requires_grad_())
            y = call(each, case)
            weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
            y.backward(change(weights))
            results.append([y, *[x.grad for x in case.forward_input.args], *[p.grad for p in each.parameters()]])
        for dense, sparse_one in zip(*results, strict=True):
            torch.testing.assert_close(sparse_one, dense)


def gaps(x: Tensor) -> Tensor:
    """The same values with something else between them."""
    return torch.stack([x, torch.full_like(x, float("nan"))], -1)[..., 0]


@each_module
@both_modes
@pytest.mark.parametrize("order", [1, 2], ids=["grad", "gradgrad"])
def test_gradients(info: Any, training: bool, order: int) -> None:
    """In inputs and parameters, numerically; in fast mode, as torch's own tests."""
    check = torch.autograd.gradcheck if order == 1 else torch.autograd.gradgradcheck
    for given in inputs(info, training, grad=True):
        layer = make(info, given, training)
        names = [name for name, _ in layer.named_parameters()]
        args = given.forward_input.args

        def f(*values: Tensor, layer: nn.Module = layer, names: list[str] = names) -> Tensor:
            copied = copy.deepcopy(layer)  # each call from the same buffers
            parameters = dict(zip(names, values[1:], strict=True))
            found: Tensor = torch.func.functional_call(copied, parameters, (values[0],))
            return found

        assert check(f, (*args, *[p.detach().clone().requires_grad_() for p in layer.parameters()]), fast_mode=True)


@pytest.mark.parametrize(
    "info", [i for i in INFOS if i.module_cls in KEEPS_FORMAT], ids=lambda i: i.module_cls.__name__
)
@both_modes
def test_memory_format(info: Any, training: bool) -> None:
    for given in inputs(info, training, torch.float32):
        x = given.forward_input.args[0]
        formats = {4: [torch.channels_last], 5: [torch.channels_last_3d]}.get(x.dim(), [])
        theirs, ours = pair(info, given, training, torch.float32)
        expected = call(copy.deepcopy(ours), given)
        for memory_format in formats:
            laid_out = _with(given, lambda x, f=memory_format: x.contiguous(memory_format=f))
            for layer in (copy.deepcopy(ours), copy.deepcopy(ours).to(memory_format=memory_format)):
                y = call(layer, laid_out)
                torch.testing.assert_close(y, expected)
                assert y.is_contiguous(memory_format=memory_format) or not y.numel()
                assert y.stride() == call(copy.deepcopy(theirs), laid_out).stride()


@each_module
@both_modes
def test_conversions(info: Any, training: bool) -> None:
    """`.to` of a dtype, by `.data` or by swapped tensors, after a backward whose loss is still alive; `to_empty`."""
    for swap in (False, True):
        torch.__future__.set_swap_module_params_on_conversion(swap)
        try:
            for given in inputs(info, training, torch.float32, grad=True):
                layer = make(info, given, training, torch.float32)
                held = call(layer, given)
                held.sum().backward()
                layer.zero_grad()
                layer.to(torch.float64)
                y = call(layer, _with(given, lambda x: x.detach().double()))
                assert y.dtype == torch.float64
                assert held.grad_fn is not None
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)
    for given in inputs(info, training):
        layer = make_on_meta(info, given).to_empty(device="cpu")
        layer.load_state_dict(make(info, given, training).state_dict())
        torch.testing.assert_close(call(layer.train(training), given), call(make(info, given, training), given))


def make_on_meta(info: Any, given: Any) -> nn.Module:
    arguments = given.constructor_input
    return OURS[info.module_cls](*arguments.args, **arguments.kwargs, phi=2.0, dtype=torch.float64, device="meta")


@pytest.mark.parametrize(
    "info", [info for info in INFOS if info.module_error_inputs_func is not None], ids=lambda i: i.module_cls.__name__
)
@both_modes
def test_errors(info: Any, training: bool) -> None:
    """What torch refuses, with its type of error. Ours are raised when the layer is made; eps=0 is allowed."""
    wrong = info.module_error_inputs_func(
        info, device="cpu", dtype=torch.float64, requires_grad=False, training=training
    )
    for error in wrong:
        arguments = error.module_error_input.constructor_input
        if arguments.kwargs.get("eps") == 0:
            continue
        with pytest.raises(error.error_type):
            OURS[info.module_cls](*arguments.args, **arguments.kwargs, phi=2.0)


@each_module
def test_modes_differ_where_torch_says_so(info: Any) -> None:
    differ = []
    for given in inputs(info, True):
        layer = make(info, given, True)
        first = call(copy.deepcopy(layer), given)
        second = call(copy.deepcopy(layer).eval(), given)
        differ.append(not torch.equal(first, second))
    assert any(differ) == info.train_and_eval_differ
