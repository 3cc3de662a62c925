"""``fuse``: norms in evaluation worked into the operations next to them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.utils import parametrize

from .layouts import dress, evaluation_affine, is_norm, own_forward
from .pairs import Graph, input_channels, is_operation, output_channels, trace
from .placement import PRE_NORM, take_off
from .report import Change, Left, Report
from .select import Places, check_model

_TOLERANCE = 1e-5


class _Pair(NamedTuple):
    norm: str
    operation: str
    before: bool  # the norm stands before the operation


def fuse(model: nn.Module, example: Any = None) -> Report:
    """Work norms in evaluation into the neighbouring Linear, Conv or ConvTranspose, in place.

        behind an operation: W′ = s·W, b′ = s·b + t        before it: W′ = W·s, b′ = b + W·t

    with the norm's y = s·x + t. Each fused operation is compared with what it replaces on random inputs, and left if it
    differs by more than 1e-5. A norm before a convolution with zero padding is left unless t = 0: the padding is not
    normalized. For inference; there is no way back.

    Args:
        model: a model in evaluation mode.
        example: an input (or a tuple of inputs) of the model; with it, the outputs of the whole model before and after
            are compared too, and the model is restored with an error if they differ.

    Examples:
        >>> import torch, geonorm
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
        >>> print(geonorm.fuse(model, example=torch.randn(1, 3, 8, 8)))
        fuse: 1 module changed, 0 left
        <BLANKLINE>
        module  before       after
        ------  -----------  -----
        1       BatchNorm2d  in 0
        <BLANKLINE>
        * the outputs for the example agree to 1e-05
    """
    check_model(model, "fuse", replaces=True)
    if any(is_norm(module) and module.training for module in model.modules()):
        raise ValueError("expected a model in evaluation mode to fuse; call model.eval() first")
    if example is None:
        return _fuse(model)
    inputs = example if isinstance(example, tuple) else (example,)
    spare = copy.deepcopy(model)
    with torch.no_grad():
        expected = model(*inputs)
        report = _fuse(model)
        found = model(*inputs)
    gap = _largest_gap(found, expected)
    if not gap <= max((_tolerance(p) for p in model.parameters() if p.is_floating_point()), default=_TOLERANCE):
        model.__dict__.update(spare.__dict__)
        raise RuntimeError(f"the fused model differs from the model by {gap:.2g} of its output; the model is restored")
    report.notes.append(f"the outputs for the example agree to {max(gap, _TOLERANCE):.0e}")
    return report


def _fuse(model: nn.Module) -> Report:
    report, places, modules = Report("fuse"), Places(model), dict(model.named_modules())
    graph = trace(model)
    if graph.failure:
        report.notes.append(f"the model could not be traced as a whole ({graph.failure}): only its parts were fused")
    for name, module in modules.items():
        if not is_norm(module):
            continue
        pair = _pair_of(name, graph, modules)
        reason = _why_not(name, module, pair, modules, graph) or _work_in(pair, modules, places)  # type: ignore[arg-type]
        if reason or pair is None:
            report.left.append(Left(name or "(model)", type(module).__name__, reason))
        else:
            report.changed.append(Change(name, type(module).__name__, f"in {pair.operation}"))
    return report


def _pair_of(name: str, graph: Graph, modules: dict[str, nn.Module]) -> _Pair | None:
    owner, _, attribute = name.rpartition(".")
    if attribute == PRE_NORM and is_operation(modules[owner]):
        return _Pair(name, owner, True)
    found = graph.norms.get(name)
    if found is None:
        return None
    if found.behind is not None:
        return _Pair(name, found.behind, False)
    if found.directly and len(found.ahead) == 1:
        return _Pair(name, found.ahead[0], True)
    return None


def _why_not(name: str, norm: nn.Module, pair: _Pair | None, modules: dict[str, nn.Module], graph: Graph) -> str:
    if evaluation_affine(norm) is None:
        return "it measures its input in evaluation too"
    if pair is None:
        if graph.calls.get(name, 0) > 1:
            return "it is called more than once"
        return "no operation next to it that it could go into"
    operation: Any = modules[pair.operation]
    if parametrize.is_parametrized(operation):
        return f"{pair.operation} is parametrized; remove the parametrization first"
    if pair.before and own_forward(norm) not in ("plain", None):
        return "it is followed by an activation"
    channels = input_channels(operation) if pair.before else output_channels(operation)
    affine = evaluation_affine(norm)
    if affine is not None and affine[0].numel() not in (1, channels):
        return f"it has {affine[0].numel()} channels, {pair.operation} has {channels}"
    return ""


@torch.no_grad()
def _work_in(pair: _Pair, modules: dict[str, nn.Module], places: Places) -> str:
    """Fuse a pair and check it; why not, if it was left."""
    norm, operation = modules[pair.norm], cast("nn.Linear", modules[pair.operation])
    affine = evaluation_affine(norm)
    assert affine is not None
    if pair.before and _pads_zeros(operation) and bool((affine[1] != 0).any()):
        return f"{pair.operation} pads with zeros, which are not normalized"
    fused = _fused(operation, affine[0].double(), affine[1].double(), pair.before)
    gap = _check(norm, operation, fused, pair.before)
    if not gap <= _tolerance(operation.weight):
        return f"the fused operation would differ by {gap:.2g}"
    operation.weight, operation.bias = fused.weight, fused.bias
    if PRE_NORM in operation._modules and pair.before:
        take_off(operation)
        return ""
    stand_in = nn.Identity()
    dress(stand_in, norm)
    stand_in.training = norm.training
    places.replace(norm, stand_in)
    return ""


def _tolerance(weight: Tensor) -> float:
    return max(_TOLERANCE, 4 * torch.finfo(weight.dtype).eps)


def _pads_zeros(operation: Any) -> bool:
    """Whether the border of the output sees something else than input values."""
    if isinstance(operation, nn.Linear):
        return False
    if operation.transposed:
        return True
    padded = operation.padding != "valid" and any(
        size > 0 for size in (operation.padding if isinstance(operation.padding, tuple) else operation.kernel_size)
    )
    return bool(padded and operation.padding_mode == "zeros")


def _fused(operation: Any, scale: Tensor, offset: Tensor, before: bool) -> Any:
    """A copy of the operation that does the norm's part too. In float64: the products round once."""
    fused = _bare_copy(operation)
    weight = operation.weight.double()
    groups = getattr(operation, "groups", 1)
    transposed = getattr(operation, "transposed", False)
    # As (groups, outputs of a group, inputs of a group, *)
    outputs, inputs = output_channels(operation) // groups, input_channels(operation) // groups
    split = weight.reshape(groups, *((inputs, outputs) if transposed else (outputs, inputs)), -1)
    split = split.transpose(1, 2) if transposed else split
    bias = torch.zeros(groups * outputs, dtype=torch.float64, device=weight.device)
    bias = bias if operation.bias is None else operation.bias.double()
    if before:
        scale, offset = (part.expand(groups * inputs).reshape(groups, 1, inputs, 1) for part in (scale, offset))
        bias = bias + (split * offset).sum((2, 3)).flatten()
        split = split * scale
    else:
        scale, offset = (part.expand(groups * outputs) for part in (scale, offset))
        split = split * scale.reshape(groups, outputs, 1, 1)
        bias = bias * scale + offset
    split = split.transpose(1, 2) if transposed else split
    dtype, trained = operation.weight.dtype, operation.weight.requires_grad
    fused.weight = Parameter(split.reshape(weight.shape).to(dtype), requires_grad=trained)
    fused.bias = Parameter(bias.to(dtype), requires_grad=trained)
    return fused


