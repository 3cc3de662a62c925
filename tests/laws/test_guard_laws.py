"""Laws of the guard, for any batch: who is pulled and how far, what does not depend on units or order, and what broken
samples can do at most."""

import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import geonorm
from geonorm.functional import guard
from geonorm.ops import using_backend
from geonorm.ops.choose import has_kernels
from geonorm.ops.torch.guard import MAX_SAMPLES_FOR_CENTER

ks = st.sampled_from([1.0, 1.5, 2.0, 3.0, 6.0])
faults = st.sampled_from([1e3, 1e6, 1e12, 1e20])


class Batch(NamedTuple):
    """Samples, and which of them are broken."""

    x: torch.Tensor
    broken: list[int]


@st.composite
def batches(draw: st.DrawFn, fewest: int = 4, most: int = 24, share: float = 0.49) -> Batch:
    """Normal, tied, offset or sparse samples in (N, C), (N, C, L) or (N, C, H, W); some multiplied or moved."""
    n, channels = draw(st.integers(fewest, most)), draw(st.integers(1, 5))
    rest = draw(st.sampled_from([(), (1,), (7,), (3, 4)]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    x = torch.randn(n, channels, *rest, generator=generator, dtype=torch.float64)
    x = draw(
        st.sampled_from([lambda x: x, lambda x: x.relu(), lambda x: (2 * x).round() / 2, lambda x: x + 30, torch.exp])
    )(x)
    broken = draw(st.lists(st.integers(0, n - 1), max_size=int(share * (n - 1)), unique=True))
    for i in broken:
        x[i] = draw(st.sampled_from([lambda v, t: v * t, lambda v, t: v + t]))(x[i], draw(faults))
    return Batch(x, broken)


def per_channel(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return values.reshape(-1, *[1] * (x.dim() - 2))


def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = x.flatten(2) if x.dim() > 2 else x[..., None]
    m = rows.mean(2)
    return m, (rows - m[..., None]).square().mean(2)


def distances(x: torch.Tensor, y: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    m, v = moments(x)
    inverse = torch.where(s > 0, 1 / s.square(), 0.0)
    return ((v + (m - y).square()) * inverse).mean(1).sqrt()


def statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of every channel."""
    dims = [d for d in range(x.dim()) if d != 1]
    mean = x.mean(dims)
    return mean, (x - per_channel(mean, x)).square().mean(dims)


@given(batches(fewest=1), ks)
def test_inside_as_it_was_and_outside_on_the_ball(batch: Batch, k: float) -> None:
    x = batch.x
    found = guard(x, k)
    inside = found.factor == 1
    assert torch.equal(inside, found.distance <= found.radius)
    assert torch.equal(found.output[inside], x[inside])
    torch.testing.assert_close(found.distance, distances(x, found.center, found.scale), rtol=1e-9, atol=0)
    after = distances(found.output, found.center, found.scale)[~inside]
    # The rounding of x' is that of the center; a channel's scale may be far below.
    rounding = 1e-14 * float((found.center.abs() / found.scale).max()) if len(after) else 0.0
    torch.testing.assert_close(after, found.radius.expand_as(after), rtol=1e-9, atol=rounding)
    if found.radius.isfinite():
        assert inside.sum() > (len(x) - 1) // 2
        torch.testing.assert_close(found.radius, k * found.distance.median())


@given(batches(), ks, st.sampled_from([-1000.0, -3.0, 0.125, 64.0]))
def test_shift(batch: Batch, k: float, shift: float) -> None:
    x = batch.x
    here, there = guard(x, k), guard(x + shift, k)
    assume(here.radius.isfinite())
    # In float64 what was 1e20 away forgets the shift; what is near does not.
    torch.testing.assert_close(there.factor, here.factor, rtol=1e-7, atol=0)
    slack = 1e-9 * (1 + abs(shift) + float(here.radius * here.scale.max()))
    torch.testing.assert_close(there.output, here.output + shift, rtol=1e-9, atol=slack)


@given(batches(), ks, st.lists(st.integers(-3, 3), min_size=5, max_size=5), st.sampled_from([1.0, -1.0, 0.3]))
def test_scale_of_single_channels(batch: Batch, k: float, exponents: list[int], unit: float) -> None:
    """Bit for bit by powers of two. Where the narrowest channel is not dead: its floor is taken from the widest."""
    x = batch.x
    here = guard(x, k)
    assume(here.scale.min() > 0.1 * here.scale.max())
    factor = unit * 2.0 ** torch.tensor(exponents[: x.shape[1]], dtype=torch.float64)
    there = guard(x * per_channel(factor, x), k)
    if abs(unit) == 1:
        assert torch.equal(there.factor, here.factor)
        assert torch.equal(there.output, here.output * per_channel(factor, x))
    torch.testing.assert_close(there.factor, here.factor, rtol=1e-7, atol=0)


@given(batches(), ks, st.randoms(use_true_random=False))
def test_order_of_samples(batch: Batch, k: float, random) -> None:
    order = list(range(len(batch.x)))
    random.shuffle(order)
    here, there = guard(batch.x, k), guard(batch.x[order], k)
    torch.testing.assert_close(there.factor, here.factor[order], rtol=1e-9, atol=0)
    torch.testing.assert_close(there.output, here.output[order], rtol=1e-9, atol=1e-9 * float(here.output.abs().max()))


class TestWhatABrokenSampleCanDo:
    @given(batches(), faults, ks)
    def test_one_sample_moved_to_infinity(self, batch: Batch, t: float, k: float) -> None:
        """Mean and variance of x' change by what pulled samples alone can do.

        A sample on or in the ball has |m' − y| ≤ √C·R·s and v' + (m' − y)² ≤ C·R²·s² in each channel. Samples inside of
        both balls, before and after the move, are the same; the p others are each in their ball both times. With
        w = √C·R·s before, w̃ after, and g = |y − ỹ|,

            |ΔM| ≤ (p/N)·(w + w̃ + g)        |ΔV| ≤ (p/N)·max(w², (w̃ + g)²) + |ΔM|·(|M − y| + |M̃ − y|)

        The second because V = S − (M − y)², where S is the mean square about y.
        """
        x = batch.x
        moved = x.clone()
        moved[0] = moved[0] * t + t
        before, after = guard(x, k), guard(moved, k)
        assume(before.radius.isfinite())
        assume(after.radius.isfinite())
        others = (before.factor < 1) | (after.factor < 1)
        others[0] = True
        part = float(others.double().mean())
        root = math.sqrt(x.shape[1])
        w, w_after = root * before.radius * before.scale, root * after.radius * after.scale
        g = (before.center - after.center).abs()
        (mean, var), (mean_after, var_after) = statistics(before.output), statistics(after.output)
        rounding = 1e-12 * (w + w_after + mean.abs() + mean_after.abs())
        shift = part * (w + w_after + g)
        assert ((mean_after - mean).abs() <= shift + rounding).all()
        ends = (mean - before.center).abs() + (mean_after - before.center).abs()
        most = part * torch.maximum(w.square(), (w_after + g).square()) + (mean_after - mean).abs() * ends
        assert ((var_after - var).abs() <= most + rounding * (w + w_after + mean.abs() + mean_after.abs())).all()

    @given(batches(), st.integers(0, 2**31))
    def test_how_far_out_makes_no_difference(self, batch: Batch, seed: int) -> None:
        """At 1e9 or at 1e13 on the same ray: the same place on the ball.

        But in a channel in which it is the only one that differs, and its own unit.
        """
        x = batch.x.clone()
        ray = torch.randn(x[0].shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assume(not batch.broken)
        results = []
        for t in (1e9, 1e13):
            x[0] = t * ray
            results.append(guard(x))
        assume(results[0].radius.isfinite())
        near, far = results
        assume(torch.allclose(near.scale, far.scale))
        assert far.factor[0] < 1e-6
        torch.testing.assert_close(far.output, near.output, rtol=1e-6, atol=1e-6 * float(near.output.abs().max()))

    @given(batches(), ks)
    def test_breakdown(self, batch: Batch, k: float) -> None:
        """With fewer than half of the samples broken, everything is bounded by the good ones.

        The channel medians y₀ lie among the good samples, and s² is at most the largest good square about them. With G
        the largest good distance from y₀: a sample of any distance moves a step of Weiszfeld by no more than its weight
        times its distance, 1, against weights of at least 1/G of more than half, so that a step is shorter than 2G and
        multiplies the largest good distance by 3 at most. After two steps R ≤ 9kG.
        """
        x = batch.x
        good = [i for i in range(len(x)) if i not in batch.broken]
        found = guard(x, k)
        assume(found.radius.isfinite())
        m, v = moments(x)
        low, high = m[good].amin(0), m[good].amax(0)
        ordered = m.sort(0).values
        y = (ordered[(len(x) - 1) // 2] + ordered[len(x) // 2]) / 2
        assert ((y >= low) & (y <= high)).all()
        largest = (v[good] + (m[good] - y).square()).amax(0).sqrt()
        floor = 1e-3 * largest.max()
        assert (found.scale <= torch.maximum(largest, floor) * (1 + 1e-9)).all()
        reach = distances(x[good], y, found.scale).max()
        assert found.radius <= 9 * k * reach * (1 + 1e-9)
        bound = math.sqrt(x.shape[1]) * found.radius * found.scale
        apart = (moments(found.output)[0] - found.center).abs()
        assert (apart <= bound * (1 + 1e-9) + 1e-14 * found.center.abs()).all()
        _, var = statistics(found.output)
        assert (var <= bound.square() * (1 + 1e-9) + 1e-28 * found.center.square()).all()

    @given(batches(fewest=8), st.sampled_from([2.0, 1.5]))
    def test_others_come_out_the_same_however_broken_the_broken_are(self, batch: Batch, phi: float) -> None:
        x = batch.x.clone()
        assume(batch.broken)
        good = [i for i in range(len(x)) if i not in batch.broken]
        outputs = []
        for t in (1e8, 1e12):
            x[batch.broken] = t * torch.ones_like(x[batch.broken])
            assume(guard(x).radius.isfinite())
            layer = norm(x, guard=3.0, phi=phi)
            outputs.append(layer(x)[good])
            assert layer.guard_counts[2] >= len(batch.broken)
        torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-4, atol=1e-4)


def norm(x: torch.Tensor, kind: str = "AugBatchNorm", **options: object) -> torch.nn.Module:
    rank = max(1, x.dim() - 2)
    return getattr(geonorm, f"{kind}{rank}d")(x.shape[1], dtype=options.pop("dtype", x.dtype), **options).train()


def step(layer: torch.nn.Module, x: torch.Tensor, **kwargs: torch.Tensor) -> dict[str, torch.Tensor]:
    """What one training step leaves: output, gradients, buffers (but for the guard's counts)."""
    x = x.clone().requires_grad_()
    y = layer(x, **kwargs)
    (y * torch.linspace(-1, 2, y.numel() // len(y), dtype=y.dtype).reshape(y.shape[1:])).nansum().backward()
    left = {"output": y.detach(), "gradient": x.grad}
    left |= {f"gradient of {name}": p.grad for name, p in layer.named_parameters()}
    return left | {name: b for name, b in layer.named_buffers() if name != "guard_counts"}


with using_backend("auto"):
    KERNELS = has_kernels()
BACKENDS = ["torch", pytest.param("native", marks=pytest.mark.skipif(not KERNELS, reason="no kernels built"))]
KINDS = [
    ("AugBatchNorm", {"phi": 2.0}),
    ("AugBatchNorm", {"phi": 1.5}),
    ("AugBatchNorm", {"phi": 1.5, "spread": "robust"}),
    ("PopNorm", {}),
]
kinds = pytest.mark.parametrize(("kind", "options"), KINDS, ids=["mean", "phi", "robust", "pop"])
SHAPES = [(17, 3), (17, 3, 5), (12, 3, 4, 5), (9, 3, 2, 3, 2)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@kinds
def test_clean_batches_change_no_bit(
    kind: str, options: dict, shape: tuple[int, ...], dtype: torch.dtype, backend: str
) -> None:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)).mul(2).sub(0.3).to(dtype)
    with using_backend(backend):
        plain, guarded = norm(x, kind, **options), norm(x, kind, guard=3.0, **options)
        for _ in range(2):
            expected, found = step(plain, x), step(guarded, x)
            for name, value in expected.items():
                assert torch.equal(found[name], value), name
    assert guarded.guard_counts.tolist() == [2, 0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@kinds
def test_samples_that_are_not_finite_are_as_if_they_were_not_there(
    kind: str, options: dict, shape: tuple[int, ...], bad: float, dtype: torch.dtype
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[2] *= 50
    kept = [i for i in range(len(x)) if i not in (1, 4)]
    spoiled = x.clone()
    spoiled[1].flatten()[0] = bad
    spoiled[4] = bad
    layer, without = norm(x, kind, guard=3.0, **options), norm(x, kind, guard=3.0, **options)
    found, expected = step(layer, spoiled), step(without, x[kept])
    for name, value in expected.items():
        own = found[name][kept] if name in ("output", "gradient") else found[name]
        assert torch.equal(own, value), name
    assert found["output"][[1, 4]].isnan().all()
    assert (found["gradient"][[1, 4]] == 0).all()
    assert layer.guard_counts[3] == 2
    assert torch.equal(layer.guard_counts[:3], without.guard_counts[:3])


class TestSpecialBatches:
    def test_three_samples_are_left_alone(self) -> None:
        x = torch.tensor([[0.0], [1.0], [1e6]])
        assert guard(x).factor.tolist() == [1, 1, 1]
        assert guard(x).radius == math.inf
        assert guard(torch.cat([x, torch.tensor([[0.5]])])).factor[2] < 1
        spoiled = torch.tensor([[0.0], [1.0], [1e6], [math.nan]])  # three finite ones
        assert guard(spoiled).factor[:3].tolist() == [1, 1, 1]

    def test_most_samples_the_same(self) -> None:
        """R would be 0, and all others be thrown onto one point: nothing is pulled."""
        for same in (0.0, 0.1, -7.3):
            x = torch.full((11, 3), same)
            x[:5] = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)) * 100
            found = guard(x)
            assert (found.factor == 1).all()
            assert found.output is x or torch.equal(found.output, x)

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("shape", [(11, 8), (11, 3, 5, 5), (11, 3, 28, 28)], ids=str)
    def test_most_samples_the_same_but_for_rounding(self, shape: tuple[int, ...], backend: str) -> None:
        """Constant samples, whose mean is a rounding off, and rows of one product that are an ulp apart."""
        generator = torch.Generator().manual_seed(0)
        for same in (0.0, 0.1, -7.3, 0.3, 1.7, 2.9):
            x = torch.full(shape, same)
            if x.dim() == 2:
                x = x * (1 + 6e-8 * torch.randint(-1, 2, shape, generator=generator))
            x[:5] = torch.randn(x[:5].shape, generator=generator)
            assert (guard(x).factor == 1).all()
            with using_backend(backend):
                layer = norm(x, guard=3.0, phi=2.0)
                layer(x)
            assert layer.guard_counts.tolist() == [1, 0, 0, 0]

    def test_one_sample_twice(self) -> None:
        x = torch.randn(10, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        x[3] *= 30
        x[7] = x[3]
        found = guard(x)
        assert found.factor[3] == found.factor[7] < 1
        assert torch.equal(found.output[3], found.output[7])

    def test_the_smallest_radius(self) -> None:
        x = torch.randn(21, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        found = guard(x, 1.0)
        assert (found.factor < 1).sum() == 10
        assert (distances(found.output, found.center, found.scale) <= found.radius * (1 + 1e-12)).all()

    @pytest.mark.parametrize("n", [MAX_SAMPLES_FOR_CENTER, MAX_SAMPLES_FOR_CENTER + 1, 1000])
    def test_many_samples(self, n: int) -> None:
        """Center and scale are those of 256 evenly spaced samples; all are judged."""
        x = torch.randn(n, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        x[3::7] += 100
        found = guard(x)
        assert torch.equal((found.factor < 1).nonzero().flatten(), torch.arange(3, n, 7))
        some = guard(x[torch.arange(256) * n // 256])
        torch.testing.assert_close(found.center, some.center)
        torch.testing.assert_close(found.scale, some.scale)
        torch.testing.assert_close(found.distance, distances(x, found.center, found.scale))

    def test_a_dead_channel_does_not_decide(self) -> None:
        """One that is constant, and one that is so but for one sample: there is no unit to call it far away by."""
        x = torch.randn(16, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        x[:, 1] = 0.7
        x[:, 2] = 0.7
        for size in (1e-4, 1.0, 100.0):
            x[5, 2] = 0.7 + size
            assert (guard(x).factor == 1).all()
        x[3:7, 2] = 1.0  # now there is one
        x[5, 2] = 100.0
        assert (guard(x).factor < 1).nonzero().flatten().tolist() == [5]
        constant = torch.full((16, 4, 5), 0.7, dtype=torch.float64)
        assert (guard(constant).factor == 1).all()


class TestMasks:
    X = torch.randn(12, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    KEPT = torch.rand(12, 3, 5, generator=torch.Generator().manual_seed(1)) < 0.8

    def test_moments_are_those_of_what_is_kept(self) -> None:
        mask = self.KEPT.clone()
        mask[:, :, 0] = True
        x = self.X.clone()
        x[4] *= 30
        found = guard(torch.where(mask, x, 1e30), mask=mask)
        assert (found.factor < 1).nonzero().flatten().tolist() == [4]
        count = mask.sum(2)
        m = torch.where(mask, x, 0.0).sum(2) / count
        v = torch.where(mask, (x - m[..., None]).square(), 0.0).sum(2) / count
        d = ((v + (m - found.center).square()) / found.scale.square()).mean(1).sqrt()
        torch.testing.assert_close(found.distance, d)

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    @kinds
    def test_what_is_masked_may_be_anything(self, kind: str, options: dict, bad: float) -> None:
        x = self.X.clone()
        x[4] *= 30
        results = []
        for fill in (0.0, bad):
            layer = norm(x, kind, guard=3.0, **options)
            results.append(step(layer, torch.where(self.KEPT, x, fill), mask=self.KEPT))
            assert layer.guard_counts.tolist() == [1, 1, 1, 0]
        for name, value in results[0].items():
            assert torch.equal(results[1][name], value), name
        assert (results[1]["output"][~self.KEPT] == 0).all()

    @pytest.mark.parametrize("bad", [0.0, math.nan])
    @kinds
    def test_samples_without_values_are_as_if_they_were_not_there(self, kind: str, options: dict, bad: float) -> None:
        x, mask = self.X.clone(), self.KEPT.clone()
        x[4] *= 30
        x[[2, 9]], mask[[2, 9]] = bad, False
        kept = [i for i in range(12) if i not in (2, 9)]
        found = step(norm(x, kind, guard=3.0, **options), x, mask=mask)
        expected = step(norm(x, kind, guard=3.0, **options), x[kept], mask=mask[kept])
        for name, value in expected.items():
            own = found[name][kept] if name in ("output", "gradient") else found[name]
            torch.testing.assert_close(own, value, rtol=1e-12, atol=1e-12)
        assert (found["output"][[2, 9]] == 0).all()
        assert (found["gradient"][[2, 9]] == 0).all()
