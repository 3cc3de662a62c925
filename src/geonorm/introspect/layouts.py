"""Which modules are normalizations, and the layout of their inputs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrizations

from .. import nn as ours
from ..functional._aug import affine_of
from ..nn._base import NormLayer
from ..nn.weightnorm import _RowNorm


class Layout(NamedTuple):
    """The layout of a normalization layer: its axes, sizes and arguments.

    Attributes:
        axes: ``"batch"``, ``"layer"``, ``"group"``, ``"instance"`` or ``"graph"``.
        channels: number of channels, or the normalized shape of a LayerNorm.
        dim: spatial dimensions of the input; ``None`` if it takes any.
        arguments: torch's arguments beyond the channels, by the names of the constructor.
    """

    axes: str
    channels: Any
    dim: int | None
    arguments: dict[str, Any]


# The layers of this library. Their class attributes describe them and their twins; nothing else is known here.
LAYERS: tuple[type[NormLayer], ...] = tuple(
    layer for name in ours.__all__ if isinstance(layer := getattr(ours, name), type) and issubclass(layer, NormLayer)
)

# Subclasses whose own forward is the norm and something else before or after it.
PLAIN, CHANNELS_FIRST, ACTIVATED, BOTH = "plain", "channels_first", "activated", "both"
_KNOWN_FORWARDS = {
    "timm.layers.norm.LayerNorm": PLAIN,
    "timm.layers.norm.GroupNorm": PLAIN,
    "timm.layers.norm.GroupNorm1": PLAIN,
    "timm.layers.norm.LayerNorm2d": CHANNELS_FIRST,
    "timm.layers.norm_act.BatchNormAct2d": ACTIVATED,
    "timm.layers.norm_act.GroupNormAct": ACTIVATED,
    "timm.layers.norm_act.GroupNorm1Act": ACTIVATED,
    "timm.layers.norm_act.LayerNormAct": ACTIVATED,
    "timm.layers.norm_act.LayerNormAct2d": BOTH,
    "torchvision.models.convnext.LayerNorm2d": CHANNELS_FIRST,
}


def qualified_name(module: nn.Module) -> str:
    """The full name of a module's class."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


class Described(NamedTuple):
    """A known class of norms, and the layer of this library that describes it: the class itself or its twin."""

    known: Any
    layer: type[NormLayer]


def description_of(module: nn.Module) -> Described | None:
    """The description of a norm by its class, torch's or ours; ``None`` for other modules."""
    for layer in LAYERS:
        if isinstance(module, layer):
            return Described(layer, layer)
        if isinstance(layer.twin, str) and qualified_name(module) == layer.twin:
            return Described(type(module), layer)
        if isinstance(layer.twin, type) and isinstance(module, layer.twin):
            return Described(layer.twin, layer)
    return None


def own_forward(module: nn.Module) -> str | None:
    """How the forward of a norm's subclass differs from the norm's; ``None`` if that is not known."""
    if "forward" in module.__dict__:
        return None
    described = description_of(module)
    if described is None or type(module).forward is described.known.forward:
        return PLAIN
    return _KNOWN_FORWARDS.get(qualified_name(module))


def layout_of(module: nn.Module) -> Layout | None:
    """The layout of a normalization that comes after an operation, torch's or ours; ``None`` for other modules."""
    if isinstance(module, (nn.modules.lazy.LazyModuleMixin, nn.SyncBatchNorm)) or own_forward(module) is None:
        return None
    described = description_of(module)
    if described is None or described.layer.placement == "before" or not _statistics_agree(module):
        return None
    layer = described.layer
    channels = getattr(module, layer.sizes[-1])
    arguments = {name: getattr(module, name) for name in layer.shared_arguments}
    if layer.axes == "group":
        arguments["groups"] = module.num_groups
    return Layout(layer.axes, channels, layer.spatial_dims, {**arguments, **_bias(module)})


def layer_for(layout: Layout) -> type[NormLayer]:
    """The layer of this library that can replace a norm with this layout."""
    return next(
        layer
        for layer in LAYERS
        if layer.twin is not None and (layer.axes, layer.spatial_dims) == (layout.axes, layout.dim)
    )


def build_layer(kind: Callable[..., nn.Module], channels: Any, arguments: dict[str, Any]) -> nn.Module:
    """A norm, torch's or ours, from its channels and arguments; a group norm takes ``groups`` before the channels."""
    rest = {name: value for name, value in arguments.items() if name != "groups"}
    return kind(*[arguments["groups"]] if "groups" in arguments else [], channels, **rest)


def fresh_like(module: nn.Module) -> nn.Module | None:
    """A new norm of the same known class with default options; ``None`` for other modules."""
    described = description_of(module)
    if described is None:
        return None
    fresh: nn.Module = described.known(*[getattr(module, name) for name in described.layer.sizes])
    return fresh


