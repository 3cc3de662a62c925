"""`convert` over everything: all specs, all kinds of layers, all sorts of places, there, in use, and back.

Nothing may raise. A norm is changed, or left with a reason, or it is already what the spec says; a model that ran
before runs afterwards; and `revert` brings back what was there, bit for bit and in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import geonorm
from geonorm.introspect.layouts import is_norm
from geonorm.nn.specs import NORMS

C = 8
# The default number of groups leaves one channel to a group, which says nothing about inputs (N, C).
SPECS = [f"{name}(groups=2)" if "group" in name or name == "gn" else name for name in NORMS]


class Kind(NamedTuple):
    """An operation, the norm behind it, and an input. Both have C channels in and out, so that they can be repeated."""

    operation: Callable[[], nn.Module]
    norm: Callable[[], nn.Module]
    shape: tuple[int, ...]
    trains: bool = True


class OwnForward(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


class RootMeanSquareNorm(nn.Module):
    """Of somebody else."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class TwoInputs(nn.Conv2d):
    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        return super().forward(x if other is None else x + other)


def linear() -> nn.Module:
    return nn.Linear(C, C)


def conv(dim: int, transposed: bool = False, **options: Any) -> Callable[[], nn.Module]:
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dim}d")
    return lambda: kind(C, C, 3, padding=1, **options)


def pruned(norm: nn.Module) -> nn.Module:
    return prune.l1_unstructured(norm, "weight", 0.25)


FLAT, LINE, IMAGE, SPACE = (6, C), (4, C, 5), (3, C, 5, 5), (2, C, 4, 4, 4)
LINEAR_KINDS = {
    "BatchNorm1d": Kind(linear, lambda: nn.BatchNorm1d(C), FLAT),
    "LayerNorm": Kind(linear, lambda: nn.LayerNorm(C), FLAT),
    "LayerNorm without bias": Kind(linear, lambda: nn.LayerNorm(C, bias=False), (2, 3, C)),
    "GroupNorm of features": Kind(linear, lambda: nn.GroupNorm(2, C), FLAT),
    "RMSNorm": Kind(linear, lambda: nn.RMSNorm(C), FLAT),
    "a stranger": Kind(linear, lambda: RootMeanSquareNorm(C), FLAT),
    "AugGraphNorm": Kind(linear, lambda: geonorm.AugGraphNorm(C), FLAT),
    "PopNorm1d": Kind(linear, lambda: geonorm.PopNorm1d(C), FLAT),
    "lazy Linear": Kind(lambda: nn.LazyLinear(C), lambda: nn.BatchNorm1d(C), FLAT),
    "instances behind a Linear": Kind(linear, lambda: nn.InstanceNorm1d(C), (3, C, C)),
}
KINDS = {
    **LINEAR_KINDS,
    "BatchNorm1d of lines": Kind(conv(1), lambda: nn.BatchNorm1d(C), LINE),
    "BatchNorm2d": Kind(conv(2), lambda: nn.BatchNorm2d(C), IMAGE),
    "BatchNorm3d": Kind(conv(3), lambda: nn.BatchNorm3d(C), SPACE),
    "BatchNorm2d without γ": Kind(conv(2, bias=False), lambda: nn.BatchNorm2d(C, affine=False), IMAGE),
    "BatchNorm2d without memory": Kind(conv(2), lambda: nn.BatchNorm2d(C, track_running_stats=False), IMAGE),
    "BatchNorm2d with averages": Kind(conv(2), lambda: nn.BatchNorm2d(C, momentum=None), IMAGE),
    "BatchNorm2d, transposed": Kind(conv(2, transposed=True), lambda: nn.BatchNorm2d(C), IMAGE),
    "BatchNorm2d, pruned": Kind(conv(2), lambda: pruned(nn.BatchNorm2d(C)), IMAGE),
    "BatchNorm2d behind wn": Kind(
        lambda: parametrizations.weight_norm(conv(2)()),  # type: ignore[arg-type]
        lambda: nn.BatchNorm2d(C),
        IMAGE,
    ),
    "BatchNorm2d behind its own conv": Kind(lambda: TwoInputs(C, C, 3), lambda: nn.BatchNorm2d(C), (3, C, 9, 9)),
    "a forward of its own": Kind(conv(2), lambda: OwnForward(C), IMAGE),
    "SyncBatchNorm": Kind(conv(2), lambda: nn.SyncBatchNorm(C), IMAGE, trains=False),
    "InstanceNorm1d": Kind(conv(1), lambda: nn.InstanceNorm1d(C), LINE),
    "InstanceNorm2d": Kind(conv(2), lambda: nn.InstanceNorm2d(C, affine=True, track_running_stats=True), IMAGE),
    "InstanceNorm3d": Kind(conv(3), lambda: nn.InstanceNorm3d(C, affine=True), SPACE),
    "GroupNorm": Kind(conv(2), lambda: nn.GroupNorm(4, C), IMAGE),
    "LayerNorm of images": Kind(conv(2), lambda: nn.LayerNorm((C, 5, 5)), IMAGE),
    "LocalResponseNorm": Kind(conv(2), lambda: nn.LocalResponseNorm(2), IMAGE),
    "AugBatchNorm2d": Kind(conv(2), lambda: geonorm.AugBatchNorm2d(C, learn_phi=True, spread="robust"), IMAGE),
    "AugLayerNorm": Kind(linear, lambda: geonorm.AugLayerNorm(C), FLAT),
    "AugGroupNorm": Kind(conv(2), lambda: geonorm.AugGroupNorm(2, C), IMAGE),
    "AugInstanceNorm2d": Kind(conv(2), lambda: geonorm.AugInstanceNorm2d(C), IMAGE),
    "PopNorm2d": Kind(conv(2), lambda: geonorm.PopNorm2d(C), IMAGE),
    "lazy BatchNorm2d": Kind(conv(2), lambda: nn.LazyBatchNorm2d(), IMAGE),
    "lazy InstanceNorm2d": Kind(conv(2), lambda: nn.LazyInstanceNorm2d(affine=True), IMAGE),
    "lazy Conv2d": Kind(lambda: nn.LazyConv2d(C, 3, padding=1), lambda: nn.BatchNorm2d(C), IMAGE),
}


