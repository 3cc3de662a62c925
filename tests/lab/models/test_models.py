"""The networks: every one trains a step with every norm it can take, from the same first weights.

In a clone the networks of the studies are known too, and go through the same.
"""

import functools

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.lab.models import ACTIVATIONS, create_model, models, why_not
from helpers.slow_cases import slow_except

NAMES = [name for name, _ in models()]
GRAPHS = ("gcn", "gin")
SMALL = {
    "resnet20": {"depth": 0.34},
    "vgg16": {"depth": 0.3},
    "resnet18": {"depth": 0.5},
    "resnet101": {"depth": 0.05},
    "densenet121": {"depth": 0.05},
    "mobilenetv2": {"depth": 0.3},
    "efficientnetb0": {"depth": 0.3},
    "vgg19": {"depth": 0.3},
}
# Beside every norm once with its defaults, those with something to learn or another spread.
SPECS = [*geonorm.norms(), "pop(spread=l1, center=false)", "augbn(learn_phi=true, spread=robust)"]


def small(name: str, norm="bn", **options) -> nn.Module:
    torch.manual_seed(0)
    width = 0.25 if name in (*GRAPHS, "mlp", "resnet20") else 0.0625
    return create_model(name, norm, classes=3, width=width, **SMALL.get(name, {}), **options)


@functools.cache
def inputs(name: str, size: int = 16) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    if name in GRAPHS:
        edges = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5, 6, 7], [1, 0, 2, 1, 4, 3, 5, 4, 7, 6]])
        return torch.randn(8, 7, generator=generator), edges, torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
    shape = (1, 8, 8) if name == "mlp" else (3, size, size)
    return (torch.rand(3, *shape, generator=generator),)


# One network of each kind of input sees all norms in the quick tests, the others a norm of each kind of placement.
ALL_NORMS, SOME_NORMS = ("mlp", "resnet20", "gcn"), ("augbn", "pop")
PAIRS = [
    pytest.param(
        name, spec, id=f"{name}-{spec}", marks=[] if name in ALL_NORMS or spec in SOME_NORMS else pytest.mark.slow
    )
    for name in NAMES
    for spec in SPECS
    if not why_not(name, spec)
]


@pytest.mark.parametrize(("name", "spec"), PAIRS)
def test_trains_a_step(name: str, spec: str) -> None:
    model = small(name, spec)
    per_instance = geonorm.nn.parse_spec(spec).norm.axes == "instance"
    x = inputs(name, 32 if per_instance else 16)  # a norm over one pixel would be over nothing
    before = {key: value.detach().clone() for key, value in model.named_parameters()}
    scores = model(*x)
    assert scores.shape == (3, 3)
    nn.functional.cross_entropy(scores, torch.tensor([0, 1, 2])).backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    for key, value in model.named_parameters():
        assert value.grad is not None, f"{key} has no part in the output"
        assert value.isfinite().all(), key
    assert any(not torch.equal(value, before[key]) for key, value in model.named_parameters())


