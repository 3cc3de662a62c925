"""The one harness that every layer goes through, with every set of options."""

import copy
import inspect
import io
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import geonorm
from geonorm.ops import Segments, using_backend
from helpers.layer_cases import (
    CASE_NAMES,
    CASES,
    GRAPH_BATCH,
    OPTION_CASE_NAMES,
    OPTION_CASES,
    LayerCase,
    randomize_parameters,
)

every = pytest.mark.parametrize(("case", "options"), OPTION_CASES, ids=OPTION_CASE_NAMES)
each = pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)


def layer_of(case: LayerCase, options: dict[str, Any], dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    return randomize_parameters(case.make(**options, dtype=dtype))


@every
def test_train_and_eval_give_finite_outputs_and_gradients(case: LayerCase, options: dict[str, Any]) -> None:
    layer = layer_of(case, options)
    for training in (True, False):
        layer.train(training)
        x = case.input().requires_grad_()
        y = case.call(layer, x)
        assert y.shape == x.shape
        assert y.dtype == x.dtype
        assert bool(y.isfinite().all())
        layer.zero_grad()
        y.square().sum().backward()
        grads = [x.grad, *(p.grad for p in layer.parameters() if p.grad is not None)]
        assert all(bool(g.isfinite().all()) for g in grads)
        if training:
            assert all(p.grad is not None for p in layer.parameters())


@every
def test_zero_batch(case: LayerCase, options: dict[str, Any]) -> None:
    layer = layer_of(case, options)
    before = copy.deepcopy(layer.state_dict())
    x = case.input()[:0].requires_grad_()
    y = case.call(layer, x)
    assert y.shape == x.shape
    y.sum().backward()
    for name, value in layer.state_dict().items():
        counted = name == "num_batches_tracked" and case.running  # as torch's
        assert torch.equal(value, before[name] + 1 if counted else before[name])


@every
def test_layouts(case: LayerCase, options: dict[str, Any]) -> None:
    layer = layer_of(case, options).train()
    x = case.input()
    expected = case.call(copy.deepcopy(layer), x)
    others = [torch.stack([x, x], -1)[..., 0], x.transpose(0, -1).contiguous().transpose(0, -1)]
    if x.dim() in (4, 5):
        others.append(x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d))
    for other in others:
        torch.testing.assert_close(case.call(copy.deepcopy(layer), other), expected)


@pytest.mark.parametrize("case", [c for c in CASES if len(c.shape) > 3 or "Group" in c.name], ids=lambda c: c.name)
@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("phi", [1.5, 2.0])
def test_memory_formats_are_kept(case: LayerCase, phi: float, backend: str) -> None:
    """channels_last in, channels_last out, and back: what torch's BatchNorm, GroupNorm and convolutions do."""
    shape = case.shape if len(case.shape) > 3 else (*case.shape[:2], 5, 5)
    format = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).contiguous(memory_format=format).requires_grad_()
    strides = []
    inner = x * 1  # the gradient of a leaf takes its strides anyway
    inner.register_hook(lambda grad: strides.append(grad.stride()))
    with using_backend(backend):
        y = case.make(phi=phi)(inner)
        y.square().sum().backward()
    assert y.stride() == x.stride()
    assert strides == [x.stride()]


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes(case: LayerCase, options: dict[str, Any], dtype: torch.dtype) -> None:
    """Parameters in the same dtype, and half inputs with float32 parameters; both near the float64 answer."""
    reference = layer_of(case, options).train()
    x = case.input(dtype)
    tolerance = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 1e-4}[dtype]
    for parameters in {dtype, torch.float32}:
        layer = case.make(**options, dtype=parameters).train()
        layer.load_state_dict(reference.state_dict())
        wide = copy.deepcopy(layer).double()
        y = case.call(layer, x)
        assert y.dtype == dtype
        expected = case.call(wide, x.double())
        torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)
        if case.running and layer.running_mean is not None:
            assert layer.running_mean.dtype == parameters
        y = case.call(layer.eval(), x)
        assert y.dtype == dtype


