"""The kernels against the torch backend and against independent truths, on every layout, dtype, φ and spread."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import geonorm
from geonorm.functional import aug_norm, center
from geonorm.functional._normalize import make_rule, normalize
from geonorm.ops import Axes, Grouping, Inputs, NormStatistics, Rule, Segments, choose, cpu, problem, using_backend
from geonorm.ops.cpu.plan import plan
from helpers.oracles import center_by_bisection, hostile_groups
from helpers.slow_cases import slow_except

pytestmark = pytest.mark.skipif(not choose.has_kernels(), reason="native kernels are not built or not asked for")
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
PHIS = [1.0, 1.25, 1.3, 1.5, 1.75, 2.0, 2.5, 2.7, 3.0, 4.0, math.inf]
SPREADS = ["rms", "mean_abs", "max_abs", "robust"]
# name: shape of x, reduced dimensions, shape of the parameters, shape of φ
LAYOUTS = {
    "batch of images": ((4, 6, 5, 7), (0, 2, 3), (1, 6, 1, 1), (1, 6, 1, 1)),
    "channels_last": ((4, 6, 5, 7), (0, 2, 3), (1, 6, 1, 1), (1, 6, 1, 1)),
    "batch of rows": ((37, 19), (0,), (1, 19), (1, 19)),
    "layer": ((9, 33), (1,), (33,), (1, 1)),
    "group": ((3, 2, 3, 5, 7), (2, 3, 4), (1, 2, 3, 1, 1), (1, 2, 1, 1, 1)),
    "instance": ((3, 6, 5, 7), (2, 3), (1, 6, 1, 1), (1, 6, 1, 1)),
    "instance, channels_last": ((3, 6, 5, 7), (2, 3), (1, 6, 1, 1), (1, 6, 1, 1)),
    "segments": ((29, 21), (), (1, 21), (1, 21)),
}
TOLERANCE = {torch.float32: 2e-3, torch.float64: 1e-9, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def groups_of(layout: str) -> Grouping:
    return Segments(torch.tensor([0] * 7 + [1] + [3] * 21), 5) if layout == "segments" else Axes(LAYOUTS[layout][1])


def data_of(layout: str, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(LAYOUTS[layout][0], generator=generator, dtype=torch.float64) * 1.7 + 0.6
    x = x.to(dtype)
    return x.contiguous(memory_format=torch.channels_last) if "channels_last" in layout else x


def detached(of: Inputs) -> Inputs:
    return Inputs(*[v.detach() if isinstance(v, torch.Tensor) else v for v in of])


def on_torch(of: Inputs, groups: Grouping, rule: Rule) -> tuple[torch.Tensor, NormStatistics]:
    with using_backend("torch"):
        y, statistics = normalize(of, groups, rule)
    assert statistics is not None
    return y, statistics


def on_kernels(of: Inputs, groups: Grouping, rule: Rule) -> tuple[torch.Tensor, NormStatistics]:
    found = cpu.normalize(detached(of), groups, rule)
    assert found is not None, "turned down: torch would be compared with itself"
    assert bool((found.saved.groups[:, problem.BY] == problem.BY_CPU).all())
    y, statistics = normalize(of, groups, rule)
    assert statistics is not None
    assert torch.equal(y.nan_to_num(), found.output.nan_to_num())
    return y, statistics


def results(run, of: Inputs, groups: Grouping, rule: Rule) -> dict[str, torch.Tensor]:
    """Output, statistics and all gradients."""
    of = Inputs(*[v.detach().clone().requires_grad_() if isinstance(v, torch.Tensor) else v for v in of])
    y, statistics = run(of, groups, rule)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(y.dtype)
    named = {f"d{name}": v for name, v in of._asdict().items() if isinstance(v, torch.Tensor)}
    grads = torch.autograd.grad(y, list(named.values()), g)  # by the backend that wrote the statistics
    found = {"y": y, **statistics._asdict(), **dict(zip(named, grads, strict=True))}
    return {name: value.detach() for name, value in found.items()}


def compare(of: Inputs, groups: Grouping, rule: Rule, tolerance: float) -> None:
    theirs, ours = results(on_torch, of, groups, rule), results(on_kernels, of, groups, rule)
    for name, value in theirs.items():
        assert ours[name].shape == value.shape, name
        assert ours[name].dtype == value.dtype, name
        scale = value.double().abs().max().clamp_min(1e-3)
        error = (ours[name].double() - value.double()).abs().max() / scale
        assert error <= tolerance * (10 if name == "dphi" else 1), f"{name}: {error:.1e}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("dtype", slow_except([torch.float32, torch.bfloat16], FLOATS), ids=str)
def test_equals_torch(layout: str, spread: str, dtype: torch.dtype) -> None:
    """Every φ, fixed and learned, with and without learned α and shift. In float32 a value next to the center, whose
    share of the gradient magnifies the last digit of the center, sets the tolerance."""
    generator = torch.Generator().manual_seed(5)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    _, _, shape, phi_shape = LAYOUTS[layout]

    def parameter() -> torch.Tensor:
        return 1 + 0.3 * torch.randn(shape, generator=generator, dtype=wide)

    learned = 1.3 + 1.5 * torch.rand(phi_shape, generator=generator, dtype=wide)
    for phi in [*PHIS, learned]:
        for learn in (False, True):
            tensor = isinstance(phi, torch.Tensor)
            rule = make_rule(
                spread,
                1.5,
                0.05,
                eps=1e-5,
                grad_floor=0.0 if tensor or phi != 1.3 else 0.02,
                phi_strictly_inside=tensor,
            )
            alpha, shift = (parameter(), 0.2 * parameter()) if learn else (1.0, None)
            of = Inputs(data_of(layout, dtype), phi, alpha, shift, parameter(), parameter(), None)
            compare(of, groups_of(layout), rule, TOLERANCE[dtype])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("without", ["centered", "scaled"])
def test_parts_alone(layout: str, without: str) -> None:
    rule = Rule(**{without: False})
    shape = LAYOUTS[layout][2]
    compare(
        Inputs(data_of(layout, torch.float64), 1.5, 1.0, torch.full(shape, 0.3).double(), None, None, None),
        groups_of(layout),
        rule,
        1e-9,
    )


@pytest.mark.parametrize("psi", [1.01, 1.25, 1.8, 2.0, 3.0])
@pytest.mark.parametrize("floor", [0.0, 0.05, 2.0])
def test_robust_exponents_and_floors(psi: float, floor: float) -> None:
    for layout in ("batch of images", "batch of rows", "segments"):
        rule = make_rule("robust", psi, floor, eps=1e-5)
        of = Inputs(data_of(layout, torch.float64), 1.5, 1.0, None, None, None, None)
        compare(of, groups_of(layout), rule, 1e-8)


VECTORS = json.loads((Path(__file__).parents[2] / "data" / "center_vectors.json").read_text())["cases"]


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_vectors(case: dict) -> None:
    """The ground truth of the center, in both layouts and both dtypes; what the kernels turn down, torch answers."""
    phi, mu = float(case["phi"]), float(case["mu"])
    for dtype in (torch.float64, torch.float32):
        x = torch.tensor([float(v) for v in case["x"]], dtype=torch.float64)
        sigma = float(x.std(correction=0))
        x = x.to(dtype)
        for values, dim in ((x, 0), (x.unsqueeze(1).repeat(1, 3), 0)):
            center = aug_norm(values, dim, phi).statistics.center.double()
            widening = max(1.0, 0.05 / (phi - 1)) if phi > 1 else 1.0
            limit = 1e-12 * sigma + 3e-16 * abs(mu)
            if dtype == torch.float32:
                limit = 1e-6 * max(sigma, abs(mu)) * widening
            assert (center - mu).abs().max() <= limit


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_center_of_hostile_groups(dtype: torch.dtype) -> None:
    """Against bisection in extended precision: ties, half zeros, outliers, offsets, many decades, extreme scales."""
    rng = np.random.default_rng(11)
    for _ in range(60):
        members = int(rng.choice([1, 2, 3, 8, 33, 100, 300, 1100]))
        phi = float(rng.choice([1.05, 1.1, 1.2, 1.25, 1.5, 1.75, 1.9, 2.5, 3.0, 4.0, rng.uniform(1.05, 4)]))
        x = hostile_groups(rng, 10, members).astype(np.float64 if dtype == torch.float64 else np.float32)
        truth = center_by_bisection(x, phi)
        values = torch.from_numpy(x)
        for laid in (values, values.t().contiguous().t()):
            center = aug_norm(laid, 1, phi).statistics.center.double().numpy()
            error = np.abs(center - truth)
            size = np.abs(x - truth).mean(1, keepdims=True)
            eps = torch.finfo(dtype).eps
            assert (error <= 40 * eps / min(1, phi - 1) * size + 2 * eps * np.abs(truth)).all(), f"φ={phi} m={members}"


@pytest.mark.parametrize("members", [127, 128, 700, 9000])
@pytest.mark.parametrize("phi", [1.3, 1.5, 2.4])
def test_neighbours_of_all_kinds(members: int, phi: float) -> None:
    """Groups side by side, easy ones and hard ones: however many of them are left, all searches end where they should.
    Below 128 values there is no rough approach, from 8192 on it starts from a sample."""
    rng = np.random.default_rng(7)
    x = np.concatenate([hostile_groups(rng, 2, members) for _ in range(10)] + [rng.standard_normal((30, members))])
    x = (x / np.abs(x).max(1, keepdims=True)).astype(np.float32)  # within what the kernels take
    truth = center(torch.from_numpy(x).double(), phi, 1, keepdim=True).numpy()  # by torch
    limit = 40 * 1.2e-7 / min(1, phi - 1) * np.abs(x - truth).mean(1, keepdims=True) + 2.4e-7 * np.abs(truth)
    for laid in (torch.from_numpy(x), torch.from_numpy(x.T.copy()).t()):
        of = Inputs(laid, phi, 1.0, None, None, None, None)
        found = on_kernels(of, Axes((1,)), Rule())[1].center.double().numpy()
        assert (np.abs(found - truth) <= limit).all()


def layer_results(layer: torch.nn.Module, x: torch.Tensor, *more: torch.Tensor) -> list[torch.Tensor]:
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    layer.zero_grad()
    y = layer(x, *more)
    y.backward(torch.ones_like(y) + y.detach())
    return [y.detach(), x.grad, *[p.grad for p in layer.parameters()], *[b.clone() for b in layer.buffers()]]


LAYERS = {
    "images": lambda: (geonorm.AugBatchNorm2d(5, learn_phi=True, learn_alpha=True), torch.randn(6, 5, 7, 9)),
    "channels_last": lambda: (
        geonorm.AugBatchNorm2d(20),
        torch.randn(6, 20, 7, 9).contiguous(memory_format=torch.channels_last),
    ),
    "rows": lambda: (geonorm.AugBatchNorm1d(70), torch.randn(90, 70)),
    "layer": lambda: (geonorm.AugLayerNorm(200, learn_alpha=True), torch.randn(150, 200)),
    "group": lambda: (geonorm.AugGroupNorm(2, 6), torch.randn(70, 6, 4, 4)),
    "robust": lambda: (geonorm.AugBatchNorm2d(5, spread="robust"), torch.randn(30, 5, 17, 9)),
    "pop": lambda: (geonorm.PopNorm2d(5), torch.randn(30, 5, 17, 9)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_results_repeat_and_do_not_depend_on_threads(name: str) -> None:
    threads = torch.get_num_threads()
    try:
        runs = []
        for number in (1, 2, 3, 2):
            torch.set_num_threads(number)
            torch.manual_seed(0)
            layer, x = LAYERS[name]()
            runs.append(layer_results(layer, x))
    finally:
        torch.set_num_threads(threads)
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0], strict=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("phi", [1.0, 1.5, 1.6, 2.0, math.inf])
@pytest.mark.parametrize("last", [False, True])
def test_bad_values_stay_in_their_channel(bad: float, spread: str, phi: float, last: bool) -> None:
    layer = geonorm.AugBatchNorm2d(19, phi=phi, spread=spread)
    form = torch.channels_last if last else torch.contiguous_format
    # Seeded: in some batches a value so near to the center turns up that the last digit of the latter shows in it.
    x = torch.randn(5, 19, 4, 4, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=form)
    clean = layer_results(layer, x)
    layer.reset_running_stats()
    before = {name: b.clone() for name, b in layer.named_buffers()}
    x[2, 7, 1, 3] = bad
    dirty = layer_results(layer, x)
    others = [c for c in range(19) if c != 7]
    assert dirty[0][:, 7].isnan().all()
    for a, b in zip(dirty[:2], clean[:2], strict=True):
        torch.testing.assert_close(a[:, others], b[:, others])
    for name, buffer in layer.named_buffers():
        if buffer.dim():
            assert buffer[7] == before[name][7]
            assert (buffer[others] != before[name][others]).any()


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e-12, 1e12, 1e18, 1e30])
def test_any_magnitude(scale: float) -> None:
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    reference = aug_norm(x.double() * scale, 0, 1.5, eps=0.0).output
    torch.testing.assert_close(aug_norm(x * scale, 0, 1.5, eps=0.0).output.double(), reference, rtol=1e-5, atol=1e-6)


def test_offsets_ties_and_zeros() -> None:
    normal = torch.randn(400, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for x in (normal + 1e5, normal.relu(), (normal - 1.3).relu(), (normal * 4).round() / 4, normal * 0, normal * 0 + 3):
        for phi in (1.0, 1.2, 1.5, 2.0, 3.0, math.inf):
            of = Inputs(x, phi, 1.0, None, None, None, None)
            compare(of, Axes((0,)), Rule(), 1e-7)
            compare(Inputs(x.t().contiguous(), *of[1:]), Axes((1,)), Rule(), 1e-7)


@pytest.mark.slow
def test_every_size_and_alignment() -> None:
    """Sizes 1 to 70, starting at any element, in the four forms that the kernels read values in."""
    store = torch.randn(200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for dtype in FLOATS:
        values = store.to(dtype)
        for size in range(1, 71):
            start = size % 9
            row = values[start : start + 3 * size].view(3, size)
            lanes = values[start : start + 11 * size].view(11, size)
            image = values[start : start + 2 * 3 * size].view(2, 3, size)
            for x, dims in ((row, (1,)), (lanes, (0,)), (image, (0, 2)), (image, (2,))):
                if math.prod(x.shape[d] for d in dims) > 1:
                    compare(Inputs(x, 1.5, 1.0, None, None, None, None), Axes(dims), Rule(), 5 * TOLERANCE[dtype])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x[::2],
        lambda x: x[..., 1::2],
        lambda x: x.transpose(0, 2),
        lambda x: x.permute(2, 0, 1),
        lambda x: x[:1].expand(4, -1, -1),
        lambda x: x.flip(0),
    ],
)
def test_strides(make) -> None:
    x = make(torch.randn(6, 8, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    for dims in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        ours = aug_norm(x, dims, 1.5)
        theirs, statistics = on_torch(Inputs(x, 1.5, 1.0, None, None, None, None), Axes(dims), Rule())
        torch.testing.assert_close(ours.output, theirs)
        torch.testing.assert_close(ours.statistics.center, statistics.center)


def test_parameters_of_mixed_shapes() -> None:
    """Shapes that the kernels read only after an expansion; gradients come back in the shapes that were given."""
    x = torch.randn(3, 4, 5, 6, dtype=torch.float64)
    shapes: list[tuple[int, ...]] = [(), (6,), (4, 1, 1), (1, 4, 1, 1), (4, 5, 6), (5, 6), (3, 1, 1, 1), (3, 4, 5, 6)]
    compared = 0
    for dims in ((1, 2, 3), (2, 3), (0, 2, 3)):
        for gamma in shapes:
            for beta in shapes:
                of = Inputs(x, 1.5, 1.0, None, torch.rand(gamma).double(), torch.rand(beta).double(), None)
                if plan(of, Axes(dims), Rule()) is not None:
                    compare(of, Axes(dims), Rule(), 1e-9)
                    compared += 1
    assert compared > 50, "the kernels turned most of them down"


def test_second_derivatives() -> None:
    layer = geonorm.AugBatchNorm1d(3, learn_phi=True, learn_alpha=True, dtype=torch.float64, track_running_stats=False)
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]
    values = [(p.detach() + 0.1).requires_grad_() for p in layer.parameters()]

    def f(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(f, (x, *values))
    assert torch.autograd.gradgradcheck(f, (x, *values))


def test_gradients_of_the_statistics() -> None:
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: tuple(aug_norm(x, 0, 1.5).statistics[:2]), (x,))
    y, statistics = aug_norm(x, 0, 1.5)
    of_y, of_spread, of_both = (
        torch.autograd.grad(loss, x, retain_graph=True)[0]
        for loss in (y.pow(3).sum(), statistics.spread.sum(), y.pow(3).sum() + statistics.spread.sum())
    )
    torch.testing.assert_close(of_both, of_y + of_spread)
    assert of_spread.abs().max() > 0.1


def test_changed_parameters_are_noticed() -> None:
    layer, x = geonorm.AugBatchNorm1d(3), torch.randn(6, 3, requires_grad=True)
    y = layer(x)
    with torch.no_grad():
        layer.bias.add_(1.0)  # β may change
    y.sum().backward()
    y = layer(x)
    with torch.no_grad():
        layer.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_transforms_and_tracing_run_on_torch() -> None:
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    looped = torch.stack([aug_norm(part, 0, 1.5).output for part in x])
    torch.testing.assert_close(torch.func.vmap(lambda part: aug_norm(part, 0, 1.5).output)(x), looped)
    by_func = torch.func.grad(lambda x: aug_norm(x, 0, 1.5).output.pow(3).sum())(x[0])
    leaf = x[0].clone().requires_grad_()
    aug_norm(leaf, 0, 1.5).output.pow(3).sum().backward()
    torch.testing.assert_close(by_func, leaf.grad)


def test_memory_kept_for_backward() -> None:
    """x itself, parameters, and a few numbers per group."""
    kept: list[torch.Tensor] = []
    x = torch.randn(16, 8, 32, 32, requires_grad=True)
    layer = geonorm.AugBatchNorm2d(8)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = layer(x)
    large = {t.data_ptr() for t in kept if t.numel() > 1000}
    assert large == {x.data_ptr()}
    assert sum(t.numel() for t in kept if t.data_ptr() not in large) <= (len(problem.COLUMNS) + 2) * 8
    assert y.grad_fn is not None


HUNDRED_MILLION = 100_000_000


@pytest.mark.slow
def test_a_hundred_million_values_in_one_channel() -> None:
    """The center is a root of Σ sgn(x − c)|x − c|^½ to its tolerance, and the gradients add up."""
    torch.manual_seed(0)
    x = torch.randn(HUNDRED_MILLION, 1).add_(3.0).requires_grad_()
    layer = geonorm.AugBatchNorm1d(1, momentum=1.0)
    y = layer(x)
    rows = y.grad_fn.saved_tensors[-2]
    assert rows.shape == (1, len(problem.COLUMNS))
    assert float(rows[0, problem.BY]) == problem.BY_CPU
    center, force, slope = layer.running_center.double(), 0.0, 0.0
    for part in x.detach().split(10_000_000):
        r = part.double() - center
        force += float((r.sign() * r.abs().sqrt()).sum())
        slope += float(r.abs().clamp_min(1e-7).rsqrt().sum()) / 2
    assert abs(force / slope) <= 3e-6  # |c| eps, and eps of the spread
    assert abs(float(layer.running_mean) - float(x.detach().double().mean())) < 1e-6

    g = torch.rand(HUNDRED_MILLION, 1)
    y.backward(g)
    assert float(layer.bias.grad) == pytest.approx(float(g.double().sum()), rel=1e-6)
    pairs = zip(g.split(10**7), y.detach().split(10**7), strict=True)
    products = sum(float((a.double() * b.double()).sum()) for a, b in pairs)
    assert float(layer.weight.grad) == pytest.approx(products, rel=1e-4, abs=HUNDRED_MILLION * 1e-6)
    assert abs(float(x.grad.double().sum())) < HUNDRED_MILLION * 1e-7  # a common shift changes nothing
