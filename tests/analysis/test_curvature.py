"""Curvature against exact Hessians and plain loops, in float64; the slopes against κ of POP-Norm."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import geonorm
from geonorm.analysis import curvature, kappa_slopes
from geonorm.analysis.curvature.lanczos import lanczos
from helpers.assert_model_unchanged import assert_model_unchanged


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def data(samples: int = 12) -> tuple[Tensor, Tensor]:
    return randn(samples, 4), torch.arange(samples) % 3


def net(norm: nn.Module | None = None, activation: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(5) if norm is None else norm
    return nn.Sequential(nn.Linear(4, 5), norm, activation or nn.Tanh(), nn.Linear(5, 3)).double()


def squares(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().sum(1)


def exact_hessian(model: nn.Module, batches: list[tuple[Tensor, Tensor]], names: list[str]) -> Tensor:
    """By torch.func.hessian of the flattened parameters."""
    parameters = dict(model.named_parameters())
    flat = torch.cat([parameters[name].detach().flatten() for name in names])
    sizes = [parameters[name].numel() for name in names]

    def value(vector: Tensor) -> Tensor:
        own = {n: part.view_as(parameters[n]) for n, part in zip(names, vector.split(sizes), strict=True)}
        losses = [
            nn.functional.cross_entropy(torch.func.functional_call(model, own, (x,)), y, reduction="none")
            for x, y in batches
        ]
        return torch.cat(losses).mean()

    return torch.autograd.functional.hessian(value, flat)


def loop_variance(model: nn.Module, batches: list[tuple[Tensor, Tensor]], alone: bool) -> tuple[float, float]:
    """E‖∇f_i − ∇F‖² and ‖∇F‖² by one backward after another; ``alone``: each sample a batch of its own."""
    rows = []
    for x, y in batches:
        for i in range(len(x)):
            model.zero_grad()
            if alone:
                nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
            else:
                nn.functional.cross_entropy(model(x), y, reduction="none")[i].backward()
            rows.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    model.zero_grad()
    stacked = torch.stack(rows)
    mean = stacked.mean(0)
    return float((stacked - mean).square().sum(1).mean()), float(mean.square().sum())


class TestLanczos:
    def test_against_the_whole_spectrum(self) -> None:
        a = randn(40, 40)
        a = a + a.T
        values = torch.linalg.eigvalsh(a)
        ends = lanczos(lambda v: a @ v, randn(40, seed=1), steps=40, tolerance=1e-12)
        assert ends.largest == pytest.approx(float(values[-1]), rel=1e-12)
        assert ends.smallest == pytest.approx(float(values[0]), rel=1e-12)

    def test_its_error_is_a_bound(self) -> None:
        a = torch.diag(torch.linspace(-1, 3, 200, dtype=torch.float64))
        for steps in (2, 5, 10, 20):
            ends = lanczos(lambda v: a @ v, randn(200, seed=2), steps=steps, tolerance=1e-14)
            assert ends.products == steps
            for value in (ends.largest, ends.smallest):
                assert float((a.diagonal() - value).abs().min()) <= ends.error + 1e-14
        assert ends.error > 1e-6

    def test_it_stops_when_nothing_is_left(self) -> None:
        zero = lanczos(torch.zeros_like, randn(30), steps=20, tolerance=1e-6)
        assert zero == (0.0, 0.0, 0.0, 1)
        assert lanczos(lambda v: 2 * v, randn(30), steps=20, tolerance=1e-12).products == 1
        single = lanczos(lambda v: -3 * v, randn(1), steps=20, tolerance=1e-12)
        assert (single.largest, single.smallest) == (-3.0, -3.0)
        assert math.isnan(lanczos(lambda v: v * math.nan, randn(3), steps=9, tolerance=1e-6).largest)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", ["bn", "aug", "pop", "ln"])
def test_eigenvalues_are_those_of_the_exact_hessian(norm: str, training: bool) -> None:
    norms = {
        "bn": nn.BatchNorm1d(5),
        "aug": geonorm.AugBatchNorm1d(5, phi=1.5),
        "pop": geonorm.PopNorm1d(5),
        "ln": nn.LayerNorm(5),
    }
    model, batches = net(norms[norm]).train(training), [data(12), data(7)]
    names = [name for name, _ in model.named_parameters()]
    found = curvature(model, batches, tolerance=1e-9, steps=100)
    with geonorm.no_stat_update():
        expected = torch.linalg.eigvalsh(exact_hessian(model, batches, names))
        last = torch.linalg.eigvalsh(exact_hessian(model, batches, ["3.weight", "3.bias"]))
    assert found.blocks[0].largest == pytest.approx(float(expected[-1]), rel=1e-6)
    assert found.blocks[0].smallest == pytest.approx(float(expected[0]), rel=1e-6)
    assert found.lipschitz == pytest.approx(float(expected.abs().max()), rel=1e-6)
    block = next(block for block in found.blocks if block.name == "3")
    assert block.largest == pytest.approx(float(last[-1]), rel=1e-6)


def test_variance_in_evaluation_is_that_of_a_loop_over_samples() -> None:
    model, batches = net().train(), [data(40), data(5)]
    model(batches[0][0])
    model.eval()
    found = curvature(model, batches, hessian=False)
    assert found.how == "vmap"
    assert found.samples == 45
    assert (found.blocks[0].variance, found.blocks[0].gradient) == pytest.approx(
        loop_variance(model, batches, alone=True), rel=1e-12
    )
    slow = curvature(model, batches, hessian=False, how="backward")
    assert slow.blocks[0].variance == pytest.approx(found.blocks[0].variance, rel=1e-12)


def test_variance_in_training_has_the_whole_batch_in_the_graph() -> None:
    """Sample i's term depends on the others: it is not what the sample alone, or the batch as one, would give."""
    model, batches = net().train(), [data(12), data(7)]
    found = curvature(model, batches, hessian=False)
    assert found.how == "backward"
    with geonorm.no_stat_update():
        expected = loop_variance(model, batches, alone=False)
    assert (found.blocks[0].variance, found.blocks[0].gradient) == pytest.approx(expected, rel=1e-12)
    by_batch = curvature(model, batches, hessian=False, how="batches")
    assert by_batch.samples == 2
    assert by_batch.blocks[0].variance < 0.5 * found.blocks[0].variance
    evaluated = curvature(model.eval(), batches, hessian=False)
    assert abs(evaluated.blocks[0].variance / found.blocks[0].variance - 1) > 0.01
    assert "one per mini-batch" in by_batch.table()
    assert "evaluation" in evaluated.table()