def _statistics_agree(module: Any) -> bool:
    """Whether a norm's buffers match its flag; torch evaluates with the buffers that exist, whatever the flag is."""
    flag = getattr(module, "track_running_stats", None)
    return flag is None or flag == (getattr(module, "running_mean", None) is not None)


def _bias(module: Any) -> dict[str, bool]:
    """The argument ``bias``, if the affine part has no bias."""
    return {"bias": False} if module.weight is not None and module.bias is None else {}


def is_ours(module: nn.Module) -> bool:
    """Whether a module is a layer of this library."""
    return isinstance(module, NormLayer)


_OF_WEIGHTS = (parametrizations._WeightNorm, parametrizations._SpectralNorm, _RowNorm)
_TORCH_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
_NAMED_SO = re.compile(r"(Norm|_norm)(Act)?\d*d?$")


# Functions that normalize, for recognizing a forward that calls one.
_NORMALIZING = {
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "local_response_norm",
    "var", "std", "var_mean", "std_mean", "rsqrt",
}  # fmt: skip


def is_norm(module: nn.Module) -> bool:
    """Whether a module itself normalizes values: torch's, ours, or an unknown class that looks like a norm.

    An unknown class counts if it has running statistics or "norm" in its name, and either learns only vectors or
    normalizes in its own forward. A wrapper around a norm or a block with a convolution does not count, whatever its
    name.
    """
    if isinstance(module, _OF_WEIGHTS):
        return False
    if _is_known(module):
        return True
    if not {"running_mean", "running_var"} <= module._buffers.keys() and not _NAMED_SO.search(type(module).__name__):
        return False
    if any(_is_known(inner) for inner in module.modules()):
        return False
    return _learns_vectors(module) or _normalizes_itself(module)


def _is_known(module: nn.Module) -> bool:
    return isinstance(module, _TORCH_NORMS) or is_ours(module) or layout_of(module) is not None


def _learns_vectors(module: nn.Module) -> bool:
    """Whether no parameter has a second dimension; a lazy one, without a shape, may get one."""
    return not any(is_lazy(p) or sum(size > 1 for size in p.shape) > 1 for p in module.parameters())


def _normalizes_itself(module: nn.Module) -> bool:
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and not _NORMALIZING.isdisjoint(code.co_names)


def keeps_statistics(module: nn.Module) -> bool:
    """Whether a norm keeps running statistics, torch's or ours."""
    return is_norm(module) and isinstance(getattr(module, "running_mean", None), Tensor)


def why_unknown(module: nn.Module) -> str:
    """The reason why a norm has no known layout."""
    if isinstance(module, nn.modules.lazy.LazyModuleMixin):
        return "it has no channel count yet; run a batch through the model first"
    if isinstance(module, nn.SyncBatchNorm):
        return "the number of dimensions of its input is not known; convert before torch's convert_sync_batchnorm"
    if own_forward(module) is None:
        return "it has a forward of its own, which would be lost"
    if not _statistics_agree(module):
        return "its track_running_stats and its buffers disagree"
    if is_ours(module):
        return "it belongs before an operation; there is no twin after one"
    if type(module).__name__ == "RMSNorm":
        return "it has no center"
    return "its axes are not known here"


def why_parametrized(module: nn.Module) -> str:
    """The reason if a norm's γ and β cannot be moved because they are computed from other parameters; else empty."""
    computed = [
        name
        for name in ("weight", "bias")
        if getattr(module, name, None) is not None and name not in module._parameters
    ]
    return "its parameters are parametrized or pruned; make that permanent first" if computed else ""


def factory_of(module: nn.Module) -> dict[str, Any]:
    """Device and dtype of a module's floating-point tensors."""
    for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
        if tensor.is_floating_point():
            return {"device": tensor.device, "dtype": tensor.dtype}
    return {"device": None, "dtype": None}


@torch.no_grad()
def evaluation_affine(module: Any) -> tuple[Tensor, Tensor] | None:
    """Scale and offset per channel of a norm in evaluation; ``None`` if it measures its input in evaluation too."""
    if not keeps_statistics(module):
        return None
    if layout_of(module) is None and not is_ours(module) and not isinstance(module, nn.SyncBatchNorm):
        return None
    if is_ours(module):
        affine: tuple[Tensor, Tensor] = module.evaluation_affine()
        return affine
    return affine_of(module.running_mean, module.running_var, module.weight, module.bias, module.eps)


def is_frozen(module: nn.Module) -> bool:
    """Whether a norm is frozen: it stays in evaluation mode."""
    return any(hook is stay_in_evaluation for hook in module._forward_pre_hooks.values())


def stay_in_evaluation(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    """The hook of a frozen norm, which undoes ``model.train()``. A hook is copied and pickled with its module."""
    if module.training:
        module.training = False
