"""Models of timm and torchvision: converted, reverted, popped and fused. Run by `make test-compat`."""

import pytest
import torch
from torch import nn

import geonorm
from geonorm.introspect.layouts import is_norm
from helpers.third_party_checks import eval_outputs, nudge_norms

TIMM = {"resnet18": "batch", "efficientnet_b0": "batch", "convnext_atto": "layer", "vit_tiny_patch16_224": "layer"}
TORCHVISION = {"resnet18": "batch", "efficientnet_b0": "batch", "convnext_tiny": "layer", "vit_b_16": "layer"}
CASES = [
    *[("timm", name, axes) for name, axes in TIMM.items()],
    *[("torchvision", n, a) for n, a in TORCHVISION.items()],
]


def make(library: str, name: str) -> nn.Module:
    torch.manual_seed(0)
    if library == "timm":
        import timm

        return timm.create_model(name, num_classes=10)
    import torchvision

    model = getattr(torchvision.models, name)(weights=None, num_classes=10)
    assert isinstance(model, nn.Module)
    return model


@pytest.mark.parametrize(("library", "name", "axes"), CASES)
class TestModels:
    def test_convert_and_revert(self, library: str, name: str, axes: str) -> None:
        model, x = nudge_norms(make(library, name)), torch.randn(2, 3, 224, 224)
        norms = [module for module in model.modules() if is_norm(module)]
        before = {key: value.clone() for key, value in model.state_dict().items()}
        expected = eval_outputs(model, x)
        report = geonorm.convert(model, "aug(phi=2)")
        assert len(report.changed) == len(norms)
        assert not report.left, report
        assert not any(is_norm(module) and not hasattr(module, "phi") for module in model.modules())
        torch.testing.assert_close(eval_outputs(model, x), expected, rtol=1e-5, atol=1e-5)
        geonorm.revert(model)
        after = model.state_dict()
        assert before.keys() == after.keys()
        assert all(torch.equal(after[key], before[key]) for key in before)
        assert torch.equal(eval_outputs(model, x), expected)

    def test_it_trains(self, library: str, name: str, axes: str) -> None:
        model, x = make(library, name), torch.randn(4, 3, 224, 224)
        report = geonorm.convert(model, "aug(phi=1.5, learn_phi=true)")
        assert report.changed
        optimizer = torch.optim.SGD(geonorm.param_groups(model, 1e-4), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 2, 3]))
            loss.backward()
            optimizer.step()
        learned = [p for key, p in model.named_parameters() if key.endswith("phi_offset")]
        assert learned
        assert all(p.grad is not None and p.grad.isfinite().all() for p in learned)
        assert loss.isfinite()

    def test_pop(self, library: str, name: str, axes: str) -> None:
        model, x = make(library, name), torch.randn(2, 3, 224, 224)
        report = geonorm.convert(model, "pop")
        if axes == "layer":
            assert not report.changed
            assert all("no channels in dimension 1" in left.reason for left in report.left)
            return
        assert len(report.changed) >= 0.9 * (len(report.changed) + len(report.left)), report
        assert model.train()(x).isfinite().all()

    def test_fuse(self, library: str, name: str, axes: str) -> None:
        model, x = nudge_norms(make(library, name)), torch.randn(1, 3, 224, 224)
        expected = eval_outputs(model, x)
        report = geonorm.fuse(model)
        torch.testing.assert_close(eval_outputs(model, x), expected, rtol=1e-5, atol=1e-5)
        assert bool(report.changed) == (axes == "batch")
        assert not (axes == "batch" and report.left), report


def test_torchattacks_reaches_through_a_converted_model() -> None:
    torchattacks = pytest.importorskip("torchattacks")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    geonorm.convert(model, "aug(phi=1.5)")
    x, target = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    attacked = torchattacks.FGSM(model.eval(), eps=8 / 255)(x, target)
    assert 0 < (attacked - x).abs().max() <= 8 / 255 + 1e-6