def test_condition_of_inputs() -> None:
    """Planted: inputs of standard deviations 1 and 10, then a mean that a bias sees, then a direction never seen."""
    white = randn(200, 2)
    white = torch.linalg.qr(white - white.mean(0)).Q * 200**0.5
    x, target = white * torch.tensor([1.0, 10.0]), torch.zeros(200, dtype=torch.long)

    def condition(x: Tensor, bias: bool) -> float:
        model = nn.Linear(2, 3, bias=bias).double()
        (block,) = curvature(nn.Sequential(model), (x, target), hessian=False).blocks[1:]
        return block.condition

    assert condition(x, bias=False) == pytest.approx(100, rel=1e-9)
    assert condition(x, bias=True) == pytest.approx(100, rel=1e-9)
    mean = 5.0
    joint = torch.tensor([[1 + mean**2, 0, mean], [0, 100.0, 0], [mean, 0, 1]]).double()  # block of (w, b)
    shifted = x + torch.tensor([mean, 0.0])
    assert condition(shifted, bias=True) == pytest.approx(float(torch.linalg.cond(joint)), rel=1e-9)
    assert condition(x * torch.tensor([1.0, 0.0]), bias=False) == math.inf


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=1, bias=False),
        nn.Conv2d(4, 6, (1, 2), groups=2, bias=False),
        nn.Conv1d(4, 6, 3, padding=2, dilation=2, bias=False),
    ],
)
def test_condition_of_patches_is_that_of_the_gauss_newton_block(layer) -> None:
    """For a sum of squares the Hessian of a convolution's weight is 2·Σzzᵗ for each output row, by autograd."""
    shape = (6, 4, 9) if isinstance(layer, nn.Conv1d) else (6, 4, 7, 8)
    model, x = nn.Sequential(layer.double()), randn(*shape)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return output.square().flatten(1).sum(1)

    def value(weight: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"weight": weight}, (x,)).square().sum()

    size = layer.weight.numel()
    hessian = torch.autograd.functional.hessian(value, layer.weight.detach()).reshape(size, size)
    block = curvature(model, (x, torch.zeros(6)), loss, hessian=False).blocks[1]
    rows = layer.weight[0].numel()
    first = torch.linalg.cond(hessian[:rows, :rows])
    last = torch.linalg.cond(hessian[-rows:, -rows:])
    assert block.condition == pytest.approx(float(torch.maximum(first, last)), rel=1e-6)