class ConvNormAct(nn.Module):
    """A block with the name of a norm."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.operation, self.norm, self.act = kind.operation(), kind.norm(), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.operation(x)))


class Residual(nn.Module):
    """Norm, activation in place, operation; what goes in goes past it."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.norm, self.operation = kind.norm(), kind.operation()

    def forward(self, x: Tensor) -> Tensor:
        y = self.operation(F.relu_(self.norm(x)))
        return x + y if x.shape == y.shape else y


class Functional(ConvNormAct):
    """The weight of the operation is used past it, and looked at."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.operation(x.to(self.operation.weight.dtype))))
        return x + self.operation.weight.square().mean()


class Shared(ConvNormAct):
    """One norm and one operation, called twice."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(super().forward(x))


class Untraceable(ConvNormAct):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if bool(x.isfinite().any()) else x


def frozen(kind: Kind) -> nn.Module:
    model = nn.Sequential(ConvNormAct(kind))
    geonorm.freeze(model, affine=not any(map(nn.parameter.is_lazy, model.parameters())))
    return model


def converted(kind: Kind) -> nn.Module:
    model = nn.Sequential(kind.operation(), kind.norm(), nn.ReLU())
    geonorm.convert(model, "pop")
    return model


WHERE: dict[str, Callable[[Kind], nn.Module]] = {
    "plain": lambda kind: nn.Sequential(kind.operation(), kind.norm(), nn.ReLU()),
    "block": lambda kind: nn.Sequential(ConvNormAct(kind), ConvNormAct(kind)),
    "residual": lambda kind: nn.Sequential(kind.operation(), Residual(kind)),
    "functional": lambda kind: nn.Sequential(Functional(kind)),
    "shared": lambda kind: nn.Sequential(Shared(kind)),
    "two names": lambda kind: nn.Sequential(*[ConvNormAct(kind)] * 2),
    "untraceable": lambda kind: nn.Sequential(Untraceable(kind), ConvNormAct(kind)),
    "alone": lambda kind: kind.norm(),
    "frozen": frozen,
    "converted before": converted,
}
QUICK_SPECS = ["aug", "in", "gn(groups=2)", "pop", "ws", "none"]
QUICK_KINDS = ["BatchNorm1d", "LayerNorm", "InstanceNorm2d", "BatchNorm2d behind its own conv", "lazy Conv2d"]
QUICK = {("plain", kind) for kind in QUICK_KINDS} | {(where, "BatchNorm2d") for where in WHERE}


