"""No diagnostic changes what it looks at."""

from __future__ import annotations

import copy
import inspect
import warnings

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm import analysis
from geonorm.analysis import (
    Monitor,
    activation_effect,
    batch_width,
    curvature,
    diagnose,
    prune,
    rescaling,
    robustness,
    sphere,
)


class Odd(nn.Module):
    """Its own mode in a part, a shared norm, a norm that never runs, randomness, a counter and a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm, self.spare = nn.BatchNorm2d(4), geonorm.AugBatchNorm2d(4, spread="robust")
        self.again = self.norm
        self.relu = nn.ReLU(inplace=True)
        self.last = geonorm.AugBatchNorm2d(4, learn_phi=True)
        self.frozen = nn.BatchNorm2d(4, affine=False).eval()
        self.drop = nn.Dropout(0.5)
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen += 1
        x = self.relu(self.norm(self.conv(x)))
        x = self.relu(self.frozen(self.last(self.again(x))))
        return self.head(self.drop(x + 0.01 * torch.randn_like(x)).mean((2, 3)))


def watch(model: Odd, batches: list[tuple[Tensor, Tensor]]) -> None:
    """A monitor that sees steps in which nothing is learned."""
    twin = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        monitor = Monitor(model, optimizer, every=1)
    with monitor:
        for _ in batches:
            optimizer.step()
            monitor.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


# Those that need labels or more; all others are called with a model and batches.
LABELLED = {
    "curvature": lambda model, batches: curvature(model, batches, steps=2),
    "prune": lambda model, batches: prune(model, batches, (0.0, 0.5), ("gamma", "outputs")),
    "robustness": lambda model, batches: robustness(model, batches, steps=2, backend="own"),
    "rescaling": lambda model, batches: rescaling(model, batches, steps=2),
    "Monitor": watch,
}
ELSEWHERE = ("kappa_slopes",)  # it needs POP-Norms: test_kappa_slopes.py
FUNCTIONS = [thing for thing in (getattr(analysis, name) for name in analysis.__all__) if inspect.isfunction(thing)]
DIAGNOSTICS = [
    function
    for function in FUNCTIONS
    if list(inspect.signature(function).parameters)[:2] == ["model", "batches"]
    and function.__name__ not in (*LABELLED, *ELSEWHERE)
]


def state_of(model: Odd) -> dict[str, object]:
    return {
        "tensors": [t.detach().clone() for t in (*model.parameters(), *model.buffers())],
        "identities": [id(t) for t in (*model.parameters(), *model.buffers())],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "learning": [p.requires_grad for p in model.parameters()],
        "modes": [module.training for module in model.modules()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        "calls": model.calls,
        "eps": model.norm.eps,
        "rng": torch.get_rng_state(),
        "grad mode": torch.is_grad_enabled(),
    }


def same(one: object, other: object) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


@pytest.mark.parametrize("diagnostic", DIAGNOSTICS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("training", [True, False])
def test_models_are_left_as_they_were(diagnostic, training: bool) -> None:
    torch.manual_seed(0)
    model = Odd()
    model(torch.randn(8, 3, 6, 6)).sum().backward()
    model.conv.bias.requires_grad_(False)
    model.train(training)
    model.frozen.eval()
    heard = []
    model.norm.register_forward_hook(lambda *arguments: heard.append(1))
    x = torch.randn(16, 3, 6, 6)
    kept, before = x.clone(), state_of(model)
    diagnostic(model, [x, (x[:8], torch.zeros(8))])
    after = state_of(model)
    assert [name for name in before if not same(before[name], after[name])] == []
    assert torch.equal(x, kept)


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize("training", [True, False])
def test_models_and_labelled_batches_are_left_as_they_were(name: str, training: bool) -> None:
    torch.manual_seed(0)
    model = Odd().double()
    model(torch.rand(8, 3, 6, 6).double()).sum().backward()
    model.train(training)
    model.frozen.eval()
    x, labels = torch.rand(16, 3, 6, 6).double(), torch.arange(16) % 2
    kept, before = x.clone(), state_of(model)
    LABELLED[name](model, [(x, labels), (x[:8], labels[:8])])
    after = state_of(model)
    assert [key for key in before if not same(before[key], after[key])] == []
    assert torch.equal(x, kept)
    assert not x.requires_grad
    assert x.grad is None


def test_attributes_that_a_forward_leaves_are_gone() -> None:
    class Marks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            self.last_seen = x
            return self.norm(self.linear(x))

    model = Marks()
    sphere(model, torch.randn(8, 4))
    assert "last_seen" not in vars(model)


@pytest.mark.parametrize("diagnostic", [batch_width, diagnose, sphere, activation_effect], ids=lambda d: d.__name__)
def test_models_that_fail_are_left_as_they_were(diagnostic) -> None:
    model, x = Odd(), torch.randn(4, 2, 6, 6)
    before = state_of(model)
    if diagnostic is diagnose:
        diagnostic(model, x)
    else:
        with pytest.raises(RuntimeError, match="channels"):
            diagnostic(model, x)
    after = state_of(model)
    assert [name for name in before if not same(before[name], after[name])] == []


@pytest.mark.parametrize("diagnostic", DIAGNOSTICS, ids=lambda d: d.__name__)
def test_one_batch_may_be_a_tensor_or_a_pair_and_several_a_generator(diagnostic) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
    x = torch.randn(32, 5)
    results = [diagnostic(model, given).to_dict() for given in (x, (x, torch.zeros(32)), [x], (batch for batch in [x]))]
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("diagnostic", [batch_width, diagnose, sphere, activation_effect], ids=lambda d: d.__name__)
def test_meta_and_scripted_models_are_refused_in_words(diagnostic) -> None:
    with pytest.raises(ValueError, match="meta"):
        diagnostic(nn.Linear(3, 2, device="meta"), torch.randn(2, 3))
    with pytest.raises(ValueError, match="scripted"):
        diagnostic(torch.jit.script(nn.Linear(3, 2)), torch.randn(2, 3))