@each
def test_shapes_alone(case: LayerCase) -> None:
    """On the meta device, where there are no values to look at: how tools learn the shapes of a model."""
    layer = case.make(device="meta").train()
    x = torch.empty(case.shape, device="meta", requires_grad=True)
    batch = (torch.empty(len(x), dtype=torch.int64, device="meta"), 5) if case.graph else ()
    y = layer(x, *batch, element_weight=torch.ones_like(x))
    assert y.shape == x.shape
    layer(x, *batch).sum().backward()
    assert x.grad is not None


@every
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_nothing_is_kept_after_backward(case: LayerCase, options: dict[str, Any], backend: str) -> None:
    """While the loss lives, its graph does; what backward needed must be free, and parameters may be swapped."""
    layer = layer_of(case, options).train()
    x = case.input().requires_grad_()
    with using_backend(backend):
        y = case.call(layer, x)
        (y * y).sum().backward()
    nodes, seen = [y.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        assert not any(isinstance(value, torch.Tensor) for value in tensors_in(getattr(node, "__dict__", {})))
        nodes += [following for following, _ in node.next_functions]
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.zero_grad()
        del node, nodes, seen
        layer.to(torch.float32)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert all(parameter.dtype == torch.float32 for parameter in layer.parameters())


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Those that an object of plain Python holds, closures too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
    elif inspect.isfunction(value):
        for cell in value.__closure__ or ():
            yield from tensors_in(cell.cell_contents)
    elif isinstance(value, Segments):
        yield value.index


@every
def test_copies(case: LayerCase, options: dict[str, Any]) -> None:
    """deepcopy, pickle, torch.save with weights_only, and a state_dict round trip all give the same layer."""
    layer = layer_of(case, options).train()
    case.call(layer, case.input())
    fresh = case.make(**options, dtype=torch.float64)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    assert not any(fresh.load_state_dict(torch.load(file, weights_only=True), strict=True))
    twins = [fresh, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
    for training in (True, False):
        x = case.input(seed=1)
        expected = case.call(layer.train(training), x)
        for twin in twins:
            assert torch.equal(case.call(twin.train(training), x), expected)
    for twin in twins:
        for name, value in layer.state_dict().items():
            assert torch.equal(twin.state_dict()[name], value)


@every
def test_repr_names_the_options(case: LayerCase, options: dict[str, Any]) -> None:
    text = repr(case.make(**options))
    assert text.startswith(case.name)
    for name in ("phi", "spread", "guard"):
        if name in options:
            value = options[name]
            assert f"{name}={value!r}" in text or f"{name}={value:g}" in text


@each
def test_reset_parameters(case: LayerCase) -> None:
    options = {"learn_phi": True} if case.pop else {"learn_phi": True, "learn_alpha": True, "alpha": 0.7}
    layer = layer_of(case, options)
    layer.reset_parameters()
    fresh = case.make(**options, dtype=torch.float64)
    for name, value in fresh.state_dict().items():
        assert torch.equal(layer.state_dict()[name], value)


@each
def test_refuses_wrong_inputs(case: LayerCase) -> None:
    options = {"affine": True} if "Instance" in case.name else {}  # without, torch's InstanceNorm only warns
    for shape, error in case.wrong:
        layer = case.make(**options).train()
        with pytest.raises(error, match=r"[Ee]xpected"):
            case.call(layer, torch.randn(shape))


@pytest.mark.parametrize("case", [c for c in CASES if c.twin is not None], ids=lambda c: c.name)
def test_refuses_what_its_twin_refuses_with_the_same_type(case: LayerCase) -> None:
    twin_options = {"affine": True} if "Instance" in case.name else {}
    for shape, error in case.wrong:
        with pytest.raises(error):
            case.twin(**twin_options).train()(torch.randn(shape))


@each
def test_refuses_wrong_options(case: LayerCase) -> None:
    for options, error, text in [
        ({"phi": 0.5}, ValueError, "phi"),
        ({"eps": -1.0}, ValueError, "expected eps >= 0"),
        ({"phi": torch.tensor([1.5, 1.5])}, TypeError, "expected phi to be a number"),
        ({"learn_phi": True, "phi": 1.1}, ValueError, "strictly inside phi_range"),
        ({"learn_phi": True, "phi_range": (0.9, 2.0)}, ValueError, "1 < phi_range"),
        ({"learn_phi": True, "phi_range": 2.0}, TypeError, "phi_range to be two numbers"),
        ({"spread": "std"}, ValueError, "expected spread"),
        ({"spread_phi": 1e9}, ValueError, "expected spread_phi"),
        ({"spread_floor": -1.0}, ValueError, "expected spread_floor >= 0"),
        ({"grad_floor": -1.0}, ValueError, "expected grad_floor >= 0"),
        ({"sweeps": 0}, ValueError, "expected sweeps"),
        ({"single_element": "ignore"}, ValueError, "single_element"),
        ({"spred": "rms"}, TypeError, "did you mean 'spread'"),
    ]:
        with pytest.raises(error, match=text):
            case.make(**options)
    if case.running:
        for guard, error, text in [
            (0.5, ValueError, "expected 1 <= guard < inf"),
            (float("inf"), ValueError, "expected 1 <= guard < inf"),
            (True, TypeError, "expected guard to be a number"),
            ("3", TypeError, "expected guard to be a number"),
        ]:
            with pytest.raises(error, match=text):
                case.make(guard=guard)
    else:
        with pytest.raises(TypeError, match="guard"):
            case.make(guard=3.0)
    if case.pop:
        with pytest.raises(TypeError, match="alpha"):
            case.make(alpha=0.5)
        with pytest.raises(ValueError, match="shift"):
            case.make(shift="sub")
        with pytest.raises(ValueError, match="expected kappa > 0"):
            case.make(kappa=0)


@pytest.mark.parametrize("case", [c for c in CASES if c.running or "Instance" in c.name], ids=lambda c: c.name)
def test_single_elements(case: LayerCase) -> None:
    """One value per channel: error, running statistics, or the affine part alone."""
    x = torch.randn(*((1, 3) if case.running else (2, 4)), *[1] * (len(case.shape) - 2))
    with pytest.raises(ValueError, match="Expected more than 1"):
        case.make().train()(x)
    out = case.make(single_element="identity").train()(x)
    torch.testing.assert_close(out, x)
    if case.running:
        layer = case.make(single_element="running").train()
        layer(case.input(torch.float32))  # statistics that are not 0 and 1, or this would be the affine part alone
        y = layer(x)
        torch.testing.assert_close(y, layer.eval()(x))
        assert not torch.allclose(y, x, atol=1e-2)
        with pytest.raises(ValueError, match="track_running_stats"):
            case.make(single_element="running", track_running_stats=False)


@pytest.mark.parametrize("kind", [geonorm.AugGroupNorm, geonorm.PopGroupNorm])
def test_single_elements_of_group_norms(kind: type[nn.Module]) -> None:
    """As torch's GroupNorm: one sample with one value per group is an error, several are all 0."""
    with pytest.raises(ValueError, match="Expected more than 1"):
        kind(4, 4)(torch.randn(1, 4))
    with pytest.raises(ValueError, match="Expected more than 1"):
        nn.GroupNorm(4, 4)(torch.randn(1, 4))
    x = torch.randn(3, 4)
    torch.testing.assert_close(kind(4, 4)(x), torch.zeros(3, 4))
    torch.testing.assert_close(kind(4, 4, single_element="identity")(x), x)
    with pytest.raises(ValueError, match="no running statistics"):
        kind(4, 4, single_element="running")


def test_single_elements_of_layer_norm() -> None:
    """As torch's LayerNorm: a single value is its own center."""
    x = torch.randn(3, 1)
    torch.testing.assert_close(geonorm.AugLayerNorm(1)(x), nn.LayerNorm(1)(x))
    torch.testing.assert_close(geonorm.AugLayerNorm(1, single_element="identity")(x), x)
    with pytest.raises(ValueError, match="no running statistics"):
        geonorm.AugLayerNorm(1, single_element="running")


def test_graphs_of_one_node() -> None:
    """Normalized as any other graph, whatever ``single_element`` says: among larger ones there is no telling them."""
    x, batch = torch.randn(4, 3), torch.tensor([0, 1, 1, 2])
    for choice in ("error", "identity"):
        y = geonorm.AugGraphNorm(3, alpha=1.0, single_element=choice)(x, batch, 3)
        torch.testing.assert_close(y[[0, 3]], torch.zeros(2, 3))
        assert y[1:3].abs().min() > 0.1
    with pytest.raises(ValueError, match="no running statistics"):
        geonorm.AugGraphNorm(3, single_element="running")


@each
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_masks(case: LayerCase, bad: float) -> None:
    """Masked entries, whatever they hold, change nothing: outputs, gradients and buffers are those of the rest."""
    options = {} if case.graph else {case.affine_name: True}
    x = case.input()
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) < 0.7
    mask[:2] = True
    results = []
    for fill in (0.0, bad):
        layer = layer_of(case, options).train()
        values = torch.where(mask, x, fill).requires_grad_()
        y = case.call(layer, values, mask=mask)
        y.square().sum().backward()
        results.append([y, values.grad, *(p.grad for p in layer.parameters()), *layer.buffers()])
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean, dirty)
    assert bool((results[0][0][~mask] == 0).all())
    with pytest.raises(ValueError, match="mask or element_weight"):
        case.call(layer_of(case, options), x, mask=mask, element_weight=mask)


