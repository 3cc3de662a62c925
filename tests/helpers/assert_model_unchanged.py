"""Asserts that code which only reads a model leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def assert_model_unchanged(model: nn.Module) -> Iterator[None]:
    """Within, nothing changes for good: modes, values, gradients, hooks, attributes, and torch's random state."""
    modes = {name: module.training for name, module in model.named_modules()}
    values = {name: (id(t), t.detach().clone()) for name, t in (*model.named_parameters(), *model.named_buffers())}
    gradients = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    trained = {name: p.requires_grad for name, p in model.named_parameters()}
    attributes = {name: set(module.__dict__) for name, module in model.named_modules()}
    hooks = {name: _hooks(module) for name, module in model.named_modules()}
    state = torch.get_rng_state()
    yield
    assert {name: module.training for name, module in model.named_modules()} == modes
    after = dict((*model.named_parameters(), *model.named_buffers()))
    assert after.keys() == values.keys()
    for name, (identity, value) in values.items():
        assert id(after[name]) == identity, f"{name} was replaced"
        torch.testing.assert_close(after[name].detach(), value, rtol=0, atol=0, equal_nan=True)
    for name, parameter in model.named_parameters():
        old = gradients[name]
        assert (parameter.grad is None) == (old is None), name
        assert old is None or torch.equal(parameter.grad, old), name
        assert parameter.requires_grad == trained[name], name
    assert {name: set(module.__dict__) for name, module in model.named_modules()} == attributes
    assert {name: _hooks(module) for name, module in model.named_modules()} == hooks
    assert torch.equal(torch.get_rng_state(), state)


def _hooks(module: nn.Module) -> dict[str, list[int]]:
    return {key: list(table) for key, table in module.__dict__.items() if key.endswith("_hooks")}
