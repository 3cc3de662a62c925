"""Layers inside torch's machinery: compile, autocast, export, ONNX, ensembles under vmap, checkpointing, DDP."""

import copy
import os
import tempfile
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

import geonorm
from nn_layers import BATCH, CASES, NAMES, Case, randomize

each = pytest.mark.parametrize("case", CASES, ids=NAMES)


def check_compiled(case: Case, options: dict[str, Any], backend: str, dynamic: bool | None = None) -> None:
    """Training and evaluation, outputs, gradients and buffers, equal to eager."""
    torch._dynamo.reset()
    reference = randomize(case.make(**options))
    layers = [copy.deepcopy(reference), copy.deepcopy(reference)]
    calls = [layers[0], torch.compile(layers[1], fullgraph=True, backend=backend, dynamic=dynamic)]
    for training in (True, False):
        results = []
        for layer, call in zip(layers, calls, strict=True):
            layer.train(training)
            layer.zero_grad()
            x = case.input(torch.float32).requires_grad_()
            y = case.call(call, x)
            (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum().backward()
            grads = [p.grad for p in layer.parameters() if p.grad is not None]
            results.append([y.detach(), x.grad, *grads, *[b.clone() for b in layer.buffers()]])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


# The same code for other numbers of dimensions: in the full run only.
one_of_each = [pytest.param(c, marks=pytest.mark.slow if c.name.endswith(("1d", "3d")) else ()) for c in CASES]


@pytest.mark.parametrize("case", one_of_each, ids=NAMES)
def test_compiles(case: Case) -> None:
    check_compiled(case, {"learn_phi": True, "phi": 1.6}, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_compiles_with_dynamic_shapes(case: Case) -> None:
    check_compiled(case, {"spread": "robust"}, "aot_eager", dynamic=True)


class Twice(nn.Module):
    """A layer behind another of its kind."""

    def __init__(self, case: Case, options: dict[str, Any]) -> None:
        super().__init__()
        self.case = case
        self.layers = nn.ModuleList([randomize(case.make(**options)) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.case.call(layer, x)
        return x


def check_two_with_dynamic_shapes(case: Case, options: dict[str, Any], training: bool) -> None:
    """The second layer reads the same constants as the first, in another differentiable function."""
    torch._dynamo.reset()
    plain = Twice(case, options).train(training)
    twin = copy.deepcopy(plain)
    results = []
    for model in (plain, torch.compile(twin, fullgraph=True, backend="aot_eager", dynamic=True)):
        x = case.input(torch.float32).requires_grad_()
        y = model(x)
        (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum().backward()
        results.append((y.detach(), x.grad))
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-4)


ONE_OF_EACH = [c for c in CASES if not c.name.endswith(("1d", "3d"))]
SEVERAL = [
    {"phi": 1.5},
    {"phi": 4.0},
    {"phi": 1.6, "learn_phi": True, "spread": "robust", "sweeps": 3},
    {"phi": 1.0, "spread": "mean_abs", "sweeps": 3},
]


def test_two_layers_compile_with_dynamic_shapes() -> None:
    check_two_with_dynamic_shapes(next(c for c in CASES if c.name == "AugLayerNorm"), {}, training=True)


@pytest.mark.slow
@pytest.mark.parametrize("case", ONE_OF_EACH, ids=lambda c: c.name)
@pytest.mark.parametrize("options", SEVERAL, ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_two_layers_of_every_kind_with_dynamic_shapes(case: Case, options: dict[str, Any], training: bool) -> None:
    check_two_with_dynamic_shapes(case, options, training)


@pytest.mark.parametrize("case", [c for c in CASES if c.name == "AugBatchNorm2d"], ids=lambda c: c.name)
def test_inductor(case: Case) -> None:
    check_compiled(case, {"learn_phi": True, "phi": 1.6}, "inductor")


@pytest.mark.parametrize(
    "options",
    [pytest.param({"momentum": None}, marks=pytest.mark.slow), {"sweeps": 3}, {"phi": 1.0}, {"phi": 2.0}],
    ids=str,
)
def test_batch_norm_compiles(options: dict[str, Any]) -> None:
    check_compiled(CASES[1], options, "aot_eager")


@pytest.mark.slow
@each
@pytest.mark.parametrize("options", [{"learn_phi": True, "phi": 1.6}, {"spread": "robust"}], ids=str)
def test_inductor_with_every_layer(case: Case, options: dict[str, Any]) -> None:
    check_compiled(case, options, "inductor")


@each
def test_autocast(case: Case) -> None:
    """Under bfloat16 autocast the layer computes in float32 and keeps the dtype of its input."""
    layer = randomize(case.make()).train()
    with torch.autocast("cpu", torch.bfloat16):
        for dtype in (torch.float32, torch.bfloat16):
            x = case.input(dtype)
            y = case.call(copy.deepcopy(layer), x)
            assert y.dtype == dtype
    expected = case.call(layer, case.input(torch.bfloat16).float())
    torch.testing.assert_close(y.float(), expected, rtol=0.02, atol=0.02)


EXPORTED = [case for case in CASES if case.running]
some_exported = [pytest.param(c, marks=pytest.mark.slow if c.name.endswith(("1d", "3d")) else ()) for c in EXPORTED]


@pytest.mark.parametrize("case", EXPORTED, ids=lambda c: c.name)
@pytest.mark.parametrize("options", [{"spread": "robust"}, {"spread": "max_abs"}, {"phi": 2.0}], ids=str)
def test_export(case: Case, options: dict[str, Any]) -> None:
    layer = randomize(case.make(**options)).train()
    layer(case.input(torch.float32))
    layer.eval()
    x = case.input(torch.float32, seed=1)
    exported = torch.export.export(layer, (x,))
    torch.testing.assert_close(exported.module()(x), layer(x))


@pytest.mark.parametrize("case", some_exported, ids=[case.name for case in EXPORTED])
@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_onnx(case: Case, tmp_path) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    layer = randomize(case.make()).train()
    layer(case.input(torch.float32))
    layer.eval()
    x = case.input(torch.float32, seed=1)
    path = tmp_path / "layer.onnx"
    torch.onnx.export(layer, (x,), path, dynamo=True, verbose=False)
    session = runtime.InferenceSession(path)
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), layer(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", [c for c in CASES if not c.graph], ids=lambda c: c.name)
def test_an_ensemble_under_vmap(case: Case) -> None:
    """Three layers as one: outputs, gradients of parameters, and running statistics of each."""
    layers = [randomize(case.make(learn_phi=True, phi=1.6, dtype=torch.float64), seed).train() for seed in range(3)]
    parameters, buffers = stack_module_state(layers)
    buffers = {name: value.clone() for name, value in buffers.items()}
    x = case.input()
    base = copy.deepcopy(layers[0]).to("meta")

    def loss(p: dict, b: dict) -> torch.Tensor:
        return functional_call(base, (p, b), (x,)).square().sum()

    grads, values = vmap(torch.func.grad_and_value(loss))(parameters, buffers)
    for i, layer in enumerate(layers):
        value = layer(x).square().sum()
        value.backward()
        torch.testing.assert_close(values[i], value.detach())
        for name, parameter in layer.named_parameters():
            torch.testing.assert_close(grads[name][i], parameter.grad)
        for name, buffer in layer.named_buffers():
            torch.testing.assert_close(buffers[name][i], buffer)


@each
def test_checkpointing(case: Case) -> None:
    """The same outputs and gradients; statistics follow twice, once per forward, as BatchNorm's do."""
    plain, stored = (randomize(case.make()).train() for _ in range(2))
    a, b = (case.input(torch.float32).requires_grad_() for _ in range(2))
    case.call(plain, a).square().sum().backward()
    torch.utils.checkpoint.checkpoint(lambda v: case.call(stored, v), b, use_reentrant=False).square().sum().backward()
    torch.testing.assert_close(b.grad, a.grad)


def test_ddp_with_two_forwards() -> None:
    """Buffers are updated between a forward and its backward; nothing saved may refer to them."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "gloo", init_method=f"file://{os.path.join(folder, 'rendezvous')}", rank=0, world_size=1
        )
        try:
            body = nn.Sequential(
                nn.Linear(5, 8),
                geonorm.AugBatchNorm1d(8, learn_phi=True, spread="robust"),
                nn.ReLU(),
                geonorm.PopNorm1d(8),
                nn.Linear(8, 2),
            )
            model = nn.parallel.DistributedDataParallel(body)
            first, second = model(torch.randn(16, 5)), model(torch.randn(16, 5))
            (first.sum() + second.sum()).backward()
            assert all(p.grad is not None for p in model.parameters())
        finally:
            dist.destroy_process_group()


@pytest.mark.slow
def test_graph_norm_compiles_with_a_batch_vector() -> None:
    torch._dynamo.reset()
    layer = geonorm.AugGraphNorm(3)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(12, 3)
    torch.testing.assert_close(compiled(x, BATCH, 5), layer(x, BATCH, 5))
