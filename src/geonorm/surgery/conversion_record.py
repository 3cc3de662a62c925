"""The record that a replacement keeps of the module it replaced, so that ``revert`` can put it back."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _WrappedHook

from ..introspect.layouts import is_ours
from ..nn.layernorm import _disable_fast_path
from .wrap_like import WRAPPING_HOOKS

RECORD = "_geonorm_record"
HOOKS = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)
STATE_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_INTERNAL = (_disable_fast_path, *WRAPPING_HOOKS)


@dataclass
class ConversionRecord:
    """The replaced module, and the state of its replacement right after the conversion.

    Attributes:
        original: the module that was replaced.
        spec: what it was converted to.
        state: parameters and buffers right after the conversion; if they have not changed, the original comes back as
            is.
        has_hooks: whether the user's hooks were moved to the replacement.
        operations: modules that were changed together with this place.
    """

    original: nn.Module
    spec: str
    state: dict[str, Tensor]
    has_hooks: bool
    operations: list[nn.Module] = field(default_factory=list)


class NormPlaceholder(nn.Identity):
    """A module in place of a norm that was moved or removed; it returns its input.

    Args:
        copies: return a copy, as a norm would: an in-place activation after it must not change the input
            if that is used elsewhere too.
    """

    def __init__(self, copies: bool) -> None:
        super().__init__()
        self.copies = copies

    def forward(self, input: Tensor) -> Tensor:
        return input.clone() if self.copies else input

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> NormPlaceholder:
        """Move the recorded norm along with the model, to the same device and dtype."""
        record = record_of(self)
        if record is not None:
            record.original._apply(fn)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


def own_state(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of the module itself, without buffers that are not in its state_dict, such as counts."""
    parameters = {name: p.detach() for name, p in module.named_parameters(recurse=False)}
    buffers = dict(module.named_buffers(recurse=False))
    return {**parameters, **{name: b for name, b in buffers.items() if name not in module._non_persistent_buffers_set}}


def record_conversion(
    new: nn.Module, original: nn.Module, spec: str, has_hooks: bool, operations: list[nn.Module]
) -> None:
    """Store the original with its replacement; not as a submodule, so that it is in no state_dict."""
    state = {name: value.clone() for name, value in own_state(new).items()}
    new.__dict__[RECORD] = ConversionRecord(original, spec, state, has_hooks, operations)


def record_of(module: nn.Module) -> ConversionRecord | None:
    """The record of a replacement; None for other modules."""
    record: ConversionRecord | None = module.__dict__.get(RECORD)
    return record


def drop_record(module: nn.Module) -> None:
    """Delete the record: the conversion can no longer be undone."""
    module.__dict__.pop(RECORD, None)


def synced(model: nn.Module) -> dict[str, nn.Module]:
    """The layers with statistics over a process group, by name."""
    return {
        name: m for name, m in model.named_modules() if is_ours(m) and getattr(m, "process_group", None) is not None
    }


def same_state(now: dict[str, Tensor], then: dict[str, Tensor]) -> bool:
    """Whether the values are the same, whatever their dtype and device."""
    return now.keys() == then.keys() and all(
        value.is_meta or torch.equal(value, then[name].to(value)) for name, value in now.items()
    )


def users_hooks(module: nn.Module) -> list[Any]:
    """Forward hooks of a module that were not added by this library."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return [hook for hook in hooks if hook not in _INTERNAL]


def move_hooks(old: nn.Module, new: nn.Module) -> None:
    """Move the user's hooks in their own dictionaries, so that the user's handles can still remove them."""
    for name in _movable(new):
        theirs, internal = old.__dict__[name], dict(new.__dict__[name])
        users = {key: hook for key, hook in theirs.items() if hook not in _INTERNAL}
        theirs.clear()
        # The layer's own hooks stay next to its forward: the last before it, the first after it.
        theirs.update({**users, **internal} if "pre" in name else {**internal, **users})
        new.__dict__[name] = theirs
        _bind(theirs, new)
    new._is_full_backward_hook = old._is_full_backward_hook


def move_hooks_back(new: nn.Module, old: nn.Module) -> None:
    """Move the user's hooks back to the original, without the layer's own hooks."""
    for name in _movable(new):
        theirs = new.__dict__[name]
        for key, hook in list(theirs.items()):
            if hook in _INTERNAL:
                del theirs[key]
        old.__dict__[name] = theirs
        _bind(theirs, old)
    old._is_full_backward_hook = new._is_full_backward_hook


def _movable(new: nn.Module) -> tuple[str, ...]:
    """The kinds of hooks that can move: hooks of a state_dict need its keys, which a placeholder does not have."""
    return HOOKS if isinstance(new, NormPlaceholder) else (*HOOKS, *STATE_HOOKS)


def _bind(hooks: dict[int, Any], module: nn.Module) -> None:
    """Bind hooks that were registered together with their module to the module that they belong to now."""
    for hook in hooks.values():
        if isinstance(hook, _WrappedHook) and hook.with_module:
            hook.module = weakref.ref(module)
