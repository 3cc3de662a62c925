"""SGD on spheres: the formula (T17), torch's SGD for the rest, and an optimizer that behaves like one."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import geonorm
from geonorm.optim import SphereSGD, project_scale_invariant

OPTIONS = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.9, "dampening": 0.3},
    {"momentum": 0.5, "weight_decay": 0.1},
    {"momentum": 0.5, "maximize": True},
]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def net(norm: nn.Module | None = None, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(6, eps=1e-12) if norm is None else norm
    return nn.Sequential(nn.Linear(4, 6, bias=bias), norm, nn.ReLU(), nn.Linear(6, 3)).double()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 6, first: int = 0) -> list[float]:
    losses = []
    for step in range(first, first + steps):
        x, y = randn(16, 4, seed=step), torch.randint(3, (16,), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def parts(weight: Tensor, number: int) -> Tensor:
    return weight.detach().reshape(number, -1)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("invariant", [True, False])
def test_other_parameters_are_updated_as_by_sgd(options: dict, invariant: bool) -> None:
    """Bit by bit: from the same gradients, with or without weights on spheres beside them."""
    model = net()
    groups = project_scale_invariant(model) if invariant else list(model.parameters())
    optimizer = SphereSGD(groups, lr=0.1, **options)
    free = [p for p in model.parameters() if not invariant or p is not model[0].weight]
    copies = [p.detach().clone().requires_grad_() for p in free]
    reference = torch.optim.SGD(copies, lr=0.1, foreach=False, **options)

    def hand_over(*_: object) -> None:
        for twin, p in zip(copies, free, strict=True):
            twin.grad = p.grad.clone()

    optimizer.register_step_pre_hook(hand_over)
    for step in range(5):
        train(model, optimizer, steps=1, first=step)
        reference.step()
        assert all(torch.equal(p, c) for p, c in zip(free, copies, strict=True))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    ("make", "bias", "kind", "number"),
    [
        (lambda: nn.BatchNorm1d(6), True, "row", 6),
        (lambda: geonorm.AugBatchNorm1d(6), False, "row", 6),
        (lambda: nn.GroupNorm(2, 6), False, "group", 2),
        (lambda: nn.LayerNorm(6), False, "matrix", 1),
    ],
)
def test_weights_stay_at_the_length_they_start_with(options: dict, make, bias: bool, kind: str, number: int) -> None:
    model = net(make(), bias)
    groups = project_scale_invariant(model, randn(16, 4))
    assert [(part.kind, part.number) for part in groups.parts] == [(kind, number)]
    before = parts(model[0].weight, number)
    lengths, start = before.norm(dim=1), before.clone()
    train(model, SphereSGD(groups, lr=0.1, **options), steps=10)
    after = parts(model[0].weight, number)
    torch.testing.assert_close(after.norm(dim=1), lengths, rtol=1e-14, atol=0)
    assert float((after - start).norm()) > 1e-2


@pytest.mark.parametrize("make", [lambda: nn.LayerNorm(6), lambda: nn.GroupNorm(2, 6)])
def test_weight_and_bias_share_a_sphere_where_the_invariance_is_joint(make) -> None:
    model = net(make(), bias=True)
    groups = project_scale_invariant(model, randn(16, 4))
    (part,) = groups.parts
    assert part.bias == "0.bias"

    def lengths() -> Tensor:
        both = torch.cat([model[0].weight, model[0].bias[:, None]], 1)
        return parts(both, part.number).norm(dim=1)

    before, bias = lengths(), model[0].bias.detach().norm()
    train(model, SphereSGD(groups, lr=0.1, momentum=0.9), steps=10)
    torch.testing.assert_close(lengths(), before, rtol=1e-14, atol=0)
    assert abs(float(model[0].bias.detach().norm() - bias)) > 1e-3


def test_T17_the_step_is_the_formula() -> None:
    """w ← r(w − η(I − ŵŵᵗ)g)/‖·‖ for each row, with a gradient that is not tangent by itself."""
    weight, g = nn.Parameter(randn(3, 5)), randn(3, 5, seed=1)
    w = weight.detach().clone()
    weight.grad = g.clone()
    SphereSGD([{"params": [weight], "unit": "row"}], lr=0.3, weight_decay=0.7).step()
    for row, gradient, found in zip(w, g, weight.detach(), strict=True):
        unit = row / row.norm()
        moved = row - 0.3 * (gradient - (gradient @ unit) * unit)
        torch.testing.assert_close(found, row.norm() * moved / moved.norm())
    assert torch.equal(weight.grad, g)  # gradients are read, not changed


def test_T17_momentum_stays_tangent() -> None:
    weight = nn.Parameter(randn(3, 5))
    optimizer = SphereSGD([{"params": [weight], "unit": "row"}], lr=0.3, momentum=0.9)
    for step in range(4):
        before = weight.detach().clone()
        weight.grad = randn(3, 5, seed=step + 1)
        optimizer.step()
        buffer = optimizer.state[weight]["momentum_buffer"]
        assert float((before * buffer).sum(1).abs().max()) < 1e-12
    assert float(buffer.norm()) > 1


def test_T17_runs_agree_at_matched_effective_rates() -> None:
    """A sphere of radius r at rate η is one of radius 1 at η/r²: same losses, and weights in the same direction."""
    runs = []
    for radius in (1.0, 5.0):
        model = net()
        groups = project_scale_invariant(model, radius=radius)
        options = [{**group, "lr": 0.05 * radius**2 if group["unit"] else 0.05} for group in groups]
        losses = train(model, SphereSGD(options, lr=0.05, momentum=0.9), steps=20)
        runs.append((losses, model[0].weight.detach() / radius))
    assert runs[0][0] == pytest.approx(runs[1][0], rel=1e-7)
    torch.testing.assert_close(runs[0][1], runs[1][1], rtol=1e-6, atol=1e-8)


def test_T17_a_large_rate_lets_weights_grow_under_sgd_and_not_on_the_sphere() -> None:
    """What the sphere prevents: under SGD ‖w‖ grows and the effective rate falls; on the sphere it stays."""
    rates, rate = [], 20.0
    for on_sphere in (True, False):
        model = net()
        groups = project_scale_invariant(model, radius=1.0)
        model[3].requires_grad_(False)
        optimizer = SphereSGD(groups, lr=rate) if on_sphere else torch.optim.SGD(model.parameters(), lr=rate)
        train(model, optimizer, steps=20)
        rates.append(rate / float(model[0].weight.detach().square().sum(1).mean()))
    assert rates[0] == pytest.approx(rate, rel=1e-12)
    assert rates[1] < rate / 2


def test_it_learns() -> None:
    x = randn(64, 4)
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = net()
    optimizer = SphereSGD(project_scale_invariant(model, x), lr=0.1, momentum=0.9)
    for _ in range(100):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.3


class TestAsAnOptimizer:
    @pytest.mark.parametrize("options", OPTIONS, ids=str)
    def test_state_dict_round_trip(self, options: dict, tmp_path) -> None:
        """Saved, loaded with weights_only, into a model whose weights have other lengths: the same run goes on."""
        model = net(nn.LayerNorm(6))  # weight and bias together
        optimizer = SphereSGD(project_scale_invariant(model), lr=0.1, **options)
        train(model, optimizer, steps=3)
        torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "state.pt")
        straight = train(model, optimizer, steps=4, first=3)
        weights, state = torch.load(tmp_path / "state.pt", weights_only=True)
        model = net(nn.LayerNorm(6))
        model[0].weight.data.mul_(7)
        optimizer = SphereSGD(project_scale_invariant(model), lr=9.0)
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)
        assert train(model, optimizer, steps=4, first=3) == straight

    def test_deepcopy_goes_on_alike(self) -> None:
        model = net()
        optimizer = SphereSGD(project_scale_invariant(model), lr=0.1, momentum=0.9)
        train(model, optimizer)
        twin, other = copy.deepcopy((model, optimizer))
        assert train(model, optimizer, first=6) == train(twin, other, first=6)

    def test_schedulers_closures_and_groups(self) -> None:
        model = net()
        optimizer = SphereSGD(project_scale_invariant(model), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        assert isinstance(optimizer, torch.optim.SGD)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = model(randn(8, 4)).square().mean()
            loss.backward()
            return loss

        value = optimizer.step(closure)
        assert value.item() > 0
        scheduler.step()
        assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.05]
        extra = nn.Parameter(randn(2, 3))
        optimizer.add_param_group({"params": [extra], "unit": "matrix"})
        extra.grad = randn(2, 3, seed=1)
        length = extra.detach().norm()
        optimizer.step()
        torch.testing.assert_close(extra.detach().norm(), length)

    def test_parameters_without_gradients_are_left(self) -> None:
        model = net()
        before = {key: value.clone() for key, value in model.state_dict().items()}
        SphereSGD(project_scale_invariant(model), lr=0.1, momentum=0.9).step()
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())

    def test_errors_say_what_to_do(self) -> None:
        weight = nn.Parameter(randn(6, 4))
        with pytest.raises(ValueError, match="unit to be one of"):
            SphereSGD([{"params": [weight], "unit": "column"}], lr=0.1)
        with pytest.raises(ValueError, match="pass parts="):
            SphereSGD([{"params": [weight], "unit": "group"}], lr=0.1)
        with pytest.raises(ValueError, match="dimension 0 to be divisible into parts"):
            SphereSGD([{"params": [weight], "unit": "group", "parts": 4}], lr=0.1)
        for dim in (2, -1):
            with pytest.raises(ValueError, match=f"dimension {dim} to be divisible into parts"):
                SphereSGD([{"params": [weight], "unit": "row", "dim": dim}], lr=0.1)
        optimizer = SphereSGD([{"params": [weight], "unit": "row"}], lr=0.1)
        with pytest.raises(ValueError, match="state_dict of SphereSGD"):
            optimizer.load_state_dict(torch.optim.SGD([weight], lr=0.1).state_dict())
        for radius in (0.0, math.inf, math.nan):
            with pytest.raises(ValueError, match="radius > 0"):
                project_scale_invariant(net(), radius=radius)


class TestEnemies:
    def test_nan_gradients_give_nan_weights_as_sgd_does(self) -> None:
        """In the part that they reach, not in others."""
        weight = nn.Parameter(randn(3, 5))
        weight.grad = randn(3, 5, seed=1)
        weight.grad[1, 2] = math.nan
        SphereSGD([{"params": [weight], "unit": "row"}], lr=0.1).step()
        assert weight[1].isnan().all()
        assert weight[[0, 2]].isfinite().all()

    def test_a_row_of_zeros_gets_a_length_first(self) -> None:
        weight = nn.Parameter(randn(2, 5))
        weight.data[0] = 0
        optimizer = SphereSGD([{"params": [weight], "unit": "row"}], lr=0.1)
        lengths = []
        for step in range(3):
            weight.grad = randn(2, 5, seed=step + 1)
            optimizer.step()
            lengths.append(weight.detach().norm(dim=1))
        assert lengths[0][0] > 0
        torch.testing.assert_close(lengths[2], lengths[0])

    def test_half_precision(self) -> None:
        model = net().to(torch.bfloat16)
        groups = project_scale_invariant(model)
        optimizer = SphereSGD(groups, lr=0.1, momentum=0.9)
        start = model[0].weight.detach().float().norm(dim=1)
        for _ in range(5):
            optimizer.zero_grad()
            model(randn(16, 4).to(torch.bfloat16)).float().square().mean().backward()
            optimizer.step()
        torch.testing.assert_close(model[0].weight.detach().float().norm(dim=1), start, rtol=4e-3, atol=0)

    def test_sparse_gradients_are_refused(self) -> None:
        weight = nn.Parameter(randn(3, 5))
        weight.grad = randn(3, 5).to_sparse()
        with pytest.raises(RuntimeError, match="dense gradients"):
            SphereSGD([{"params": [weight], "unit": "row"}], lr=0.1).step()

    def test_parametrized_transposed_frozen_and_shared_weights(self) -> None:
        torch.manual_seed(0)
        normed = parametrizations.weight_norm(nn.Linear(4, 5))
        model = nn.Sequential(normed, nn.Tanh(), nn.Linear(5, 3)).double()
        (part,) = project_scale_invariant(model, randn(8, 4)).parts
        assert (part.parameter, part.kind) == ("0.parametrizations.weight.original1", "row")
        before = normed.parametrizations.weight.original1.detach().norm(dim=1)
        train(model, SphereSGD(project_scale_invariant(model), lr=0.1, momentum=0.9))
        torch.testing.assert_close(normed.parametrizations.weight.original1.detach().norm(dim=1), before)

        model = nn.Sequential(nn.ConvTranspose2d(3, 4, 2, bias=False), nn.BatchNorm2d(4)).double()
        groups = project_scale_invariant(model, randn(3, 3, 4, 4))
        before = model[0].weight.detach().square().sum((0, 2, 3))
        model(randn(3, 3, 4, 4)).square().sum().backward()
        model[0].weight.grad += randn(3, 4, 2, 2)
        SphereSGD(groups, lr=0.1).step()
        torch.testing.assert_close(model[0].weight.detach().square().sum((0, 2, 3)), before)

        model = net()
        model[0].weight.requires_grad_(False)
        groups = project_scale_invariant(model)
        assert not groups.parts
        assert all(p.requires_grad for group in groups for p in group["params"])
        shared = nn.Linear(4, 4)
        model = nn.Sequential(shared, nn.BatchNorm1d(4), shared, nn.BatchNorm1d(4)).double()
        listed = [p for group in project_scale_invariant(model, randn(8, 4)) for p in group["params"]]
        assert len(listed) == len({id(p) for p in listed}) == len(list(model.parameters()))

    def test_no_norms_at_all(self) -> None:
        model = nn.Sequential(nn.Linear(4, 3)).double()
        groups = project_scale_invariant(model, randn(8, 4))
        assert not groups.parts
        assert "2 other parameters" in str(groups)
