"""A converted model lives on: it trains, is saved, loaded elsewhere, copied, wrapped, compiled."""

import copy
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import geonorm

SPECS = ["aug(phi=1.5, learn_phi=true)", "robustbn", "pop", "ws"]
BUILD = """
def build(spec):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )
    geonorm.convert(model, spec)
    return model
"""
exec(BUILD)


def train(model: nn.Module, steps: int = 5) -> list[float]:
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(geonorm.param_groups(model, 1e-4, phi_lr=0.01), lr=0.05, momentum=0.9)
    x, target = torch.randn(32, 3, 8, 8), torch.randint(0, 4, (32,))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("spec", [SPECS[0], *[pytest.param(spec, marks=pytest.mark.slow) for spec in SPECS[1:]]])
def test_trains_saves_and_loads_in_a_fresh_process(spec: str, tmp_path: Path) -> None:
    model = build(spec)  # noqa: F821
    losses = train(model, 8)
    assert losses[-1] < losses[0]
    x = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        torch.save((x, model.eval()(x)), tmp_path / "expected.pt")
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    script = (
        f"import torch, geonorm\nfrom torch import nn\n{BUILD}\n"
        f"model = build({spec!r})\n"
        "model.load_state_dict(torch.load('weights.pt', weights_only=True))\n"
        "x, expected = torch.load('expected.pt', weights_only=True)\n"
        f"torch.set_num_threads({torch.get_num_threads()})\n"
        "with torch.no_grad():\n    assert torch.equal(model.eval()(x), expected)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


@pytest.mark.parametrize("spec", SPECS)
def test_deepcopy_trains_apart(spec: str) -> None:
    model = build(spec)  # noqa: F821
    clone = copy.deepcopy(model)
    before = copy.deepcopy(model.state_dict())
    train(clone)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    train(model)
    assert all(torch.equal(value, clone.state_dict()[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("spec", SPECS)
def test_ddp(spec: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = f"file://{os.path.join(folder, 'rendezvous')}"
        dist.init_process_group("gloo", init_method=where, rank=0, world_size=1)
        try:
            plain = build(spec)  # noqa: F821
            wrapped = nn.parallel.DistributedDataParallel(copy.deepcopy(plain))
            assert train(wrapped) == pytest.approx(train(plain), rel=1e-5)
        finally:
            dist.destroy_process_group()


@pytest.mark.parametrize(
    "spec", ["pop", *[pytest.param(spec, marks=pytest.mark.slow) for spec in SPECS if spec != "pop"]]
)
def test_compile(spec: str) -> None:
    torch._dynamo.reset()
    model = build(spec)  # noqa: F821
    x = torch.randn(4, 3, 8, 8)
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), twin(x), rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_compiled_before_it_is_converted() -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    compiled = torch.compile(model, backend="aot_eager")
    x = torch.randn(8, 4)
    compiled(x)
    geonorm.convert(model, "augbn(phi=4)")
    torch.testing.assert_close(compiled(x), copy.deepcopy(model)(x))