def test_kappa_slope_of_the_last_layer_is_exactly_minus_two() -> None:
    """POP → linear → MSE: the Hessian is that of F(w/κ), 16 times smaller for each factor 4."""
    model = nn.Sequential(geonorm.PopNorm1d(4), nn.Linear(4, 2)).double()
    nn.init.zeros_(model[1].weight)  # the variance follows F(w/κ) too, seen from the same point w = 0
    with assert_model_unchanged(model):
        found = kappa_slopes(model, (randn(32, 4), randn(32, 2, seed=1)), squares, tolerance=1e-10)
    (slope,) = found.slopes
    assert (slope.norm, slope.layer) == ("0", "1")
    assert slope.largest == pytest.approx(-2, abs=1e-9)
    assert slope.variance == pytest.approx(-2, abs=1e-9)
    assert slope.eigenvalues[0] / slope.eigenvalues[1] == pytest.approx(16, rel=1e-9)
    assert slope.eigenvalues[1] / slope.eigenvalues[2] == pytest.approx(16, rel=1e-9)
    assert model[0].kappa == 4.0  # put back


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh()])
def test_kappa_slope_of_interior_layers(activation: nn.Module) -> None:
    """ReLU and the next POP-Norm divide the scale away again: no dependence on κ. With tanh there is some."""
    torch.manual_seed(0)
    model = nn.Sequential(
        geonorm.PopNorm1d(4, eps=1e-30), nn.Linear(4, 6, bias=False), activation,
        geonorm.PopNorm1d(6, eps=1e-30), nn.Linear(6, 2, bias=False),
    ).double()  # fmt: skip
    model[1].weight.data.mul_(5)  # out of tanh's linear part
    found = kappa_slopes(model, (randn(32, 4), randn(32, 2, seed=1)), squares, tolerance=1e-8)
    interior, last = found.slopes
    assert (interior.layer, last.layer) == ("1", "4")
    assert last.largest == pytest.approx(-2, abs=1e-6)
    if isinstance(activation, nn.ReLU):
        assert interior.largest == pytest.approx(0, abs=1e-6)
        assert interior.variance == pytest.approx(0, abs=1e-6)
        assert interior.eigenvalues == pytest.approx([interior.eigenvalues[0]] * 3, rel=1e-7)
    else:
        assert abs(interior.eigenvalues[2] / interior.eigenvalues[0] - 1) > 0.1


def test_kappa_of_converted_models() -> None:
    """A converted network has its POP-Norms inside the layers; they are found, and are not part of the layers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3), nn.BatchNorm1d(3)).double()
    geonorm.convert(model, "pop")
    assert [(slope.norm, slope.layer) for slope in kappa_slopes(model, data(), kappas=(1, 4)).slopes] == [
        ("0.pre_norm", "0"),
        ("3.pre_norm", "3"),
    ]
    blocks = curvature(model, data(), hessian=False).blocks
    weights = sum(p.numel() for name, p in model.named_parameters() if name in ("0.weight", "0.bias"))
    assert blocks[1].parameters == weights


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training: bool) -> None:
    model = nn.Sequential(net(), nn.Dropout(0.5), nn.Linear(3, 3).double()).train(training)
    model[0][1].eval()
    model[2].weight.grad = torch.ones_like(model[2].weight)
    with assert_model_unchanged(model):
        first = curvature(model, data(), steps=5)
    with assert_model_unchanged(model):
        again = curvature(model, data(), steps=5)
    assert first.blocks[0].largest == again.blocks[0].largest


def test_dropout_has_one_mask_for_all_products() -> None:
    """With new masks in each product there would be no matrix, and no convergence."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    found = curvature(model, data(), tolerance=1e-8, steps=200, where="0")
    assert found.blocks[0].error <= 1e-8 * found.lipschitz


