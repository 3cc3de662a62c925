"""Attacks: known answers on a linear model, the ball and the range, and nothing left behind."""

import math

import pytest
import torch
from torch import Tensor, nn

from geonorm.robust import accuracy, bim, fgsm, pgd

ATTACKS = {"fgsm": fgsm, "bim": bim, "pgd": pgd}


def net(norm: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6)] if norm else [nn.Conv2d(2, 6, 3)]
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)).double()


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(5, 2, 6, 6, generator=generator, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])


def two_classes() -> tuple[nn.Linear, Tensor, Tensor, Tensor]:
    """Scores (w·x, 0): for label 0 the loss grows against w, for label 1 along it."""
    model = nn.Linear(3, 2, bias=False)
    model.weight.data = torch.tensor([[1.0, -2.0, 0.0], [0.0, 0.0, 0.0]])
    x = torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.99, 0.5]])
    return model, x, torch.tensor([0, 1]), torch.tensor([[-1.0, 1.0, 0.0], [1.0, -1.0, 0.0]])


@pytest.mark.parametrize("name", ["fgsm", "bim"])
def test_a_linear_model_is_pushed_along_its_weight(name: str) -> None:
    model, x, labels, direction = two_classes()
    torch.testing.assert_close(ATTACKS[name](model, x, labels, 0.05), x + 0.05 * direction)
    flipped = ATTACKS[name](model, x, 1 - labels, 0.05)
    torch.testing.assert_close(flipped, (x - 0.05 * direction).clamp(0, 1))  # .99 + .05 stops at 1
    assert flipped.max() == 1


def test_steps_add_up_until_the_ball_ends() -> None:
    model, x, labels, direction = two_classes()
    torch.testing.assert_close(bim(model, x, labels, 0.3, step=0.05, steps=3), x + 0.15 * direction)
    torch.testing.assert_close(bim(model, x, labels, 0.1, step=0.07, steps=2), x + 0.1 * direction)


@pytest.mark.parametrize("name", ATTACKS)
def test_it_stays_in_the_ball_and_the_range_and_hurts(name: str) -> None:
    model, (x, labels) = net().eval(), data()
    attacked = ATTACKS[name](model, x, labels, 0.1)
    assert float((attacked - x).abs().max()) <= 0.1 + 1e-12
    assert 0 <= float(attacked.min()) <= float(attacked.max()) <= 1
    with torch.no_grad():
        before, after = (nn.functional.cross_entropy(model(inputs), labels) for inputs in (x, attacked))
    assert float(after) > float(before) + 0.01


def test_random_start_is_pgd_alone_and_follows_the_seed() -> None:
    model, (x, labels) = net(), data()
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append(pgd(model, x, labels, 0.1, step=0.0, steps=1))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert torch.equal(bim(model, x, labels, 0.1, step=0.0, steps=1), x)
    spread = (runs[0] - x)[(x > 0.1) & (x < 0.9)] / 0.1
    assert float(spread.var()) == pytest.approx(1 / 3, rel=0.2)  # uniform on [−1, 1]


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("own", [True, False])
def test_the_model_is_left_as_it_was(name: str, own: bool) -> None:
    """Modes one by one: a frozen norm in a training model stays frozen. No gradients, no statistics, no_grad or not."""
    model, (x, labels) = net().train(), data()
    model[1].eval()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        attacked = ATTACKS[name](model, x, labels, backend="own" if own else "auto")
    assert not attacked.requires_grad
    assert [module.training for module in model] == [True, False, True, True, True, True]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert all(p.grad is None for key, p in model.named_parameters() if key != "0.weight")
    assert not x.requires_grad
    assert not torch.equal(attacked, x)


def test_frozen_parameters_half_precision_and_nan() -> None:
    model, (x, labels) = net().requires_grad_(False), data()
    assert not torch.equal(fgsm(model, x, labels), x)
    half = model.to(torch.bfloat16)
    assert bim(half, x.to(torch.bfloat16), labels).dtype is torch.bfloat16
    model = net()
    model[0].weight.data.fill_(math.nan)
    broken = bim(model, x, labels)  # no direction to go: the inputs come back, and no error hides the broken scores
    assert float((broken - x).abs().max()) <= 8 / 255
    assert accuracy(model(broken), labels).correct == 0


def test_a_single_sample_an_empty_batch_and_a_model_without_norms() -> None:
    model, (x, labels) = net(norm=False).train(), data()
    assert bim(model, x[:1], labels[:1]).shape == (1, 2, 6, 6)
    assert pgd(model, x[:0], labels[:0]).shape == (0, 2, 6, 6)
    assert fgsm(net().train(), x[:1], labels[:1]).shape == (1, 2, 6, 6)  # no error from BatchNorm: in evaluation


def test_errors_say_the_cure() -> None:
    model, (x, labels) = net(), data()
    with pytest.raises(ValueError, match="Standardize"):
        fgsm(model, x * 2, labels)
    with pytest.raises(TypeError, match="x / 255"):
        fgsm(model, (x * 255).byte(), labels)
    with pytest.raises(ValueError, match="steps >= 1"):
        bim(model, x, labels, steps=0)
    with pytest.raises(ValueError, match="backend"):
        fgsm(model, x, labels, backend="advertorch")
    with pytest.raises(ValueError, match="low < high"):
        fgsm(model, x, labels, between=(1, 0))


@pytest.mark.parametrize("labels", [[0, 5], [0, -1]])
def test_labels_out_of_range_are_refused_in_words(labels: list[int]) -> None:
    with pytest.raises(ValueError, match="labels from 0 to 2"):
        fgsm(nn.Linear(4, 3), torch.rand(2, 4), torch.tensor(labels), backend="own")
