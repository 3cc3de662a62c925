"""Which backend serves a device: a folder that is named in one line, and torch for what it refuses."""

from __future__ import annotations

import subprocess
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


# Triton's kernels, on request. ``tests/with_triton`` runs them.


@pytest.fixture
def triton_says(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str | None], None]]:
    """Sets why the Triton backend is not available."""
    from geonorm.ops import triton

    def say(why: str | None) -> None:
        monkeypatch.setattr(triton, "why_not", lambda: why)
        choose._forget()

    yield say
    monkeypatch.undo()
    choose._forget()


@pytest.mark.parametrize("name", ["auto", "torch", "native"])
def test_torch_serves_a_gpu_unless_triton_is_requested(name: str, triton_says: Callable[[str | None], None]) -> None:
    triton_says(None)
    with using_backend(name):
        assert choose.backend_for("cuda") is None
        assert "GEONORM_BACKEND=triton" in choose.describe()["on a GPU"]


def test_triton_serves_a_gpu_on_request(
    triton_says: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from geonorm.ops import cpu, triton

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    triton_says(None)
    with using_backend("triton"):
        assert choose.backend_for("cuda") is triton
        assert choose.backend_for("cpu") in (cpu, None), "the CPU keeps its own"
        assert choose.describe()["on a GPU"].startswith("triton")
    with using_backend("triton"):
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        assert choose.backend_for("cpu") is triton, "for tests"
        assert choose.describe()["backend"] == "triton"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_triton_requested_and_missing_is_an_error(
    device: str, triton_says: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    triton_says("triton is not installed")
    with using_backend("triton"):
        with pytest.raises(RuntimeError, match="GEONORM_BACKEND=triton, but triton is not installed; or unset"):
            choose.backend_for(device)
        assert choose.describe()["on a GPU"] == "none: GEONORM_BACKEND=triton, but triton is not installed"


def test_why_triton_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = sys.modules["geonorm.ops.triton.normalize"]
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(host, "find_spec", lambda name: None)
    host.why_not.cache_clear()
    assert "not installed" in host.why_not()
    monkeypatch.setattr(host, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    host.why_not.cache_clear()
    assert host.why_not() == "torch sees no GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    host.why_not.cache_clear()
    assert host.why_not() is None
    monkeypatch.undo()
    host.why_not.cache_clear()


def test_nothing_imports_triton_unless_its_kernels_run() -> None:
    """A stand-in for the package, which ends the process where it is imported."""
    script = (
        "import sys, types\n"
        "class Trap:\n"
        "    def find_spec(self, name, *_):\n"
        "        assert name.split('.')[0] != 'triton', 'triton was imported'\n"
        "import torch\n"
        "sys.meta_path.insert(0, Trap())\n"
        "import geonorm\n"
        "from geonorm.ops import choose\n"
        "assert 'geonorm.ops.triton' not in sys.modules\n"
        "geonorm.AugBatchNorm1d(3)(torch.randn(8, 3))\n"
        "assert choose.backend_for('cuda') is None\n"
        "assert 'geonorm.ops.triton' not in sys.modules\n"
        "import geonorm.ops.triton, geonorm.ops.triton.measure, geonorm.ops.triton.gradients\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