@every
def test_whole_groups_may_be_masked(case: LayerCase, options: dict[str, Any]) -> None:
    """A padded token, a masked sample, a channel that nobody has: 0, without a gradient or a part in anything."""
    x = case.input()
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) < 0.8
    mask[:2] = True
    absent = (slice(None), 1) if case.running else GRAPH_BATCH[: len(x)] == 2 if case.graph else (1,)
    mask[absent] = False
    layer = layer_of(case, {**options, "eps": 0.0}).train()
    start = {name: value.clone() for name, value in layer.named_buffers()}
    values = torch.where(mask, x, float("nan")).requires_grad_()
    y = case.call(layer, values, mask=mask)
    (y * x).sum().backward()
    assert bool((y[~mask] == 0).all())
    assert bool((values.grad[~mask] == 0).all())
    everything = [y, values.grad, *(p.grad for p in layer.parameters()), *layer.buffers()]
    assert all(bool(value.isfinite().all()) for value in everything)
    if case.running:
        for name, buffer in layer.named_buffers():
            if len(start[name].shape) == 1 and name != "guard_counts":
                assert buffer[1] == start[name][1]
    elif not case.graph:  # to the others it is as if it were not there
        kept = [i for i in range(len(x)) if i != 1]
        twin = layer_of(case, {**options, "eps": 0.0}).train()
        torch.testing.assert_close(case.call(twin, x[kept], mask=mask[kept]), y[kept])
        for (name, buffer), other in zip(layer.named_buffers(), twin.buffers(), strict=True):
            torch.testing.assert_close(buffer, other, msg=lambda text, name=name: f"{name}: {text}")