class TestEnemies:
    def test_frozen_shared_and_parametrized_weights(self) -> None:
        shared = nn.Linear(4, 4).double()
        normed = parametrizations.weight_norm(nn.Linear(4, 3).double())
        model = nn.Sequential(shared, nn.Tanh(), shared, normed)
        shared.bias.requires_grad_(False)
        with assert_model_unchanged(model):
            found = curvature(model, data(), tolerance=1e-9)
        assert [block.name for block in found.blocks] == ["(all)", "0", "3"]
        assert found.blocks[1].parameters == 16
        assert found.blocks[2].parameters == 3 + 12 + 3
        assert found.blocks[0].parameters == 16 + 18

    def test_one_sample_and_a_model_without_norms(self) -> None:
        found = curvature(nn.Sequential(nn.Linear(4, 3)).double(), data(1))
        assert found.blocks[0].variance == 0.0
        assert found.blocks[0].condition is None

    def test_a_loss_without_curvature(self) -> None:
        model = nn.Sequential(nn.Linear(4, 3, bias=False)).double()
        found = curvature(model, data(), lambda output, target: output.sum(1))
        assert found.lipschitz == 0.0

    def test_nan_is_told(self) -> None:
        x, y = data()
        x[0, 0] = math.nan
        found = curvature(net(), (x, y))
        assert math.isnan(found.blocks[0].variance)
        assert math.isnan(found.blocks[0].largest)
        assert found.to_dict()["blocks"][0]["largest"] is None

    def test_what_torch_func_cannot_run_goes_sample_by_sample(self) -> None:
        class Branch(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x * 2 if float(x.detach().sum()) > -1e9 else x

        model = nn.Sequential(nn.Linear(4, 3), Branch()).double().eval()
        assert curvature(model, data(), hessian=False).how == "backward"
        with pytest.raises(RuntimeError):
            curvature(model, data(), hessian=False, how="vmap")

    @pytest.mark.parametrize(
        ("make", "batches", "options", "error", "words"),
        [
            (net, [], {}, ValueError, "at least one batch"),
            (net, randn(4, 4), {}, TypeError, r"\(input, target\)"),
            (net, data(), {"loss": nn.functional.cross_entropy}, ValueError, "reduction='none'"),
            (net, data(), {"how": "fisher"}, ValueError, "expected how"),
            (net, data(), {"how": "vmap"}, ValueError, "model.eval"),
            (lambda: net().half(), data(), {}, TypeError, "float32 or float64"),
            (lambda: net().requires_grad_(False), data(), {}, ValueError, "all are frozen"),
            (net, data(), {"where": "9"}, ValueError, "matches no module"),
        ],
    )
    def test_errors_say_what_to_do(self, make, batches, options, error, words: str) -> None:
        model = make()
        with assert_model_unchanged(model), pytest.raises(error, match=words):
            curvature(model, batches, **options)

    def test_errors_of_kappa(self) -> None:
        with pytest.raises(ValueError, match=r"geonorm\.convert"):
            kappa_slopes(net(), data())
        with pytest.raises(ValueError, match="two different"):
            kappa_slopes(net(geonorm.PopNorm1d(5)), data(), kappas=(4,))


def test_results_draw_themselves() -> None:
    found = curvature(net(), data())
    assert "condition of inputs" in found.table()
    assert len(found.plot().axes) == 3
    slopes = kappa_slopes(net(geonorm.PopNorm1d(5), nn.ReLU()), data(), kappas=(1, 2))
    assert "λ max, κ=2" in slopes.table()
    assert slopes.plot().axes
    assert slopes.to_dict()["slopes"][0]["layer"] == "3"


def test_norms_without_running_statistics_join_samples_in_evaluation_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3)).double()
    batch = torch.randn(8, 4).double(), torch.arange(8) % 3
    found = curvature(model.eval(), batch, hessian=False)
    assert found.how == "backward"
    assert found.blocks[0].variance == pytest.approx(curvature(model.train(), batch, hessian=False).blocks[0].variance)
    with pytest.raises(ValueError, match="running statistics"):
        curvature(model.eval(), batch, hessian=False, how="vmap")
