"""Models of timm and torchvision built with our norms: ``norm_layer=``. Run by `make test-compat`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import geonorm

timm = pytest.importorskip("timm", reason="run by `make test-compat`")
torchvision = pytest.importorskip("torchvision", reason="run by `make test-compat`")

SIDE = 64
BATCH = "augbn(phi=1.5, guard=3)"
LAYER = "augln(phi=1.5)"
TIMM = [
    ("resnet18", BATCH, {}),
    ("resnet50", BATCH, {}),
    ("vit_tiny_patch16_224", LAYER, {"img_size": SIDE}),
    ("swin_tiny_patch4_window7_224", LAYER, {"img_size": SIDE, "window_size": 2}),
    ("mixer_s32_224", LAYER, {"img_size": SIDE}),
]
TORCHVISION = [
    ("resnet18", BATCH, {}),
    ("mobilenet_v3_small", BATCH, {}),
    ("efficientnet_b0", BATCH, {}),
    ("regnet_x_400mf", BATCH, {}),
    ("vit_b_16", LAYER, {"image_size": SIDE}),
    ("swin_t", LAYER, {}),
]
# In these families a norm of timm includes the activation.
WITH_ACTIVATION = ["efficientnet_b0", "regnetx_002", "densenet121"]


def layers(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if hasattr(module, "phi")]


def check(built: nn.Module, usual: nn.Module, spec: str) -> None:
    """Ours wherever the model has a norm, with its names; it trains, and loads the state of the usual model."""
    converted = usual
    report = geonorm.convert(converted, spec)
    assert layers(built)
    assert set(layers(built)) == {change.name for change in report.changed}
    found, expected = built.state_dict(), converted.state_dict()
    assert {key: value.shape for key, value in found.items()} == {key: value.shape for key, value in expected.items()}
    built.load_state_dict(expected)
    for layer in layers(built):  # some models set another eps in their own norms, which convert keeps
        built.get_submodule(layer).eps = converted.get_submodule(layer).eps
    x = torch.randn(4, 3, SIDE, SIDE)
    assert torch.equal(built.eval()(x), converted.eval()(x))
    nn.functional.cross_entropy(built.train()(x), torch.tensor([0, 1, 2, 3])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in built.parameters() if p.requires_grad)


@pytest.mark.parametrize(("name", "spec", "options"), TIMM, ids=lambda value: value if isinstance(value, str) else "")
def test_timm(name: str, spec: str, options: dict[str, int]) -> None:
    torch.manual_seed(0)
    built = timm.create_model(name, num_classes=10, norm_layer=geonorm.create_norm(spec), **options)
    torch.manual_seed(0)
    check(built, timm.create_model(name, num_classes=10, **options), spec)


@pytest.mark.parametrize(
    ("name", "spec", "options"), TORCHVISION, ids=lambda value: value if isinstance(value, str) else ""
)
def test_torchvision(name: str, spec: str, options: dict[str, int]) -> None:
    make = getattr(torchvision.models, name)
    built = make(weights=None, num_classes=10, norm_layer=geonorm.create_norm(spec), **options)
    check(built, make(weights=None, num_classes=10, **options), spec)


@pytest.mark.parametrize("name", WITH_ACTIVATION)
def test_timm_refuses_a_norm_without_its_activation(name: str) -> None:
    """A function would be taken for a norm with activation, and DenseNet be built without one."""
    with pytest.raises(AssertionError, match=r"No equivalent norm_act layer for augbn"):
        timm.create_model(name, norm_layer=geonorm.create_norm(BATCH))
    model = timm.create_model(name, num_classes=10)
    assert len(geonorm.convert(model, BATCH).changed) > 10, "convert takes them"
    assert model.train()(torch.randn(2, 3, SIDE, SIDE)).isfinite().all()


def test_ema_of_timm() -> None:
    """Its ModelEmaV3 averages parameters and buffers."""
    torch.manual_seed(0)
    model = timm.create_model("resnet18", num_classes=10, norm_layer=geonorm.create_norm(BATCH))
    average = timm.utils.ModelEmaV3(model, decay=0.5)
    start = {key: value.clone() for key, value in average.module.state_dict().items()}
    model.train()(torch.randn(8, 3, SIDE, SIDE))
    average.update(model)
    for key, value in model.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(average.module.state_dict()[key], start[key].lerp(value, 0.5))