@each
@pytest.mark.slow
def test_whole_groups_may_be_masked_in_a_compiled_graph(case: LayerCase) -> None:
    x, mask = case.input(), torch.ones(case.shape, dtype=torch.bool)
    mask[(slice(None), 1) if case.running else GRAPH_BATCH[: len(x)] == 2 if case.graph else (1,)] = False
    layer = layer_of(case, {}).train()
    results = []
    for call in (layer, torch.compile(copy.deepcopy(layer), backend="aot_eager")):
        values = x.clone().requires_grad_()
        y = case.call(call, values, mask=mask)
        y.square().sum().backward()
        results.append([y, values.grad, *(p.grad for p in call.parameters()), *call.buffers()])
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager)


@pytest.mark.parametrize("case", [c for c in CASES if c.running or "AugInstance" in c.name], ids=lambda c: c.name)
def test_masks_in_evaluation(case: LayerCase) -> None:
    """With running statistics too, masked entries come out as 0 and change no gradient; the others as without."""
    layer = layer_of(case, {case.affine_name: True, "track_running_stats": True}).eval()
    x = case.input()
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) < 0.7
    values = torch.where(mask, x, float("nan")).requires_grad_()
    y = case.call(layer, values, mask=mask)
    assert torch.equal(y, torch.where(mask, case.call(layer, x), 0.0))
    y.square().sum().backward()
    assert all(bool(g.isfinite().all()) for g in (values.grad, *(p.grad for p in layer.parameters())))


