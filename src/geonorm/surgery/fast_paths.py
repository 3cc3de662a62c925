"""Torch's transformers bypass their norms with a fused kernel in evaluation, which is wrong for other norms."""

from __future__ import annotations

from torch import nn

from ..introspect.layouts import is_ours
from .conversion_record import record_of

_FORMER = "_geonorm_former"


def update_fast_paths(model: nn.Module) -> None:
    """Switch the fused kernels off where a norm is replaced, and on again where torch's norms are back."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            _switch(module, "activation_relu_or_gelu", 0, [module.norm1, module.norm2])
        elif isinstance(module, nn.TransformerEncoder):
            norms = [norm for layer in module.layers for norm in layer.modules()]
            _switch(module, "use_nested_tensor", False, norms)


def _switch(module: nn.Module, attribute: str, off: object, norms: list[nn.Module]) -> None:
    replaced = any(is_ours(norm) or record_of(norm) is not None for norm in norms)
    if replaced and _FORMER not in module.__dict__:
        module.__dict__[_FORMER] = getattr(module, attribute)
        setattr(module, attribute, off)
    elif not replaced and _FORMER in module.__dict__:
        setattr(module, attribute, module.__dict__.pop(_FORMER))
