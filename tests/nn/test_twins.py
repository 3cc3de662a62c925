"""At φ=2 every layer is its torch twin: outputs, gradients, buffers, and a whole training run."""

import copy

import pytest
import torch
from torch import nn

import geonorm
from helpers.layer_cases import CASES, GRAPH_BATCH, LayerCase, randomize_parameters

TWINS = [case for case in CASES if case.twin is not None]


@pytest.mark.parametrize("case", TWINS, ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("affine", [True, False])
def test_equals_its_twin(case: LayerCase, dtype: torch.dtype, affine: bool) -> None:
    options = {case.affine_name: affine, "dtype": dtype}
    tracked = [{}]
    if "Instance" in case.name:
        tracked.append({"track_running_stats": True})
    if case.running:
        tracked += [{"track_running_stats": False}, {"momentum": None}, {"momentum": 0.0}, {"momentum": 1.0}]
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    buffers = ["running_mean", "running_var", "num_batches_tracked"]
    if "Instance" in case.name:
        buffers.pop()  # torch's InstanceNorm never counts its batches
    for more in tracked:
        theirs = randomize_parameters(case.twin(**options, **more))
        ours = case.make(phi=2.0, **options, **more)
        assert not any(ours.load_state_dict(theirs.state_dict(), strict=True))
        for step, training in enumerate((True, True, True, False)):
            theirs.train(training)
            ours.train(training)
            results = []
            for layer in (theirs, ours):
                x = case.input(dtype, seed=step).requires_grad_()
                layer.zero_grad()
                y = layer(x)
                (y * torch.linspace(-1, 1, y.numel(), dtype=dtype).reshape(y.shape)).sum().backward()
                named = dict(layer.named_buffers())
                kept = [named[name] for name in buffers if name in named]
                results.append([y, x.grad, *[p.grad for p in (layer.weight, layer.bias) if p is not None], *kept])
            for a, b in zip(*results, strict=True):
                torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance)


def test_unbatched_instances() -> None:
    for n, shape in ((1, (4, 9)), (2, (4, 3, 5)), (3, (4, 2, 3, 3))):
        x = torch.randn(shape)
        ours, theirs = getattr(geonorm, f"AugInstanceNorm{n}d")(4, phi=2.0), getattr(nn, f"InstanceNorm{n}d")(4)
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_graph_norm() -> None:
    GraphNorm = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed").GraphNorm
    theirs = randomize_parameters(GraphNorm(3).double())
    ours = geonorm.AugGraphNorm(3, phi=2.0, dtype=torch.float64)
    assert not any(ours.load_state_dict(theirs.state_dict(), strict=True))
    generator = torch.Generator().manual_seed(0)
    for batch in (GRAPH_BATCH, GRAPH_BATCH[torch.randperm(12, generator=generator)], None, torch.arange(12)):
        results = []
        for layer in (theirs, ours):
            x = torch.randn(12, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
            layer.zero_grad()
            y = layer(x, batch)
            (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum().backward()
            results.append([y, x.grad, layer.weight.grad, layer.bias.grad, layer.mean_scale.grad])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-10)


class Residual(nn.Module):
    def __init__(self, norm, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            norm(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            norm(width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


def resnet(norm) -> nn.Module:
    torch.manual_seed(0)
    stem = [nn.Conv2d(3, 8, 3, padding=1, bias=False), norm(8), nn.ReLU()]
    blocks = [Residual(norm, 8), nn.MaxPool2d(2), Residual(norm, 8), Residual(norm, 8)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
def test_a_resnet_follows_the_batchnorm_run(dtype: torch.dtype, tolerance: float) -> None:
    """20 steps of SGD with momentum: the same losses, and in float64 the same buffers."""
    theirs = resnet(nn.BatchNorm2d).to(dtype)
    ours = resnet(lambda c: geonorm.AugBatchNorm2d(c, phi=2.0)).to(dtype)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (theirs, ours)]
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        x = torch.randn(16, 3, 8, 8, generator=generator, dtype=torch.float64).to(dtype)
        target = torch.randint(0, 5, (16,), generator=generator)
        losses = []
        for model, optimizer in zip((theirs, ours), optimizers, strict=True):
            loss = nn.functional.cross_entropy(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) <= tolerance
    if dtype == torch.float64:
        named = dict(ours.named_buffers())
        for name, buffer in theirs.named_buffers():
            torch.testing.assert_close(named[name], buffer, rtol=1e-9, atol=1e-9)