@pytest.mark.parametrize("name", NAMES)
def test_the_norm_is_really_there(name: str) -> None:
    """As many AugNorms as there were BatchNorms, and none of those left."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d)
    plain = sum(isinstance(module, kinds) for module in small(name).modules())
    model = small(name, "augbn(phi=1.25)")
    ours = [module for module in model.modules() if type(module).__name__.startswith("AugBatchNorm")]
    assert len(ours) == plain > 0
    assert all(module.phi == 1.25 for module in ours)
    assert not any(isinstance(module, kinds) for module in model.modules())


@pytest.mark.parametrize("name", slow_except(ALL_NORMS, [name for name in NAMES if name not in GRAPHS]))
@pytest.mark.parametrize("spec", ["pop", "wn"])
def test_norms_that_move_leave_none_behind(name: str, spec: str) -> None:
    if why_not(name, spec):
        pytest.skip(why_not(name, spec))
    left = [m for m in small(name, spec).modules() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d))]
    assert len(left) == (1 if name == "densenet121" else 0)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_weights_under_every_norm(name: str) -> None:
    """Weights of convolutions and linear layers; what a parametrization holds is another form of the same weight."""
    operations = (nn.Linear, nn.Conv2d)
    first = [m.weight for m in small(name).modules() if isinstance(m, operations)]
    for spec in ("none", "diffphi", "pop"):
        if not why_not(name, spec):
            weights = [m.weight for m in small(name, spec).modules() if isinstance(m, operations)]
            assert all(torch.equal(a, b) for a, b in zip(first, weights, strict=True)), spec


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str) -> None:
    model = small("resnet20", activation=activation)
    assert any(isinstance(module, ACTIVATIONS[activation]) for module in model.modules())
    assert not any(isinstance(module, nn.ReLU) for module in model.modules()) or activation == "relu"
    assert model(*inputs("resnet20")).isfinite().all()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in GRAPHS])
def test_small_gray_images(name: str) -> None:
    """Digits are 1×8×8: every network takes them."""
    model = small(name, input_shape=(1, 8, 8))
    assert model(torch.rand(4, 1, 8, 8)).shape == (4, 3)


def test_standardize_in_front() -> None:
    torch.manual_seed(0)
    x = torch.rand(4, 3, 16, 16)
    mean, std = x.mean((0, 2, 3)), x.std((0, 2, 3))
    model, plain = small("resnet20", mean=mean, std=std).eval(), small("resnet20").eval()
    expected = plain((x - mean.view(3, 1, 1)) / std.view(3, 1, 1))
    torch.testing.assert_close(model(x), expected)
    constant = create_model("mlp", input_shape=(2,), mean=[1.0, 5.0], std=[2.0, 0.0])
    assert constant.standardize(torch.tensor([[3.0, 6.0]])).tolist() == [[1.0, 1.0]]


def test_graphs_do_not_see_each_other_in_evaluation() -> None:
    """Scores of a graph alone and in a batch agree, for norms over each graph."""
    x, edges, batch = inputs("gin")
    for name in GRAPHS:
        model = small(name, "auggraph").eval()
        together = model(x, edges, batch)
        inside = edges[:, (edges[0] >= 3) & (edges[0] < 6)] - 3
        torch.testing.assert_close(model(x[3:6], inside), together[1:2])


def test_self_loops() -> None:
    """Without edges and without self-loops nothing of a node reaches the scores."""
    x, batch = torch.randn(4, 7), torch.tensor([0, 0, 1, 1])
    none = torch.zeros(2, 0, dtype=torch.int64)
    alone, with_itself = (small("gcn", "none", self_loops=loops).eval() for loops in (False, True))
    torch.testing.assert_close(alone(x, none, batch), alone(2 * x, none, batch))
    assert not torch.allclose(with_itself(x, none, batch), with_itself(2 * x, none, batch))


def test_an_empty_graph_at_the_end_has_scores_too() -> None:
    x, edges, batch = inputs("gcn")
    assert small("gcn")(x, edges, batch, 4).shape == (4, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: create_model("resnet21"), "did you mean 'resnet20'"),
        (lambda: create_model("resnet20", "ln"), "'ln' is over layer, which 'resnet20' on images cannot have"),
        (lambda: create_model("resnet20", "graphnorm"), "over graph"),
        (lambda: create_model("mlp", "in"), "over instance"),
        (lambda: create_model("gcn", "pop"), "has graph convolutions"),
        (lambda: create_model("resnet20", "augbm"), "did you mean 'augbn'"),
        (lambda: create_model("resnet20", activation="rellu"), "unknown activation 'rellu'; known: relu"),
        (lambda: create_model("resnet20", input_shape=(64,)), "expected input_shape like"),
        (lambda: create_model("resnet20", mean=[0.5]), "both mean and std"),
        (lambda: create_model("resnet20", mean=[0.5], std=[0.5, 1.0]), "one mean and one std > 0 per channel"),
        (lambda: create_model("resnet20", width=0), "factors above 0"),
        (lambda: create_model("resnet20", stem="imagenet"), "in the options of 'resnet20'"),
        (lambda: create_model("resnet18", stem="large"), "'cifar' or 'imagenet'"),
    ],
)
def test_errors_say_what_to_do(call, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        call()
