"""Whose rows are whose, without triton: the kernels themselves are tested in ``tests/with_triton``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from geonorm.ops import Axes, Inputs, Rule, Saved, choose, problem, using_backend
from geonorm.ops import triton as backend
from geonorm.ops.problem import Result
from geonorm.ops.triton.plan import plan


def rows(by: float, device: str = "cpu") -> Tensor:
    found = torch.zeros(3, len(problem.COLUMNS), dtype=torch.float64, device=device)
    found[:, problem.BY] = by
    return found


OF = Inputs(torch.empty(8, 3, device="meta"), 1.5, 1.0, None, None, None, None)


def test_a_plan_says_who_wrote() -> None:
    found = plan(OF, Axes((0,)), Rule())
    assert found is not None
    assert backend.wrote(Saved(rows(problem.BY_TORCH), None, found))
    assert not backend.wrote(Saved(rows(problem.BY_TRITON), None, "a plan of another backend"))


def test_the_cpu_does_not_take_them_for_its_own() -> None:
    from geonorm.ops import cpu

    assert not cpu.wrote(Saved(rows(problem.BY_CPU), None, plan(OF, Axes((0,)), Rule())))


@pytest.mark.parametrize("by", [problem.BY_TORCH, problem.BY_CPU, problem.BY_TRITON])
def test_rows_that_can_be_read_say_who_wrote(by: float) -> None:
    assert backend.wrote(Saved(rows(by))) == (by == problem.BY_TRITON)


@pytest.mark.parametrize("name", ["auto", "torch", "native", "triton"])
@pytest.mark.parametrize("now", ["auto", "torch", "triton"])
def test_rows_on_a_device_are_not_read(name: str, now: str) -> None:
    """What forward was asked for counts, not what is requested in backward."""
    with using_backend(now):
        assert backend.wrote(Saved(rows(problem.BY_TORCH, "meta"), backend=name)) == (name == "triton")


@pytest.mark.parametrize("traced", ["torch", "triton"])
@pytest.mark.parametrize("now", ["auto", "torch", "triton"])
def test_a_request_that_changes_after_tracing_changes_nothing(
    traced: str, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in forward nor in backward."""
    calls: list[str] = []

    def forward(*_: object) -> Result:
        calls.append("forward")
        return Result(torch.empty_like(OF.x), Saved(rows(problem.BY_TRITON, "meta")))

    def backward(*_: object) -> tuple[Tensor | None, ...]:
        calls.append("backward")
        return torch.empty_like(OF.x), *[None] * 6

    monkeypatch.setattr(backend, "why_not", lambda: None)
    monkeypatch.setattr(backend, "normalize", forward)
    monkeypatch.setattr(backend, "normalize_backward", backward)
    monkeypatch.setitem(choose._FOLDERS, "meta", "triton")
    with using_backend(traced):
        last = problem.to_arguments(OF, Axes((0,)), Rule())[-1]
    with using_backend(now):
        y, saved, _ = choose.normalize(OF, Axes((0,)), Rule(), name=last)
        through = Saved(saved.groups, backend=last)  # an operator returns tensors alone
        choose.normalize_backward(
            choose.Incoming(torch.empty_like(y)), OF, Axes((0,)), Rule(), through, (True, *[False] * 6)
        )
    assert calls == (["forward", "backward"] if traced == "triton" else [])


def test_torch_does_the_backward_where_triton_is_not_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it could run."""

    def never(*_: object) -> None:
        raise AssertionError("the kernels were called")

    monkeypatch.setattr(backend, "why_not", lambda: None)
    monkeypatch.setattr(backend, "normalize", never)
    monkeypatch.setattr(backend, "normalize_backward", never)
    monkeypatch.setitem(choose._FOLDERS, "meta", "triton")
    with using_backend("auto"):
        y, saved, _ = choose.normalize(OF, Axes((0,)), Rule())
        grads = choose.Incoming(torch.empty_like(y))
        dx, *_ = choose.normalize_backward(grads, OF, Axes((0,)), Rule(), saved, (True, *[False] * 6))
    assert dx is not None
    assert dx.shape == y.shape
