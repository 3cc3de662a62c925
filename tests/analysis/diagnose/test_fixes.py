"""Fixes are safe: no output in evaluation changes unless the finding says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from geonorm.analysis import diagnose
from helpers.planted_faults import faults_in_use


@pytest.mark.parametrize("fault", faults_in_use.IN_USE, ids=lambda fault: fault.what)
def test_what_fix_does_is_safe(fault: Any) -> None:
    """The copy is no worse than the model was, the model is as it was, and what was cured is gone."""
    torch.manual_seed(0)
    model, batches = fault.plant()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = diagnose(model, batches, fix=True, **fault.options)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert found.fixed is not None
    assert found.fixed is not model
    cured = {f.kind for f in found.findings if f.cure}
    left = {f.kind for f in found.after.findings if f.cure}
    assert not (cured & left), f"{found}\n\n{found.after}"
    now, then = found.evaluation.now, found.after.evaluation.now
    if now is not None and then is not None:
        assert then.share >= now.share - 0.05
    assert "Fixed in a copy" in str(found) or not found.done


def test_biases_are_removed_without_a_change() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    for _ in range(60):
        model(torch.randn(64, 8))
    x = torch.randn(64, 8)
    fixed = diagnose(model, x, fix=True).fixed
    assert fixed[0].bias is None
    assert model[0].bias is not None
    torch.testing.assert_close(fixed.eval()(x), model.eval()(x), rtol=1e-4, atol=1e-5)
