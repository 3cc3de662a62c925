"""Networks by name, with a normalization and an activation as arguments."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from ...nn.specs import Spec, parse_spec, unknown
from ...robust import Standardize
from ...surgery import convert
from ...surgery.placement import attach, build_before
from ..repository import import_beside, import_if_of_studies
from .deep_resnet import resnet18, resnet101
from .graph import GraphNet
from .mlp import MLP
from .resnet import resnet20
from .vgg import vgg16, vgg19


class Model(NamedTuple):
    """One named network.

    Attributes:
        name: its name.
        line: a description in one line.
        build: makes the network from (input shape, norm, classes, activation, options).
        inputs: ``"images"``, ``"features"`` or ``"graphs"``.
        input_shape: of one sample, unless another is given.
        activation: its usual one.
        norms_first: whether norms come before convolutions instead of after them.
    """

    name: str
    line: str
    build: Callable[..., nn.Module]
    inputs: str
    input_shape: tuple[int, ...]
    activation: str = "relu"
    norms_first: bool = False


def on_images(build: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """``Model.build`` of a network that takes the number of channels."""
    return lambda shape, norm, **options: build(norm, channels=shape[0], **options)


def _on_graphs(kind: str) -> Callable[..., nn.Module]:
    return lambda shape, norm, **options: GraphNet(kind, shape[0], norm, **options)


_CIFAR = (3, 32, 32)
_MODELS = {
    model.name: model
    for model in [
        Model("mlp", "multilayer perceptron, 2 × 64", MLP, "features", (1, 8, 8)),
        Model("resnet20", "CIFAR ResNet-20 (He et al.), 3×3 stem", on_images(resnet20), "images", _CIFAR),
        Model("resnet18", "ResNet-18, 3×3 stem; stem=imagenet for 7×7", on_images(resnet18), "images", _CIFAR),
        Model("resnet101", "ResNet-101, 3×3 stem; stem=imagenet for 7×7", on_images(resnet101), "images", _CIFAR),
        Model("vgg16", "VGG-16 with norms, one linear layer", on_images(vgg16), "images", _CIFAR),
        Model("vgg19", "VGG-19 with norms, one linear layer", on_images(vgg19), "images", _CIFAR),
        Model("gcn", "graph convolutional network, 5 × 64 (torch_geometric)", _on_graphs("gcn"), "graphs", (7,)),
        Model("gin", "graph isomorphism network, 5 × 64 (torch_geometric)", _on_graphs("gin"), "graphs", (7,)),
    ]
}
_PLACES = ("before", "before_all", "behind")
# The axes that a norm may have, by the network's inputs. LayerNorm expects channels last, images
# have them first; an instance of a feature is a single number.
_AXES = {
    "images": {"batch", "same", "group", "instance", "weight", "none"},
    "features": {"batch", "same", "layer", "group", "weight", "none"},
    "graphs": {"batch", "same", "layer", "group", "graph", "none"},
}


def register(model: Model) -> None:
    """Make a network known by its name."""
    _MODELS[model.name] = model


def models() -> list[tuple[str, str]]:
    """All known networks: name and a one-line description; in a clone of the repository, those of the studies too.

    Examples:
        >>> from geonorm.lab.models import models
        >>> dict(models())["vgg16"]
        'VGG-16 with norms, one linear layer'
    """
    import_beside("studies")
    return [(model.name, model.line) for model in _MODELS.values()]


def why_not(name: str, norm: str | Spec) -> str:
    """Why a network cannot have a normalization; empty if it can.

    Args:
        name: of the network, see ``models()``.
        norm: a spec, see ``geonorm.norms()``.

    Examples:
        >>> from geonorm.lab.models import why_not
        >>> why_not("resnet20", "augbn(phi=1.5)")
        ''
        >>> why_not("mlp", "in")
        "'in' is over instance, which 'mlp' on features cannot have; it takes norms over batch, group, layer, weights"
    """
    model, spec = _model(name), parse_spec(norm)
    if model.inputs == "graphs" and spec.norm.before:
        return f"{spec.norm.name!r} comes before Linear and Conv layers, but {name!r} has graph convolutions"
    if model.norms_first and spec.norm.axes == "weight":
        return f"{spec.norm.name!r} acts on the operation before a norm, but {name!r} has its norms before operations"
    if spec.norm.axes in _AXES[model.inputs]:
        return ""
    able = sorted(_AXES[model.inputs] - {"same", "none", "weight"})
    able += ["weights"] if "weight" in _AXES[model.inputs] else []
    return (
        f"{spec.norm.name!r} is over {spec.norm.axes}, which {name!r} on {model.inputs} cannot have; "
        f"it takes norms over {', '.join(able)}"
    )


def create_model(
    name: str,
    norm: str | Callable[[int], nn.Module] = "bn",
    activation: str | None = None,
    classes: int = 10,
    *,
    input_shape: Sequence[int] | None = None,
    mean: Tensor | Sequence[float] | None = None,
    std: Tensor | Sequence[float] | None = None,
    place: str = "before",
    **options: Any,
) -> nn.Module:
    """A network by name.

    The same seed gives the same initial weights under every norm. Norms before an operation (``pop``) or on
    its weight (``wn``) are put in by ``geonorm.convert``, from the network with BatchNorm. The last norm of DenseNet
    has no operation of its own and stays BatchNorm under ``pop``.

    Args:
        name: see ``models()``.
        norm: a spec, see ``geonorm.norms()``; or a callable from channels to a layer.
        activation: by name; the network's usual one by default.
        classes: number of outputs.
        input_shape: of one sample: (channels, height, width) or (features,); the network's usual one by default.
        mean, std: of the training data per channel, for a first layer that standardizes the input.
        place: of norms that belong to operations (``pop``): ``"before"`` the operations that have a norm;
            ``"before_all"``, before the last linear layer too; ``"behind"``, after the operations, where the network
            has its norms.
        options: of the network: the factors ``width`` and ``depth`` for all; ``stem`` of ResNet-18 and
            -101; ``hidden`` and ``layers`` of MLP, GCN and GIN; ``dropout`` of GCN and GIN, ``self_loops`` of GCN.

    Examples:
        >>> import torch
        >>> from geonorm.lab.models import create_model
        >>> model = create_model("resnet20", "augbn(phi=1.5)", width=0.25, depth=0.34)
        >>> model(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    model = _model(name)
    shape = tuple(model.input_shape if input_shape is None else input_shape)
    if len(shape) != len(model.input_shape) and model.inputs != "features":
        raise ValueError(f"expected input_shape like {model.input_shape} for {name!r} (got {shape})")
    if (mean is None) != (std is None):
        raise ValueError("expected both mean and std, or neither")
    if place not in _PLACES:
        raise ValueError(f"expected place to be one of {', '.join(_PLACES)} (got {place!r})")
    spec = parse_spec(norm) if isinstance(norm, str) else None
    if spec is not None and why_not(name, spec):
        raise ValueError(why_not(name, spec))
    moved = spec is not None and ((spec.norm.before and place != "behind") or spec.norm.build is None)
    try:
        network: Any = model.build(
            shape, "bn" if moved else norm, classes=classes, activation=activation or model.activation, **options
        )
    except TypeError as error:
        raise ValueError(f"in the options of {name!r}: {error}") from error
    if moved:
        assert spec is not None
        convert(network, spec)
        if spec.norm.before and place == "before_all":
            attach(build_before(network.head, spec), network.head)
    if mean is None or std is None:
        found: nn.Module = network
        return found
    spread = [float(value) or 1.0 for value in std]  # a constant feature is only centered
    return nn.Sequential(
        OrderedDict(standardize=Standardize([float(value) for value in mean], spread), network=network)
    )


def _model(name: str) -> Model:
    if name not in _MODELS:
        elsewhere = import_if_of_studies("network", name)
        if name not in _MODELS:
            raise ValueError(elsewhere or unknown("network", name, _MODELS))
    return _MODELS[name]
