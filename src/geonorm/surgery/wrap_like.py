"""``wrap_like``: a replacement that also does what the replaced module's own forward did besides normalizing."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..introspect.layouts import ACTIVATED, BOTH, CHANNELS_FIRST, own_forward


def wrap_like(new: nn.Module, old: nn.Module) -> None:
    """Add to a replacement, as hooks, what the old module's own forward did before and after normalizing."""
    form = own_forward(old)
    if form in (CHANNELS_FIRST, BOTH) and not isinstance(new, nn.Identity):
        new.register_forward_pre_hook(_channels_to_the_end)
        new.register_forward_hook(_channels_back)
    if form in (ACTIVATED, BOTH):
        for name in ("drop", "act"):
            new.add_module(name, getattr(old, name, None))
        new.register_forward_hook(_drop_and_activate)


def _channels_to_the_end(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (inputs[0].movedim(1, -1), *inputs[1:])


def _channels_back(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output.movedim(-1, 1)


def _drop_and_activate(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    for step in (module.drop, module.act):
        output = output if step is None else step(output)
    return output


WRAPPING_HOOKS = (_channels_to_the_end, _channels_back, _drop_and_activate)
