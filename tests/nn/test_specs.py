"""Specs: every name works, arguments are the layer's own, and mistakes get an answer."""

import copy
import functools
import math
import re
import types

import pytest
import torch
from torch import nn

import geonorm
from geonorm.nn import parse_spec
from geonorm.nn.specs import NORMS

LAYERS = [name for name, norm in NORMS.items() if norm.build is not None]
PUBLISHED = [  # people's scripts and stored recipes have these
    "none",
    "bn",
    "ln",
    "gn",
    "in",
    "graphnorm",
    "aug",
    "augbn",
    "augln",
    "auggroup",
    "augin",
    "auggraph",
    "diffphi",
    "median",
    "midrange",
    "l1bn",
    "rangebn",
    "robustbn",
    "guardbn",
    "pop",
    "popin",
    "popgroup",
    "wn",
    "ws",
    "cwn",
    "sn",
]


def test_published_names_stay() -> None:
    assert set(PUBLISHED) <= set(geonorm.norms())
    assert all(geonorm.norms().values())


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_every_name_makes_a_layer_that_trains(name: str, dim: int) -> None:
    layer = geonorm.create_norm(name, 8, dim)
    if NORMS[name].axes in ("graph", "layer"):
        x = torch.randn(6, 8, requires_grad=True)
    else:
        x = torch.randn(4, 8, *[3] * dim, requires_grad=True)
    layer(x).square().sum().backward()
    assert bool(x.grad.isfinite().all())


@pytest.mark.parametrize("name", ["wn", "ws", "cwn", "sn"])
def test_weight_side_specs_point_to_convert(name: str) -> None:
    with pytest.raises(ValueError, match=r"geonorm\.convert"):
        geonorm.create_norm(name, 8)
    with pytest.raises(ValueError, match=r"geonorm\.convert"):
        geonorm.create_norm(name)


def test_arguments() -> None:
    layer = geonorm.create_norm(
        "augbn(phi=1.25, learn_phi=true, phi_range=(1.1, 2.5), spread=robust, momentum=none)", 4
    )
    assert (layer.phi_start, layer.learn_phi, layer.phi_range) == (1.25, True, (1.1, 2.5))
    assert (layer.spread, layer.momentum) == ("robust", None)
    assert geonorm.create_norm("midrange", 4).phi == math.inf
    assert geonorm.create_norm("augbn(phi=inf)", 4).phi == math.inf
    assert geonorm.create_norm("robustbn(phi=1.2)", 4).phi == 1.2
    assert geonorm.create_norm("graphnorm(phi=1.2)", 4).phi == 1.2
    assert geonorm.create_norm("rangebn", 4).spread == "max_abs"
    pop = geonorm.create_norm("pop(spread=l1, center=false, kappa=16)", 4, dim=1)
    assert (pop.spread, pop.center, pop.kappa) == ("mean_abs", False, 16)
    assert geonorm.create_norm("pop(spread=linf)", 4).spread == "max_abs"
    assert geonorm.create_norm("pop(spread=l2)", 4).spread == "rms"
    assert geonorm.create_norm("auggroup(groups=2)", 4).num_groups == 2
    assert geonorm.create_norm("gn", 24).num_groups == 8
    assert isinstance(geonorm.create_norm("bn(eps=1e-3)", 4), nn.BatchNorm2d)
    assert isinstance(geonorm.create_norm(" none ", 4), nn.Identity)


def test_a_spec_prints_as_it_is_read() -> None:
    for text in ("bn", "augbn(phi=1.5)", "pop(kappa=4, spread=mean_abs)"):
        assert str(parse_spec(text)) == text
        assert parse_spec(str(parse_spec(text))) == parse_spec(text)


def test_as_a_norm_layer() -> None:
    """A callable of the channel count, as constructors of models take it."""

    def model(norm_layer=nn.BatchNorm2d) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 6, 3), norm_layer(6), nn.ReLU(), nn.Conv2d(6, 9, 3), norm_layer(9))

    built = model(norm_layer=geonorm.create_norm("augbn(phi=1.5)"))
    assert isinstance(built[1], geonorm.AugBatchNorm2d)
    assert built(torch.randn(2, 3, 8, 8)).shape == (2, 9, 4, 4)


def test_a_norm_layer_takes_arguments_of_the_layer() -> None:
    """As timm passes device and dtype; the spec's own arguments stay."""
    for spec in ("bn", "augbn(phi=1.5)", "gn", "auggroup", "augln", "pop", "none", "guardbn"):
        layer = geonorm.create_norm(spec)(8, device=None, dtype=torch.float64)
        assert all(parameter.dtype == torch.float64 for parameter in layer.parameters()), spec
    assert geonorm.create_norm("augbn(phi=1.5)")(8, eps=1e-3).eps == 1e-3
    assert geonorm.create_norm("augbn(phi=1.5)")(8, device="meta").weight.is_meta


def test_a_norm_layer_is_no_function() -> None:
    """Timm takes a function for one that makes a norm with its activation, and then leaves out the activation."""
    norm_layer = geonorm.create_norm("augbn(phi=1.5)")
    assert isinstance(norm_layer, functools.partial)
    assert not isinstance(norm_layer.func, types.FunctionType)
    assert norm_layer.func.__name__ == "augbn(phi=1.5)"
    assert copy.deepcopy(norm_layer)(8).phi == 1.5


def test_in_a_pyg_model() -> None:
    pyg = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")
    model = pyg.GCN(5, 8, num_layers=2, norm=geonorm.create_norm("auggraph", 8))
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    out = model(torch.randn(4, 5), edges, batch=torch.tensor([0, 0, 1, 1]))
    assert out.shape == (4, 8)


MISTAKES = [
    ("augbm", "did you mean 'augbn'"),
    ("frobnicate", "known: none, bn, ln"),
    ("augbn(phi)", "expected argument=value"),
    ("augbn(phi=)", "expected argument=value"),
    ("augbn(phi=1.5", "expected a spec such as"),
    ("", "expected a spec such as"),
    ("augbn(fi=1.5)", "unexpected keyword argument 'fi'"),
    ("augbn(lern_phi=true)", "did you mean 'learn_phi'"),
    ("augbn(phi=0.5)", "expected phi >= 1"),
    ("augbn(spread=std)", "expected spread to be one of"),
    ("pop(shift=sub)", "expected shift to be one of"),
    ("bn(phi=2)", "unexpected keyword argument 'phi'"),
    ("none(phi=2)", "unexpected keyword argument 'phi'"),
    ("auggroup(groups=0)", "expected groups to divide"),
    ("augbn(phi=1.5, phi=2)", "each argument once"),
]


@pytest.mark.parametrize(("spec", "text"), MISTAKES)
def test_mistakes(spec: str, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(text)):
        geonorm.create_norm(spec, 8)
    with pytest.raises((ValueError, TypeError), match=re.escape(text)):
        geonorm.create_norm(spec)


def test_groups_need_only_divide_the_channels_of_the_model() -> None:
    assert geonorm.create_norm("auggroup(groups=5)")(10).num_groups == 5
    with pytest.raises(ValueError, match="expected groups to divide the 8 channels"):
        geonorm.create_norm("auggroup(groups=5)", 8)


def test_other_mistakes() -> None:
    with pytest.raises(ValueError, match="expected a spec such as"):
        geonorm.create_norm(None, 8)
    with pytest.raises(ValueError, match="expected dim to be 1, 2 or 3"):
        geonorm.create_norm("bn", 8, dim=4)
