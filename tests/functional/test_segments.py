"""Ragged groups: equal to a loop over the segments, in any order, with empty ones."""

import math
import re

import pytest
import torch

from geonorm.functional import center, segment_center, segment_spread, spread

BATCH = torch.tensor([4, 0, 2, 2, 0, 4, 4, 2, 0, 4, 6])  # 1, 3 and 5 are empty, 6 has one row
SIZE = 8
KINDS = ["rms", "mean_abs", "max_abs", 3.0, "robust"]
PHIS = [1.0, 1.2, 1.5, 2.0, 3.0, math.inf]


def values(*features: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(BATCH), *features, generator=generator, dtype=torch.float64)


def loop(f, x: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.zeros(SIZE, *x.shape[1:], dtype=x.dtype)
    for s in range(SIZE):
        rows = s == BATCH
        if bool(rows.any()):
            out[s] = f(x[rows], None if weight is None else weight[rows])
    return out


@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("features", [(), (3,), (2, 3)])
def test_center_equals_a_loop(phi: float, features: tuple[int, ...]) -> None:
    x = values(*features)
    torch.testing.assert_close(segment_center(x, phi, BATCH, SIZE), loop(lambda v, _: center(v, phi, 0), x))
    weight = torch.rand(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    weighted = segment_center(x, phi, BATCH, SIZE, element_weight=weight)
    torch.testing.assert_close(weighted, loop(lambda v, w: center(v, phi, 0, element_weight=w), x, weight))


@pytest.mark.parametrize("kind", KINDS)
def test_spread_equals_a_loop(kind: str | float) -> None:
    x, about = values(3), torch.randn(SIZE, 3, dtype=torch.float64)
    torch.testing.assert_close(segment_spread(x, kind, BATCH, SIZE), loop(lambda v, _: spread(v, kind, 0), x))
    shifted = x - about[BATCH]
    expected = loop(lambda v, _: spread(v, kind, 0), shifted)
    torch.testing.assert_close(segment_spread(x, kind, BATCH, SIZE, about=about), expected)
    torch.testing.assert_close(
        segment_spread(x, kind, BATCH, SIZE, about=about[0]), loop(lambda v, _: spread(v, kind, 0, about=about[0]), x)
    )


@pytest.mark.parametrize("phi", PHIS)
def test_order_of_rows_does_not_matter(phi: float) -> None:
    x = values(3)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(segment_center(x[order], phi, BATCH[order], SIZE), segment_center(x, phi, BATCH, SIZE))


def test_runs_repeat_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(3)
    x, batch = torch.randn(5000, 32, generator=generator), torch.randint(0, 100, (5000,), generator=generator)
    first = segment_center(x, 1.5, batch, 100)
    assert all(torch.equal(segment_center(x, 1.5, batch, 100), first) for _ in range(3))


def test_empty_segments_get_zero_and_no_gradient() -> None:
    x = values(2).requires_grad_()
    for phi in PHIS:
        out = segment_center(x, phi, BATCH, SIZE)
        assert out[[1, 3, 5, 7]].abs().max() == 0
        (g,) = torch.autograd.grad(out[[1, 3, 5, 7]].sum(), x)
        assert bool((g == 0).all())
    for kind in KINDS:
        out = segment_spread(x, kind, BATCH, SIZE)
        assert out[[1, 3, 5, 7]].abs().max() == 0
        (g,) = torch.autograd.grad(out.sum(), x)
        assert bool(g.isfinite().all())
    nothing = segment_center(torch.randn(0, 3), 1.5, torch.zeros(0, dtype=torch.int64), 2)
    assert nothing.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert segment_center(torch.randn(0, 3), 1.5, torch.zeros(0, dtype=torch.int64)).shape == (0, 3)


@pytest.mark.parametrize("phi", PHIS)
def test_a_masked_out_segment_is_an_empty_one(phi: float) -> None:
    x = values(2)
    weight = (BATCH != 2).double()
    x[BATCH == 2] = math.nan
    out = segment_center(x, phi, BATCH, SIZE, element_weight=weight)
    assert out[2].tolist() == [0, 0]
    assert torch.equal(out[4], segment_center(x, phi, BATCH, SIZE)[4])
    assert segment_center(x, phi, BATCH, SIZE)[2].isnan().all()


def test_phi_per_feature_and_per_segment() -> None:
    x = values(3)
    per_feature = torch.tensor([1.0, 1.5, math.inf], dtype=torch.float64)
    expected = torch.stack([segment_center(x[:, i], p.item(), BATCH, SIZE) for i, p in enumerate(per_feature)], 1)
    torch.testing.assert_close(segment_center(x, per_feature, BATCH, SIZE), expected)
    per_segment = torch.linspace(1.1, 3, SIZE, dtype=torch.float64)[:, None]
    out = segment_center(x, per_segment, BATCH, SIZE)
    torch.testing.assert_close(out[4], center(x[BATCH == 4], per_segment[4].item(), 0))


def test_large_segments_keep_their_digits() -> None:
    x = torch.rand(2_000_000, generator=torch.Generator().manual_seed(4))
    batch = torch.zeros(len(x), dtype=torch.int64)
    torch.testing.assert_close(segment_spread(x, "rms", batch)[0], spread(x, "rms"), rtol=1e-6, atol=0)
    torch.testing.assert_close(segment_center(x, 1.5, batch)[0], center(x, 1.5), rtol=1e-6, atol=0)


def test_weights_of_one_segment_do_not_touch_another() -> None:
    x, batch = torch.tensor([1.0, 2, 3, 10, 20, 30]), torch.tensor([0, 0, 0, 1, 1, 1])
    weight = torch.tensor([1e17, 1e17, 1e17, 1.0, 1.0, 1.0])
    assert segment_center(x, 1.0, batch, element_weight=weight).tolist() == [2, 20]


def test_median_of_nothing() -> None:
    assert segment_center(torch.zeros(0, 5), 1.0, torch.zeros(0, dtype=torch.int64), 2).abs().max() == 0


def test_batch_size_is_found() -> None:
    assert segment_center(values(2), 1.5, BATCH).shape == (7, 2)


ERRORS = [
    (lambda: segment_center(values(2), 1.5, BATCH[:-1]), ValueError, "shape (11,) (got shape (10,)"),
    (lambda: segment_center(values(2), 1.5, BATCH - 1), ValueError, "got values from -1 to 5"),
    (
        lambda: segment_center(values(2), 1.5, BATCH, 3),
        ValueError,
        "expected batch entries in [0, 3) (got values from 0 to 6)",
    ),
    (lambda: segment_center(values(2), 1.5, BATCH.int()), TypeError, "batch.long()"),
    (lambda: segment_center(values(2), 1.5, BATCH.tolist()), TypeError, "int64 tensor"),
    (lambda: segment_center(values(2), 1.5, BATCH, -1), ValueError, "batch_size >= 0"),
    (
        lambda: segment_center(values(2), torch.ones(3), BATCH),
        ValueError,
        "(segments, features) = (7, 2) (got shape (3,))",
    ),
    (lambda: segment_center(torch.tensor(1.0), 1.5, torch.tensor([0])), ValueError, "one entry per row"),
    (lambda: segment_center(values(2), 1.5, BATCH, 2.0), TypeError, "batch_size to be an int"),
    (lambda: segment_spread(values(2), "rms", BATCH, 3, about=torch.ones(2)), ValueError, "expected batch entries"),
    (lambda: segment_spread(values(2), "rms", BATCH, 3), ValueError, "expected batch entries in [0, 3)"),
    (lambda: segment_spread(values(2), "rms", BATCH - 1), ValueError, "got values from -1 to 5"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS, ids=[text[:40] for *_, text in ERRORS])
def test_errors(call, error, text) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()
