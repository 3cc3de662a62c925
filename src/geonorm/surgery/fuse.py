"""``fuse``: fold norms in evaluation into the operations next to them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.utils._pytree import tree_map

from ..introspect.graph import Graph, has_own_forward, input_channels, is_linear, output_channels, trace
from ..introspect.layouts import (
    PLAIN,
    evaluation_affine,
    is_norm,
    is_ours,
    layout_of,
    own_forward,
    stay_in_evaluation,
    why_unknown,
)
from ..introspect.select import Places, check_model
from .conversion_record import NormPlaceholder, drop_record, record_of, users_hooks
from .placement import PRE_NORM, is_pre_norm, normalize_input, take_off
from .report import Change, Left, Report
from .stale_optimizers import StaleOptimizers
from .wrap_like import wrap_like

_TOLERANCE = 1e-5
_ROUNDING_MARGIN = (
    10  # how far a fused model may differ, in multiples of the model's rounding error; deep networks had up to 3
)
_DROPOUT_NOTE = "there is dropout between them, which must stay off"
_HARMLESS = (normalize_input, stay_in_evaluation)  # hooks that do not matter in evaluation


class _Pair(NamedTuple):
    norm: str
    operation: str
    before: bool  # the norm is before the operation


def fuse(model: nn.Module, example: Any = None) -> Report:
    """Fold norms in evaluation into the neighbouring Linear, Conv or ConvTranspose, in place.

        after an operation: W′ = s·W, b′ = s·b + t        before it: W′ = W·s, b′ = b + W·t

    with the norm's y = s·x + t. Each fused operation is compared with what it replaces on random inputs, and left if it
    differs by more than 1e-5 of the largest output (in half precision, by more than rounding). A norm before a
    convolution with zero padding is left unless t = 0, because the padding is not normalized. Dropout between them
    is ignored if it is off, and must stay off. For inference; it cannot be undone.

    Args:
        model: a model in evaluation mode.
        example: an input (or a tuple of inputs) of the model; with it, the outputs of the whole model before and after
            are compared too; if they differ, everything is restored and an error is raised. A deep model whose own
            rounding error is larger than 1e-5 is compared in float64, on a copy. Needed for models that cannot be
            traced as a whole.

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
    stale_optimizers = StaleOptimizers(model)
    if example is None:
        report = _fuse(model, proven=False)
    else:
        report = _fuse_and_compare(model, example if isinstance(example, tuple) else (example,))
    report.notes += stale_optimizers.notes(model)
    return report


@torch.no_grad()
def _fuse_and_compare(model: nn.Module, inputs: tuple[Any, ...]) -> Report:
    expected = model(*inputs)
    before = [_Snapshot.of(module) for module in model.modules()]
    limit = max((_tolerance(p) for p in model.parameters() if p.is_floating_point()), default=_TOLERANCE)
    try:
        report = _fuse(model, proven=True)
        gap = _largest_gap(model(*inputs), expected)
        note = f"the outputs for the example agree to {max(gap, _TOLERANCE):.0e}"
        if not gap <= limit:
            for snapshot in before:
                snapshot.restore()
            note += f", {_why_rounding(model, inputs, expected, gap, [change.name for change in report.changed])}"
            report = _fuse(model, proven=True)
    except BaseException:
        for snapshot in before:
            snapshot.restore()
        raise
    report.notes.append(note)
    return report


def _why_rounding(model: nn.Module, inputs: tuple[Any, ...], expected: Any, gap: float, changed: list[str]) -> str:
    """The evidence that a gap is the model's own rounding error; raises if it is not.

    In float64 only a fault leaves a gap, and the difference between the model and its float64 copy is its rounding
    error.
    """
    differs = f"the fused model differs from the original by {gap:.2g} of its output"
    try:
        exact = copy.deepcopy(model).double()
        inputs = tree_map(_double, inputs)
        reference = exact(*inputs)
        report = _fuse(exact, proven=True)
        left = _largest_gap(exact(*inputs), reference)
    except Exception as error:  # the model's own code may raise anything
        reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        raise RuntimeError(f"{differs}; float64 cannot judge it ({reason}); the model is unchanged") from error
    rounding = _largest_gap(tree_map(_double, expected), reference)
    if not (left <= _TOLERANCE and [change.name for change in report.changed] == changed):
        raise RuntimeError(f"{differs}, in float64 by {left:.2g}; the model is unchanged")
    if not gap <= _ROUNDING_MARGIN * rounding:
        raise RuntimeError(f"{differs}, more than its own rounding error of {rounding:.2g}; the model is unchanged")
    return f"which is rounding: the model itself is {rounding:.0e} off its float64 copy, where they agree to {left:.0e}"


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


