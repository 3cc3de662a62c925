"""``no_stat_update``: a context in which running statistics do not change."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.modules.batchnorm import _NormBase

from ..ops import pause_statistics

_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
_SET_ASIDE = "_geonorm_set_aside"


@contextmanager
def no_stat_update() -> Iterator[None]:
    """A context in which no norm updates its running statistics, torch's layers included.

    For gradient checkpointing, which runs a part of the model twice and would otherwise update its statistics
    twice: ``checkpoint(part, x, use_reentrant=False, context_fn=lambda: (nullcontext(), geonorm.no_stat_update()))``.
    Inside the context compiled models run uncompiled. It affects all threads of the process.

    Examples:
        >>> import torch, geonorm
        >>> norm = torch.nn.BatchNorm1d(4)
        >>> with geonorm.no_stat_update():
        ...     y = norm(torch.randn(8, 4) + 5)
        >>> norm.running_mean
        tensor([0., 0., 0., 0.])
    """
    before = torch_module.register_module_forward_pre_hook(_set_aside)
    after = torch_module.register_module_forward_hook(_put_back, always_call=True)
    try:
        # A compiled graph of torch's layers contains the update and calls no hooks, so they must run uncompiled.
        with pause_statistics(), torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Using `torch.compile\(module\)` when there are global hooks")
            yield
    finally:
        before.remove()
        after.remove()


def _set_aside(module: nn.Module, inputs: Any) -> None:
    """Torch's layers update their buffers in place: give them copies for this call."""
    if isinstance(module, _NormBase) and module.training and _SET_ASIDE not in module.__dict__:
        kept = {name: module._buffers.get(name) for name in _BUFFERS}
        module.__dict__[_SET_ASIDE] = kept
        for name, buffer in kept.items():
            if buffer is not None:
                module._buffers[name] = buffer.clone()


def _put_back(module: nn.Module, inputs: Any, output: Any) -> None:
    kept = module.__dict__.pop(_SET_ASIDE, None)
    if kept is not None:
        module._buffers.update(kept)
