"""What a replacement remembers of the module it replaced, so that ``revert`` can put it back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..nn.layernorm import _keep_output
from .layouts import _channels_back, _channels_to_the_end, _drop_and_activate

_NAME = "_geonorm_memory"
_HOOKS = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)
_INTERNAL = (_keep_output, _channels_to_the_end, _channels_back, _drop_and_activate)


@dataclass
class Memory:
    """The module that stood here, and the replacement's own state when it came.

    Attributes:
        original: the module that was replaced.
        state: buffers, and parameters that the original has not, as they were; unchanged, the original is restored as
            it was.
        spec: what it was converted to.
        operations: names of the operations that were changed together with this place.
        attributes: attributes of other modules that were changed: (module, name, former value).
    """

    original: nn.Module
    state: dict[str, Tensor] = field(default_factory=dict)
    spec: str = ""
    operations: tuple[str, ...] = ()
    attributes: list[tuple[nn.Module, str, Any]] = field(default_factory=list)


def own_state(module: nn.Module) -> dict[str, Tensor]:
    """Buffers, and the parameters beyond weight and bias, which a replacement shares with the original."""
    parameters = {name: p.detach() for name, p in module.named_parameters(recurse=False)}
    return {
        **{name: value for name, value in parameters.items() if name not in ("weight", "bias")},
        **dict(module.named_buffers(recurse=False)),
    }


def remember(new: nn.Module, original: nn.Module, **more: Any) -> Memory:
    """Keep the original with its replacement; not as a submodule, so that no state_dict shows it."""
    memory = Memory(original, {name: value.clone() for name, value in own_state(new).items()}, **more)
    new.__dict__[_NAME] = memory
    return memory


def memory_of(module: nn.Module) -> Memory | None:
    """What a module remembers, if anything."""
    memory: Memory | None = module.__dict__.get(_NAME)
    return memory


def is_untouched(module: nn.Module, memory: Memory) -> bool:
    """Whether the replacement's own state is still that of its first moment."""
    now = own_state(module)
    return now.keys() == memory.state.keys() and all(
        value.is_meta or (value.dtype == then.dtype and torch.equal(value, then.to(value.device)))
        for value, then in ((now[name], memory.state[name]) for name in now)
    )


def move_hooks(old: nn.Module, new: nn.Module) -> None:
    """Hooks of a user go along, in the same dictionaries: the handles they hold still remove them."""
    for name in _HOOKS:
        theirs, internal = old.__dict__[name], dict(new.__dict__[name])
        users = dict(theirs)
        theirs.clear()
        # What belongs to the layer itself stays next to its forward: last before it, first behind it.
        theirs.update({**users, **internal} if "pre" in name else {**internal, **users})
        new.__dict__[name] = theirs
    new._is_full_backward_hook = old._is_full_backward_hook


def move_hooks_back(new: nn.Module, old: nn.Module) -> None:
    """The hooks of a user back to the original, without those of the layer itself."""
    for name in _HOOKS:
        theirs = new.__dict__[name]
        for key, hook in list(theirs.items()):
            if hook in _INTERNAL:
                del theirs[key]
        old.__dict__[name] = theirs
    old._is_full_backward_hook = new._is_full_backward_hook