class _Snapshot(NamedTuple):
    """The parts of a module that fusing may change."""

    module: nn.Module
    attributes: dict[str, Any]
    registries: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, module: nn.Module) -> _Snapshot:
        names = ("_parameters", "_modules", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs")
        return cls(module, dict(module.__dict__), {name: dict(module.__dict__[name]) for name in names})

    def restore(self) -> None:
        self.module.__dict__.clear()
        self.module.__dict__.update(self.attributes)
        for name, values in self.registries.items():
            self.module.__dict__[name].clear()
            self.module.__dict__[name].update(values)


def _fuse(model: nn.Module, proven: bool) -> Report:
    """``proven``: the whole model will be compared afterwards."""
    report, places, modules = Report("fuse"), Places(model), dict(model.named_modules())
    graph = trace(model, inference=True)
    if graph.failure:
        report.notes.append(f"the model could not be traced as a whole ({graph.failure})")
    done: list[str] = []
    for name, module in modules.items():
        if not is_norm(module):
            continue
        pair = _pair_of(name, graph, modules)
        reason = _why_not(name, module, pair, modules, graph, proven)
        if not reason and pair is not None:
            try:
                reason = _fuse_pair(pair, modules, places)
            except (RuntimeError, TypeError, ValueError, AttributeError) as error:
                reason = f"could not be tried on {pair.operation}: {error}".split("\n", 1)[0]
        if reason or pair is None:
            report.left.append(Left(name or "(model)", type(module).__name__, reason))
            continue
        done.append(pair.operation)
        found = graph.norms.get(name)
        note = _DROPOUT_NOTE if found is not None and pair.operation in found.over_dropout else ""
        report.changed.append(Change(name, type(module).__name__, f"in {pair.operation}", note))
        if is_linear(modules[pair.operation]) and not proven:
            note = "a Linear was fused with a norm of its features, (N, C); give example= if its inputs have more dims"
            report.notes += [note] if note not in report.notes else []
    _drop_records(model, [modules[name] for name in done])
    return report


def _drop_records(model: nn.Module, operations: list[nn.Module]) -> None:
    for module in model.modules():
        record = record_of(module)
        if record is not None and any(operation is other for operation in operations for other in record.operations):
            drop_record(module)


def _pair_of(name: str, graph: Graph, modules: dict[str, nn.Module]) -> _Pair | None:
    owner, _, attribute = name.rpartition(".")
    if attribute == PRE_NORM and is_pre_norm(modules[owner]):
        return _Pair(name, owner, True)
    found = graph.norms.get(name)
    if found is None:
        return None
    if found.before is not None:
        return _Pair(name, found.before, False)
    if found.directly and len(found.after) == 1:
        return _Pair(name, found.after[0], True)
    return None


def _why_not(
    name: str,
    norm: nn.Module,
    pair: _Pair | None,
    modules: dict[str, nn.Module],
    graph: Graph,
    proven: bool,
) -> str:
    if layout_of(norm) is None and not is_ours(norm) and not isinstance(norm, nn.SyncBatchNorm):
        return why_unknown(norm)
    affine = evaluation_affine(norm)
    if affine is None:
        return "it measures its input in evaluation too"
    if pair is None:
        if graph.calls.get(name, 0) > 1:
            return "it is called more than once"
        if graph.failure and name not in graph.calls:
            return "its neighbours could not be traced"
        return "no operation next to it that it could be fused with"
    if name in graph.norms and graph.norms[name].in_part and not proven:
        return "the model could not be traced as a whole; give example= to verify that its outputs stay the same"
    operation: Any = modules[pair.operation]
    if has_own_forward(operation):
        return f"{pair.operation} has a forward of its own"
    if any("weight" not in module._parameters for module in (operation, norm) if module.weight is not None):
        return f"the weight of {pair.operation} or of the norm is parametrized or pruned"
    if any(hook not in _HARMLESS for hook in (*users_hooks(operation), *users_hooks(norm))):
        return f"it or {pair.operation} has hooks"
    if pair.before and _is_activated(norm):
        return "it is followed by an activation"
    channels = input_channels(operation) if pair.before else output_channels(operation)
    if affine[0].numel() not in (1, channels):
        return f"it has {affine[0].numel()} channels, {pair.operation} has {channels}"
    return ""


def _wrapped_as(norm: nn.Module) -> nn.Module:
    """The module whose own forward tells what it does besides normalizing."""
    record = record_of(norm)
    return norm if record is None else record.original


def _is_activated(norm: nn.Module) -> bool:
    return own_forward(_wrapped_as(norm)) not in (PLAIN, None)


@torch.no_grad()
def _fuse_pair(pair: _Pair, modules: dict[str, nn.Module], places: Places) -> str:
    """Fuse a pair and check it; returns the reason if it was left."""
    norm, operation = modules[pair.norm], cast("nn.Linear", modules[pair.operation])
    affine = evaluation_affine(norm)
    assert affine is not None
    moves = not operation.weight.is_meta and bool((affine[1] != 0).any())
    if pair.before and _pads_zeros(operation) and (moves or operation.weight.is_meta):
        return f"{pair.operation} pads with zeros, which are not normalized"
    fused = _fused(operation, affine[0].double(), affine[1].double(), pair.before)
    gap = _check(norm, operation, fused, pair.before)
    if not gap <= _tolerance(operation.weight):
        return f"the fused operation would differ by {gap:.2g}"
    operation.weight, operation.bias = fused.weight, fused.bias
    if pair.before and is_pre_norm(operation):
        take_off(operation)
        return ""
    stand_in = NormPlaceholder(copies=pair.before)
    wrap_like(stand_in, _wrapped_as(norm))
    stand_in.training = norm.training
    places.replace(norm, stand_in)
    return ""


def _tolerance(weight: Tensor) -> float:
    return max(_TOLERANCE, 4 * torch.finfo(weight.dtype).eps)


def _pads_zeros(operation: Any) -> bool:
    """Whether outputs at the border use values that are not in the input."""
    if is_linear(operation):
        return False
    if operation.transposed:
        return True
    padded = operation.padding != "valid" and any(
        size > 0 for size in (operation.padding if isinstance(operation.padding, tuple) else operation.kernel_size)
    )
    return bool(padded and operation.padding_mode == "zeros")


def _fused(operation: Any, scale: Tensor, offset: Tensor, before: bool) -> Any:
    """A copy of the operation that includes the norm. Computed in float64, so that the products are rounded once."""
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


def _bare_copy(module: nn.Module) -> Any:
    """A copy of the module without hooks and submodules."""
    bare = copy.copy(module)
    bare.__dict__.update(_modules={}, _forward_pre_hooks={}, _forward_hooks={}, _backward_hooks={})
    bare._parameters = dict(module._parameters)
    return bare


def _check(norm: Any, operation: Any, fused: Any, before: bool) -> float:
    """Largest difference on random inputs, as a fraction of the largest output."""
    bare, weight = _bare_copy(operation), operation.weight
    if weight.is_meta:
        return 0.0
    size = [] if is_linear(operation) else _smallest_input_size(operation)
    generator = torch.Generator(weight.device).manual_seed(0)
    shape = (3, input_channels(operation), *size)
    x = torch.randn(shape, generator=generator, dtype=weight.dtype, device=weight.device)
    apply = _bare_copy(norm) if own_forward(norm) == PLAIN else _affine_map(norm)
    expected = bare(apply(x)) if before else apply(bare(x))
    return _largest_gap(fused(x), expected)


def _affine_map(norm: nn.Module) -> Callable[[Tensor], Tensor]:
    """The norm without what its own forward adds."""
    affine = evaluation_affine(norm)
    assert affine is not None
    scale, offset = affine

    def normalized(x: Tensor) -> Tensor:
        shape = [1, -1, *[1] * (x.dim() - 2)]
        return x * scale.view(shape).to(x.dtype) + offset.view(shape).to(x.dtype)

    return normalized


def _smallest_input_size(operation: Any) -> list[int]:
    """Spatial sizes of an input that is large enough for the kernel."""
    sizes = zip(operation.dilation, operation.kernel_size, operation.stride, strict=True)
    return [dilation * (kernel - 1) + 1 + stride for dilation, kernel, stride in sizes]


def _largest_gap(found: Any, expected: Any) -> float:
    """The largest difference between two outputs, as a fraction of the largest value of each tensor."""
    if isinstance(expected, Tensor):
        if not expected.numel():
            return 0.0
        if not expected.is_floating_point():
            return 0.0 if torch.equal(found, expected) else math.inf
        largest = float(expected.abs().max())
        gap = float((found - expected).abs().max()) / (largest or 1.0)
        return math.inf if math.isnan(gap) else gap  # max() below would ignore NaN
    if isinstance(expected, dict):
        return max((_largest_gap(found[key], value) for key, value in expected.items()), default=0.0)
    if isinstance(expected, (tuple, list)):
        return max((_largest_gap(*pair) for pair in zip(found, expected, strict=True)), default=0.0)
    if expected is None or isinstance(expected, (int, float, str)):
        return 0.0 if found == expected else math.inf
    raise TypeError(f"expected outputs of tensors, tuples and dicts to compare (got {type(expected).__name__})")
