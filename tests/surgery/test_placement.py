"""`convert` to norms that stand elsewhere: POP-Norm before its operation, and norms on weights."""

import pytest
import torch
from torch import Tensor, nn

import geonorm
from helpers.model_states import conv_net
from helpers.third_party_models import (
    THIRD_PARTY_MODELS,
    ThirdPartyModel,
    image_batch,
    small_densenet,
    small_vgg,
    small_wrn,
)


def rms(x: Tensor) -> Tensor:
    """Of each channel."""
    return x.detach().square().mean((0, 2, 3)).sqrt()


class TestPop:
    @pytest.mark.parametrize(
        ("case", "norms", "left"),
        [
            (ThirdPartyModel("vgg", small_vgg, lambda: image_batch(2, 56)), 4, 0),
            (THIRD_PARTY_MODELS[0], 21, 0),
            (ThirdPartyModel("densenet", small_densenet, lambda: image_batch(size=16)), 5, 1),
            (ThirdPartyModel("wrn", small_wrn, image_batch), 13, 1),
        ],
        ids=lambda value: value.name if isinstance(value, ThirdPartyModel) else str(value),
    )
    def test_before_its_operation(self, case: ThirdPartyModel, norms: int, left: int) -> None:
        torch.manual_seed(0)
        model, inputs = case.make(), case.inputs()
        report = geonorm.convert(model, "pop(kappa=4)")
        assert (len(report.changed), len(report.left)) == (norms, left), report
        assert all("a different function" in change.note for change in report.changed)
        layers = [module for module in model.modules() if isinstance(module, geonorm.PopNorm2d)]
        assert len(layers) == norms
        seen: list[Tensor] = []
        for module in model.modules():
            if "pre_norm" in module._modules:
                # What the operation itself works on: rms γ/κ, with γ=1, in every channel that is not constant.
                module.register_forward_hook(lambda m, inputs, output: seen.append(rms(inputs[0])))
        model.train()(*inputs).sum().backward()
        assert len(seen) == norms
        assert all(found.max() == pytest.approx(1 / 4, rel=1e-3) for found in seen)
        assert all(layer.weight.grad is not None for layer in layers)

    def test_the_output_is_that_of_the_moved_norm(self) -> None:
        torch.manual_seed(0)
        model, x = conv_net(), torch.randn(4, 3, 9, 9)
        first, second = model[0], model[3]
        geonorm.convert(model, "pop")
        model.train()
        expected = geonorm.PopNorm2d(3)(x)
        expected = torch.conv2d(expected, first.weight, first.bias).relu()
        expected = torch.conv2d(geonorm.PopNorm2d(8)(expected), second.weight)
        torch.testing.assert_close(model(x), expected)

    def test_declared_pairs_where_tracing_fails(self) -> None:
        class Untraceable(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
                self.inner = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))

            def forward(self, x: Tensor) -> Tensor:
                if x.sum() > 0:
                    x = x + 1
                return self.inner(self.norm(self.conv(x)))

        model = Untraceable()
        report = geonorm.convert(model, "pop")
        assert [change.name for change in report.changed] == ["inner.1"]  # found inside its part
        assert [left.name for left in report.left] == ["norm"]
        assert "pairs=" in report.notes[0]
        assert "pairs=" in report.left[0].reason
        report = geonorm.convert(model, "pop", pairs=[("conv", "norm")])
        assert [change.name for change in report.changed] == ["norm"]
        model(torch.randn(2, 3, 9, 9))
        with pytest.raises(ValueError, match="which the model does not have"):
            geonorm.convert(model, "pop", pairs=[("conf", "norm")])
        with pytest.raises(ValueError, match="Linear or Conv"):
            geonorm.convert(model, "pop", pairs=[("inner", "norm")])

    def test_a_conv_that_feeds_two_is_left(self) -> None:
        class Fork(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

            def forward(self, x: Tensor) -> Tensor:
                y = self.conv(x)
                return self.norm(y) + y

        report = geonorm.convert(Fork(), "pop")
        assert not report.changed
        assert "no operation whose output goes only to it" in report.left[0].reason

    def test_an_operation_with_a_forward_of_its_own(self) -> None:
        class Two(nn.Conv2d):
            def forward(self, x: Tensor, other: Tensor) -> Tensor:
                return super().forward(x) + super().forward(other)

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.norm = Two(3, 4, 1), nn.BatchNorm2d(4)

            def forward(self, x: Tensor) -> Tensor:
                return self.norm(self.conv(x, x * x))

        model = Net()
        assert "forward of its own" in geonorm.convert(model, "pop").left[0].reason
        assert "forward of its own" in geonorm.convert(model, "pop", pairs=[("conv", "norm")]).left[0].reason
        model.conv = nn.Conv2d(3, 4, 1)
        model.conv.forward = lambda x, other: x + other
        assert "forward of its own" in geonorm.convert(model, "pop").left[0].reason
        assert isinstance(model.norm, nn.BatchNorm2d)

    @pytest.mark.parametrize("spec", ["pop", "popin", "popgroup", "ws"])
    def test_an_operation_without_channels_yet(self, spec: str) -> None:
        model = nn.Sequential(nn.LazyConv2d(4, 1), nn.BatchNorm2d(4))
        assert "run a batch through the model first" in geonorm.convert(model, spec).left[0].reason
        model(torch.randn(2, 3, 5, 5))
        assert geonorm.convert(model, spec).changed
        model(torch.randn(2, 3, 5, 5))

    def test_instances_without_positions(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        assert "no positions" in geonorm.convert(model, "popin").left[0].reason
        model(torch.randn(5, 4))

    @pytest.mark.parametrize(
        ("norm", "shape"),
        [(nn.InstanceNorm1d(5), (3, 5, 4)), (nn.BatchNorm2d(5), (3, 5, 4, 4)), (nn.BatchNorm1d(5), (3, 5, 4))],
        ids=["instance", "images", "other channels"],
    )
    def test_channels_that_are_not_the_operation_s(self, norm: nn.Module, shape: tuple[int, ...]) -> None:
        model = nn.Sequential(nn.Linear(4, 4), norm)
        model(torch.randn(shape))
        assert "channels" in geonorm.convert(model, "pop").left[0].reason
        assert "channels" in geonorm.convert(model, "pop", pairs=[("0", "1")]).left[0].reason
        model(torch.randn(shape))


class TestOnWeights:
    @pytest.mark.parametrize("spec", ["wn", "ws", "cwn(eps=0.001)", "sn"])
    def test_an_identity_and_a_parametrization(self, spec: str) -> None:
        model = conv_net()
        report = geonorm.convert(model, spec)
        assert isinstance(model[1], nn.Identity)
        assert torch.nn.utils.parametrize.is_parametrized(model[0], "weight")
        assert "γ and β" in report.changed[0].note
        model(torch.randn(2, 3, 9, 9)).sum().backward()

    def test_a_trained_weight_comes_back_as_it_acts(self) -> None:
        model = conv_net()
        geonorm.convert(model, "ws")
        with torch.no_grad():
            model[0].parametrizations.weight.original.mul_(2).add_(0.1)
        weight = model[0].weight.detach().clone()
        geonorm.revert(model)
        assert torch.equal(model[0].weight, weight)
        assert type(model[1]) is nn.BatchNorm2d

    @pytest.mark.parametrize("spec", ["wn", "ws", "cwn", "sn"])
    @pytest.mark.parametrize("trained", [False, True])
    def test_the_order_of_parameters_comes_back(self, spec: str, trained: bool) -> None:
        torch.manual_seed(0)
        model, x = conv_net(), torch.randn(4, 3, 9, 9)
        names, keys = [name for name, _ in model.named_parameters()], list(model.state_dict())
        optimizer = torch.optim.Adam(model.parameters())
        model(x).square().sum().backward()
        optimizer.step()
        saved = optimizer.state_dict()
        geonorm.convert(model, spec)
        if trained:
            step = torch.optim.SGD(model.parameters(), 0.1)
            model(x).square().sum().backward()
            step.step()
        geonorm.revert(model)
        assert [name for name, _ in model.named_parameters()] == names
        assert list(model.state_dict()) == keys
        again = torch.optim.Adam(model.parameters())
        again.load_state_dict(saved)
        for parameter in model.parameters():
            assert again.state[parameter]["exp_avg"].shape == parameter.shape