@each
def test_weights_of_one_are_no_weights(case: LayerCase) -> None:
    layer = layer_of(case, {}).train()
    x = case.input()
    expected = case.call(copy.deepcopy(layer), x)
    torch.testing.assert_close(case.call(layer, x, element_weight=torch.ones_like(x)), expected)


@each
def test_learned_phi_stays_in_its_range(case: LayerCase) -> None:
    """Pushed by a huge gradient for 1000 steps, φ stays inside its range and the outputs finite."""
    layer = case.make(learn_phi=True, phi_range=(1.2, 3.0), dtype=torch.float32).train()
    optimizer = torch.optim.SGD([layer.phi_offset], lr=1e3)
    x = case.input(torch.float32)
    for direction in (1.0, -1.0):
        for step in range(1000):
            layer.phi_offset.grad = torch.full_like(layer.phi_offset, direction * 1e6)
            optimizer.step()
            if step % 250 == 0:
                phi = layer.phi
                assert bool(((phi >= 1.2) & (phi <= 3.0)).all())
                assert bool(case.call(layer, x).isfinite().all())


@each
@pytest.mark.parametrize("end", [-60.0, 60.0])
def test_learned_phi_comes_back_from_an_end_of_its_range(case: LayerCase, end: float) -> None:
    """The sigmoid is flat there: what leads back has a slope all the same, what leads further out has next to none."""
    x, found = case.input(), {}
    for backend in ("native", "torch"):
        for sign in (1.0, -1.0):
            layer = layer_of(case, {"learn_phi": True, "phi": 2.0})
            layer.phi_offset.data.fill_(end)
            with using_backend(backend):
                y = case.call(layer, x)
                (sign * (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum()).backward()
            found[backend, sign] = layer.phi_offset.grad
    torch.testing.assert_close(found["native", 1.0], found["torch", 1.0])
    torch.testing.assert_close(found["native", -1.0], found["torch", -1.0])
    back = torch.where(found["torch", 1.0] * end > 0, found["torch", 1.0], found["torch", -1.0])
    out = torch.where(found["torch", 1.0] * end > 0, found["torch", -1.0], found["torch", 1.0])
    assert bool((back * end > 0).all())
    assert bool((out.abs() < 1e-20 * back.abs()).all())
    optimizer = torch.optim.Adam([layer.phi_offset], lr=0.1)
    for _ in range(1000):
        optimizer.zero_grad()
        (layer.phi - 2.0).square().sum().backward()
        optimizer.step()
    torch.testing.assert_close(layer.phi, torch.full_like(layer.phi, 2.0), rtol=1e-3, atol=0)


@each
def test_weight_decay_pulls_phi_to_its_start(case: LayerCase) -> None:
    """An optimizer that sees no gradient, only decay, leads φ back to where it was made, and closer at every step."""
    layer = case.make(learn_phi=True, phi=1.5)
    start = torch.full_like(layer.phi_offset, 1.5)
    torch.testing.assert_close(layer.phi, start)
    for away in (2.0, -2.0):
        layer.phi_offset.data.fill_(away)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, weight_decay=2.0)
        distances = [(layer.phi - start).abs()]
        for _ in range(60):
            layer.phi_offset.grad = torch.zeros_like(layer.phi_offset)
            optimizer.step()
            distances.append((layer.phi - start).abs())
        assert bool((distances[0] > 0.2).all())
        for before, after in itertools.pairwise(distances[:20]):
            assert bool((after < before).all())
        torch.testing.assert_close(layer.phi, start, rtol=1e-5, atol=0)
