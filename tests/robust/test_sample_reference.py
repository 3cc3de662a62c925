"""The ruler of ``screen``: laws of its figures, and the gap that samples must have below them."""

from __future__ import annotations

import itertools
import math

import torch

from geonorm.robust.sample_reference import SampleReference, roughness_score, valley_threshold
from geonorm.robust.score_counts import score_counts


def moments(samples: int = 200, channels: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(samples, channels).double(), torch.rand(samples, channels).double() + 0.5


def test_figures_do_not_depend_on_shift_scale_and_order() -> None:
    mean, deviation = moments()
    figures = SampleReference(mean, deviation).figures(mean, deviation)
    scale = torch.logspace(-3, 3, 6).double()
    moved, wider = mean * scale + 100 * scale, deviation * scale
    torch.testing.assert_close(SampleReference(moved, wider).figures(moved, wider), figures, rtol=1e-5, atol=1e-5)
    order = torch.randperm(200)
    again = SampleReference(mean[order], deviation[order]).figures(mean[order], deviation[order])
    torch.testing.assert_close(again, figures[order])


def test_figures_of_normal_values_are_what_their_name_says() -> None:
    """Half of all normal values are within 0.6745 standard deviations, which is the unit of MADs here."""
    torch.manual_seed(0)
    mean = torch.randn(4000, 101).double()
    figures = SampleReference(mean, torch.zeros_like(mean)).figures(mean, torch.zeros_like(mean))
    (three,) = SampleReference(mean, torch.zeros_like(mean)).figures(torch.full((1, 101), 3.0), torch.zeros(1, 101))[
        :, 0
    ]
    assert abs(float(three) - 6) < 0.1
    assert abs(float(figures[:, 1].median()) - 0.6745) < 0.02
    assert (figures[:, 2] == 0).all()


def test_the_reference_bears_almost_half_of_the_samples() -> None:
    mean, deviation = moments()
    ruler = SampleReference(mean, deviation)
    worse = mean.clone()
    worse[:90] += 1e6
    figures = SampleReference(worse, deviation).figures(mean[90:], deviation[90:])
    assert float(figures.max()) < 3 * float(ruler.figures(mean, deviation).max())


def test_what_is_not_finite_is_infinitely_far_and_has_no_part() -> None:
    mean, deviation = moments()
    expected = SampleReference(mean[1:], deviation[1:]).figures(mean[1:], deviation[1:])
    mean[0, 3] = math.nan
    figures = SampleReference(mean, deviation).figures(mean, deviation)
    assert figures[0].isinf().all()
    torch.testing.assert_close(figures[1:], expected)


def test_a_gap_is_found_and_a_slope_is_none() -> None:
    clean = torch.linspace(0, 4, 1000)
    assert valley_threshold(clean, 6.0) == 6.0
    assert valley_threshold(torch.cat([clean, torch.tensor([7.0, 8.0, math.inf])]), 6.0) == 6.0
    slope = torch.empty(1000).exponential_(generator=torch.Generator().manual_seed(0)) * 2
    assert slope.max() > 8
    assert valley_threshold(slope, 6.0) > slope.max()
    assert slope.max() < valley_threshold(torch.cat([slope, torch.tensor([100.0])]), 6.0) < 100
    steep = torch.arange(1, 2000).double().reciprocal().mul(2000).sqrt()  # a power law
    assert valley_threshold(steep, 6.0) > steep.max()
    assert valley_threshold(torch.tensor([]), 6.0) == 6.0
    assert valley_threshold(torch.tensor([9.0]), 6.0) == 6.0


def test_independent_values_are_rougher_than_all_others() -> None:
    rough = torch.cat([torch.linspace(0.05, 0.3, 200), torch.tensor([1.0, 1.02, math.nan])])
    scores = roughness_score(rough, torch.ones(203, dtype=torch.bool))
    assert scores[:200].max() < 3
    assert scores[200:202].min() > 6
    assert scores[202] == 0


def test_bins_hold_every_score_and_split_at_the_cut() -> None:
    for scores in (
        torch.tensor([0.0, 1.0, 5.9, 6.0, 6.1, 1e30, math.inf]),
        torch.tensor([6.0]),
        torch.tensor([math.inf, math.inf]),
        torch.zeros(3),
        torch.rand(500) * 20,
    ):
        bins = score_counts(scores, 6.0)
        assert sum(one.count for one in bins) == len(scores)
        assert sum(one.count for one in bins if one.low >= 6.0) == int((scores > 6).sum())
        assert len(bins) <= 70
        assert all(a.high == b.low for a, b in itertools.pairwise(bins))
