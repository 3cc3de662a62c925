"""Which backend serves a device: a folder that is named in one line, and torch for what it refuses."""

from __future__ import annotations

import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import geonorm
from geonorm.ops import choose, using_backend


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Calls of a backend for the CPU that refuses everything."""
    count: Counter[str] = Counter()
    backend: Any = types.ModuleType("geonorm.ops.refusing")

    def refuse(name: str) -> Callable[..., None]:
        return lambda *_: count.update([name])

    for name in ("normalize", "normalize_backward", "center", "spread", "guarded_moments"):
        setattr(backend, name, refuse(name))
    backend.why_not = lambda: None
    backend.wrote = lambda saved: True
    monkeypatch.setitem(sys.modules, backend.__name__, backend)
    monkeypatch.setitem(choose._FOLDERS, "cpu", "refusing")
    choose._kernels.cache_clear()
    with using_backend("auto"):
        yield count
    choose._kernels.cache_clear()


def results(guard: float | None = None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(32, 4).requires_grad_()
    layer = geonorm.AugBatchNorm1d(4, phi=1.5, guard=guard)
    y = layer(x)
    y.square().sum().backward()
    return [y, x.grad, layer.running_mean, layer.running_var, geonorm.functional.center(x, 1.5)]


@pytest.mark.parametrize("guard", [None, 3.0])
def test_torch_takes_what_a_backend_refuses(calls: Counter[str], guard: float | None) -> None:
    found = results(guard)
    assert calls["normalize"] >= 1
    assert calls["normalize_backward"] >= 1
    assert calls["center"] == 1
    with using_backend("torch"):
        expected = results(guard)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_a_device_without_a_backend_runs_on_torch() -> None:
    assert choose.backend_for("meta") is None


def test_a_backend_that_is_requested_and_missing_is_an_error(calls: Counter[str]) -> None:
    sys.modules["geonorm.ops.refusing"].why_not = lambda: "its kernels were not built"  # type: ignore[attr-defined]
    choose._kernels.cache_clear()
    with using_backend("native"), pytest.raises(RuntimeError, match="native, but its kernels were not built"):
        choose.backend_for("cpu")
    with using_backend("auto"):
        assert choose.backend_for("cpu") is None