def _bare_copy(operation: nn.Module) -> Any:
    """The operation without hooks and without a norm before it."""
    bare = copy.copy(operation)
    bare.__dict__.update(
        _modules={},
        _parameters=dict(operation._parameters),
        _forward_pre_hooks={},
        _forward_hooks={},
        _backward_hooks={},
    )
    return bare


def _check(norm: Any, operation: Any, fused: Any, before: bool) -> float:
    """Largest difference on random inputs, in shares of the largest output."""
    bare, weight = _bare_copy(operation), operation.weight
    if weight.is_meta:
        return 0.0
    size = [] if isinstance(operation, nn.Linear) else _enough(operation)
    x = torch.randn(3, input_channels(operation), *size, dtype=weight.dtype, device=weight.device)
    apply = _bare_copy(norm) if own_forward(norm) == "plain" else _affine_map(norm)
    expected = bare(apply(x)) if before else apply(bare(x))
    return _largest_gap(fused(x), expected)


def _affine_map(norm: nn.Module) -> Callable[[Tensor], Tensor]:
    """The norm alone, where its own forward does more."""
    scale, offset = evaluation_affine(norm) or (torch.ones(1), torch.zeros(1))

    def normalized(x: Tensor) -> Tensor:
        shape = [1, -1, *[1] * (x.dim() - 2)]
        return x * scale.view(shape).to(x.dtype) + offset.view(shape).to(x.dtype)

    return normalized


def _enough(operation: Any) -> list[int]:
    """Sizes that the kernel fits in."""
    sizes = zip(operation.dilation, operation.kernel_size, operation.stride, strict=True)
    return [dilation * (kernel - 1) + 1 + stride for dilation, kernel, stride in sizes]


def _largest_gap(found: Any, expected: Any) -> float:
    if isinstance(expected, Tensor):
        if not expected.numel():
            return 0.0
        scale = expected.abs().max().clamp_min(1.0 if expected.abs().max() == 0 else 0.0)
        return float((found - expected).abs().max() / scale)
    if isinstance(expected, dict):
        return max((_largest_gap(found[key], value) for key, value in expected.items()), default=0.0)
    if isinstance(expected, (tuple, list)):
        return max((_largest_gap(*pair) for pair in zip(found, expected, strict=True)), default=0.0)
    return 0.0