@pytest.fixture(autouse=True)
def no_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for optimizers among all objects takes longer than everything else here."""
    monkeypatch.setattr("geonorm.surgery.stale_optimizers.gc.get_objects", list)


def state(model: nn.Module) -> dict[str, Any]:
    return {key: value if nn.parameter.is_lazy(value) else value.clone() for key, value in model.state_dict().items()}


def assert_same(now: dict[str, Any], before: dict[str, Any]) -> None:
    assert list(now) == list(before)
    for key, value in now.items():
        assert value is before[key] or torch.equal(value, before[key]), key


def run(model: nn.Module, x: Tensor, trains: bool) -> None:
    """A step of training and an evaluation."""
    x = x.clone().requires_grad_()
    if trains:
        model.train()(x).square().sum().backward()
    model.eval()(x)


@pytest.mark.parametrize("spec", QUICK_SPECS)
@pytest.mark.parametrize(("where", "name"), sorted(QUICK))
def test_some(where: str, name: str, spec: str) -> None:
    there_and_back(WHERE[where], KINDS[name], spec)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("where", WHERE)
def test_all(where: str, name: str) -> None:
    for spec in SPECS:
        there_and_back(WHERE[where], KINDS[name], spec)


def there_and_back(make: Callable[[Kind], nn.Module], kind: Kind, spec: str) -> None:
    torch.manual_seed(0)
    x, model, then, used = torch.randn(kind.shape), make(kind), make(kind), make(kind)
    norms = {key or "(model)" for key, module in model.named_modules() if is_norm(module)}
    order, before = [key for key, _ in model.named_parameters()], state(model)
    began_with_torch = not any(type(module).__module__.startswith("geonorm") for module in model.modules())

    report = geonorm.convert(model, spec)
    told = {each.name for each in (*report.changed, *report.left)}
    assert all(left.reason for left in report.left), spec
    if began_with_torch:
        assert told <= norms, spec
        for key in norms - told:  # it is there already
            assert repr(model.get_submodule(key)) == repr(then.get_submodule(key)), (spec, key)
    geonorm.revert(model)
    if began_with_torch:
        assert_same(model.state_dict(), before)
        assert [key for key, _ in model.named_parameters()] == order, spec
    assert not any(hasattr(module, "pre_norm") for module in model.modules()), spec

    geonorm.convert(used, spec)
    run(used, x, kind.trains)
    geonorm.revert(used)
    run(used, x, kind.trains)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KINDS if name not in LINEAR_KINDS])
@pytest.mark.parametrize("spec", SPECS)
def test_norms_that_are_named(spec: str, name: str) -> None:
    """With ``where`` the axes may change, too."""
    model, x = nn.Sequential(ConvNormAct(KINDS[name])), torch.randn(KINDS[name].shape)
    keys = list(model.state_dict())
    geonorm.convert(model, spec, where="0.norm")
    run(model, x, KINDS[name].trains)
    geonorm.revert(model)
    if not name.startswith(("Aug", "Pop", "lazy")):
        assert list(model.state_dict()) == keys


@pytest.mark.slow
def test_every_reason_is_a_documented_one() -> None:
    """A norm is left because of what it is or where it stands, not because something happened to fail."""
    reasons = set()
    for kind in KINDS.values():
        for make in (WHERE["plain"], WHERE["shared"], WHERE["untraceable"]):
            for spec in SPECS:
                reasons |= {left.reason for left in geonorm.convert(make(kind), spec).left}
    assert reasons
    strange = [reason for reason in reasons if any(word in reason for word in ("Error", "object has no", "argument"))]
    assert not strange
