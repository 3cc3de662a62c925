"""Layers inside torch's machinery: compile, autocast, export, ONNX, ensembles under vmap, checkpointing, DDP."""

import copy
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

import geonorm
from geonorm.nn._base import NormLayer
from geonorm.ops.choose import has_kernels
from geonorm.ops.cpu import library
from helpers.layer_cases import CASE_NAMES, CASES, GRAPH_BATCH, LayerCase, randomize_parameters

each = pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)


def check_compiled(case: LayerCase, options: dict[str, Any], backend: str, dynamic: bool | None = None) -> None:
    """Training and evaluation, outputs, gradients and buffers, equal to eager."""
    torch._dynamo.reset()
    reference = randomize_parameters(case.make(**options))
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


@pytest.mark.parametrize("case", one_of_each, ids=CASE_NAMES)
def test_compiles(case: LayerCase) -> None:
    check_compiled(case, {"learn_phi": True, "phi": 1.6}, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_compiles_with_dynamic_shapes(case: LayerCase) -> None:
    check_compiled(case, {"spread": "robust"}, "aot_eager", dynamic=True)


class Twice(nn.Module):
    """A layer behind another of its kind."""

    def __init__(self, case: LayerCase, options: dict[str, Any]) -> None:
        super().__init__()
        self.case = case
        self.layers = nn.ModuleList([randomize_parameters(case.make(**options)) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.case.call(layer, x)
        return x


def check_two_with_dynamic_shapes(case: LayerCase, options: dict[str, Any], training: bool) -> None:
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
    ({}, ONE_OF_EACH),
    ({"phi": 4.0}, CASES[1:2]),
    ({"phi": 1.6, "learn_phi": True, "spread": "robust", "sweeps": 3}, CASES[1:2]),
    ({"phi": 1.0, "spread": "mean_abs", "sweeps": 3}, [c for c in CASES if c.graph]),
]


def test_two_layers_compile_with_dynamic_shapes() -> None:
    check_two_with_dynamic_shapes(next(c for c in CASES if c.name == "AugLayerNorm"), {}, training=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "case"), [pytest.param(o, c, id=f"{c.name} {o}") for o, cases in SEVERAL for c in cases]
)
def test_two_layers_of_every_kind_with_dynamic_shapes(options: dict[str, Any], case: LayerCase) -> None:
    for training in (True, False):
        check_two_with_dynamic_shapes(case, options, training)


@pytest.mark.parametrize("case", [c for c in CASES if c.name == "AugBatchNorm2d"], ids=lambda c: c.name)
def test_inductor(case: LayerCase) -> None:
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
def test_inductor_with_every_layer(case: LayerCase, options: dict[str, Any]) -> None:
    check_compiled(case, options, "inductor")


@each
def test_autocast(case: LayerCase) -> None:
    """Under bfloat16 autocast the layer computes in float32 and keeps the dtype of its input."""
    layer = randomize_parameters(case.make()).train()
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
def test_export(case: LayerCase, options: dict[str, Any]) -> None:
    layer = randomize_parameters(case.make(**options)).train()
    layer(case.input(torch.float32))
    layer.eval()
    x = case.input(torch.float32, seed=1)
    exported = torch.export.export(layer, (x,))
    torch.testing.assert_close(exported.module()(x), layer(x))


def check_onnx(layer: nn.Module, x: torch.Tensor, path: Path) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    torch.onnx.export(layer.eval(), (x,), path, dynamo=True, verbose=False)
    session = runtime.InferenceSession(path)
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), layer(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", some_exported, ids=[case.name for case in EXPORTED])
@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_onnx(case: LayerCase, tmp_path: Path) -> None:
    layer = randomize_parameters(case.make()).train()
    layer(case.input(torch.float32))
    check_onnx(layer, case.input(torch.float32, seed=1), tmp_path / "layer.onnx")


MEASURING = [c for c in ONE_OF_EACH if not c.running and not c.graph]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AugLayerNorm", {"phi": 1.0}),
        *[
            pytest.param(c.name, {"phi": 1.75}, marks=pytest.mark.slow) for c in MEASURING
        ],  # 8 sweeps; below it takes more
        pytest.param("AugLayerNorm", {"phi": 1.6, "learn_phi": True}, marks=pytest.mark.slow),
        pytest.param("AugGroupNorm", {"phi": 1.75, "spread": "robust", "spread_phi": 1.75}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_onnx_of_layers_that_measure_their_input(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """A center is found by a fixed number of sweeps there, without being asked to.

    The exporter takes half a minute for 24 sweeps, so most have φ = 1.75, which needs 8.
    """
    case = next(c for c in CASES if c.name == name)
    check_onnx(randomize_parameters(case.make(**options)), case.input(torch.float32), tmp_path / "layer.onnx")


class Around(nn.Module):
    """A layer inside a model, as tracers find it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x + 1) * 2


@pytest.mark.parametrize("case", [c for c in CASES if not c.graph], ids=lambda c: c.name)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_fx_takes_a_layer_as_one_node(case: LayerCase, training: bool) -> None:
    """The same object: its statistics follow, and its parameters are those of the model."""
    model = Around(randomize_parameters(case.make())).train(training)
    traced = torch.fx.symbolic_trace(copy.deepcopy(model))
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["layer"]
    x = case.input(torch.float32)
    assert torch.equal(traced(x), model(x))
    for name, value in model.state_dict().items():
        assert torch.equal(traced.state_dict()[name], value), name


def test_fx_calls_the_hooks_of_a_layer_once() -> None:
    layer, calls = geonorm.AugLayerNorm(4), []
    layer.register_forward_hook(lambda *_: calls.append(1))
    traced = torch.fx.symbolic_trace(Around(layer))
    assert not calls
    traced(torch.randn(3, 4))
    assert calls == [1]


@pytest.mark.filterwarnings("ignore")  # FX quantization is deprecated, and says so
def test_fx_quantization_leaves_a_layer_as_it_is() -> None:
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), geonorm.AugBatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4))
    x = torch.randn(16, 3, 6, 6)
    model(x)
    model.eval()
    prepared = prepare_fx(copy.deepcopy(model), get_default_qconfig_mapping(), (x,))
    prepared(x)
    quantized = convert_fx(prepared)
    assert isinstance(quantized.get_submodule("1"), geonorm.AugBatchNorm2d)
    torch.testing.assert_close(quantized(x), model(x), atol=0.1, rtol=0.1)  # of 8 bits


@pytest.mark.parametrize("case", [c for c in CASES if not c.graph], ids=lambda c: c.name)
@pytest.mark.filterwarnings("ignore")  # of the tracer, and that TorchScript is deprecated
def test_torchscript_by_tracing(case: LayerCase) -> None:
    """In evaluation; other values than the traced ones, of the same shape."""
    layer = randomize_parameters(case.make()).train()
    layer(case.input(torch.float32))
    layer.eval()
    traced = torch.jit.trace(layer, (case.input(torch.float32),))
    x = 3 * case.input(torch.float32, seed=1)
    torch.testing.assert_close(traced(x), layer(x))


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=lambda c: c.name)
@pytest.mark.filterwarnings("ignore")
def test_scripting_is_refused_with_the_cure(case: LayerCase) -> None:
    model = Around(case.make()).eval()
    with pytest.raises(RuntimeError, match=r"cannot be scripted.*torch\.jit\.trace\(model\.eval\(\), example\)"):
        torch.jit.script(model)
    assert isinstance(model.layer, type(case.make()))


@pytest.mark.parametrize("case", [c for c in CASES if not c.graph], ids=lambda c: c.name)
def test_an_ensemble_under_vmap(case: LayerCase) -> None:
    """Three layers as one: outputs, gradients of parameters, and running statistics of each."""
    layers = [
        randomize_parameters(case.make(learn_phi=True, phi=1.6, dtype=torch.float64), seed).train() for seed in range(3)
    ]
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
def test_checkpointing(case: LayerCase) -> None:
    """The same outputs and gradients; statistics follow twice, once per forward, as BatchNorm's do."""
    plain, stored = (randomize_parameters(case.make()).train() for _ in range(2))
    a, b = (case.input(torch.float32).requires_grad_() for _ in range(2))
    expected = case.call(plain, a)
    found = torch.utils.checkpoint.checkpoint(lambda v: case.call(stored, v), b, use_reentrant=False)
    for y in (expected, found):
        y.pow(3).sum().backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(b.grad, a.grad)
    for (name, theirs), ours in zip(plain.named_parameters(), stored.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=lambda m, n=name: n + m)
    case.call(plain, a)  # the second forward, which checkpointing makes in backward
    for (name, theirs), ours in zip(plain.named_buffers(), stored.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda m, n=name: n + m)
    if case.running:
        layers = [stored, case.twin().train()] if case.twin is not None else [stored]
        for twin in layers[1:]:
            torch.utils.checkpoint.checkpoint(twin, b, use_reentrant=False).sum().backward()
        assert [int(layer.num_batches_tracked) for layer in layers] == [2] * len(layers)


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
    torch.testing.assert_close(compiled(x, GRAPH_BATCH, 5), layer(x, GRAPH_BATCH, 5))


@pytest.mark.skipif(not has_kernels(), reason="native kernels are not built or not asked for")
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "spec", ["augbn(phi=1.5)", "robustbn", "diffphi", "augbn(guard=3)", "median", "pop(spread=l1)"]
)
def test_compiled_graphs_run_the_kernels(spec: str, dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward of every layer, without a graph break. Around the mean the compiler fuses the steps."""
    calls = {"forward": 0, "backward": 0}
    for name in calls:
        original = getattr(library, name)

        def counted(*args: Any, name: str = name, original: Any = original, **more: Any) -> Any:
            calls[name] += 1
            return original(*args, **more)

        monkeypatch.setattr(library, name, counted)
    torch._dynamo.reset()
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5))
    geonorm.convert(model, spec)
    norms = sum(isinstance(module, NormLayer) for module in model.modules())
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for samples in (6, 9):
        compiled(torch.randn(samples, 3, 9, 9)).square().sum().backward()
    assert calls == {"forward": 2 * norms, "backward": 2 * norms}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the packager's own
@pytest.mark.parametrize("spec", ["augbn(phi=1.5)", "guardbn"])
def test_ahead_of_time(spec: str, tmp_path: Path) -> None:
    """A converted model in evaluation through AOTInductor: compiled, packaged, loaded and run."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(196, 2))
    geonorm.convert(model, spec)
    x = torch.randn(5, 3, 9, 9)
    model(x)
    model.eval()
    package = torch._inductor.aoti_compile_and_package(
        torch.export.export(model, (x,)), package_path=str(tmp_path / "model.pt2")
    )
    with torch.no_grad():
        torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), model(x), rtol=1e-4, atol=1e-5)
